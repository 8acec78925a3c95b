// SPDX-License-Identifier: Apache-2.0
// Reads the experts of a mixture from a config.json.
#pragma once

#include "core/model/json_section.h"
#include "core/model/model_config.h"
#include "core/model/model_family.h"

namespace metronome {

// Whether the family's files have a layer's MLP beside experts, or in place of them.
bool has_dense_mlps(const ModelFamily& family);

// Sets the experts, those of all tokens, the groups of the router and the layers without experts,
// by the family's ExpertKeys. Requires the rest of the shape. Throws ConfigError.
void read_experts(const JsonSection& text, const ModelFamily& family, ModelConfig& model);

// Sets the traits of experts, routers and latent attention that a file may change, and refuses
// those that no executor computes. Requires the traits of the architecture. Throws ConfigError.
void read_expert_traits(const JsonSection& text, const ModelFamily& family, ModelConfig& model);

}  // namespace metronome
