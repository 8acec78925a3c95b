// SPDX-License-Identifier: Apache-2.0
// The formats of the weights of a model's modules by their kind.
#pragma once

#include <span>

#include "core/model/model_config.h"

namespace metronome {

bool has_kind(std::span<const ModuleKind> kinds, ModuleKind kind);

// The format that linear_format, mlp_format and expert_format say for such modules; module_formats
// does not count.
WeightFormat main_format(const ModelConfig& model, ModuleKind kind);

// The table that hidden vectors are multiplied with: the embedding's, where the head has none.
ModuleKind head_table(const ModelConfig& model);

}  // namespace metronome
