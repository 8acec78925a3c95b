// SPDX-License-Identifier: Apache-2.0
// The part of a model's shape that measured times depend on, in cost model files. The number of
// layers is no part of it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/model/model_config.h"
#include "sim/cost/cost_model_file.h"

namespace metronome {

// Values under their keys in a model catalogue.
using ModelShape = std::vector<std::pair<const char*, std::int64_t>>;

ModelShape shape_of(const ModelConfig& model);

Json shape_json(const ModelShape& shape);

// `shape` is that of `model`. Throws ConfigError unless it is the one in the file's body.
void require_shape(const CostModelFile& file, const ModelShape& shape, const ModelConfig& model);

}  // namespace metronome
