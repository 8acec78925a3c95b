// Where a model folder keeps a tensor: families name tensors differently, fuse some, and transpose
// some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "core/model/model_weights.h"

namespace metronome {

struct StoredTensor {
  std::vector<std::string> names;  // any of them; the first is the usual one
  std::int64_t rows = 0;           // of the whole stored tensor, as WeightSpec counts them
  std::int64_t cols = 0;
  std::int64_t first_row = 0;            // the spec's first row among them
  bool is_transposed = false;            // stored as [cols, rows]
  std::vector<std::int64_t> shape = {};  // as stored, if it has more than two dimensions
};

// The tensor that holds `spec`, one of weight_specs(model).
StoredTensor stored_tensor(const ModelConfig& model, const WeightSpec& spec);

}  // namespace metronome
