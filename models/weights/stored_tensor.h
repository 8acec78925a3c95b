// SPDX-License-Identifier: Apache-2.0
// Where a model folder keeps a tensor: families name tensors differently, fuse some, and transpose
// some.
//
// Qwen3-Next and Qwen3.5: the query projection of a head has its gate's rows behind its own.
// Qwen3-Next's in_proj_qkvz has for each key head its query, its key, and the values and gates of
// its value heads; in_proj_ba the write strengths and decays of these (fix_query_key_value_ordering
// in transformers' modeling_qwen3_next.py). Experts are stored one by one, or all in one tensor.
// Qwen3-VL publishes that tensor with its last two dimensions exchanged (conversion_mapping.py of
// transformers). Where the sizes do not tell which, both take it as not exchanged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "models/weights/model_weights.h"

namespace metronome {

struct StoredTensor {
  std::vector<std::string> names;  // any of them; the first is the usual one
  std::int64_t rows = 0;           // of the whole stored tensor, as WeightSpec counts them
  std::int64_t cols = 0;
  std::int64_t first_row = 0;  // the spec's first row among them
  // The spec's rows are groups of so many, and each group begins row_stride behind the last; 0 =
  // all rows follow each other.
  std::int64_t row_group = 0;
  std::int64_t row_stride = 0;
  bool is_transposed = false;            // stored as [cols, rows]
  std::int64_t first_element = 0;        // transposed: where those are in the whole tensor
  std::vector<std::int64_t> shape = {};  // as stored; empty: [rows, cols]

  // The stored row of the spec's row, and how many rows follow each other from there on.
  std::int64_t stored_row(std::int64_t row) const {
    if (row_group == 0) return first_row + row;
    return first_row + row / row_group * row_stride + row % row_group;
  }
  std::int64_t num_adjacent(std::int64_t row, std::int64_t num_rows) const {
    if (row_group == 0) return num_rows;
    const std::int64_t left = row_group - row % row_group;
    return left < num_rows ? left : num_rows;
  }
};

// The tensors that may hold `spec`, one of weight_specs(model): the first that a folder has, with
// this shape. At least one.
std::vector<StoredTensor> stored_tensors(const ModelConfig& model, const WeightSpec& spec);

}  // namespace metronome
