// SPDX-License-Identifier: Apache-2.0
// Reads a config.json of an architecture that is no family's. A simulation needs shapes only, and
// most files name them with the same keys.
#pragma once

#include <string>

#include "core/model/json_section.h"
#include "core/model/model_config.h"
#include "core/model/model_family.h"

namespace metronome {

// The family whose reading fits the keys of the file: dense, with experts, with latent attention,
// or with layers that keep a state.
ModelFamily nearest_family(const JsonSection& root);

// A key of the file that says a structure which no family has: an encoder, or layers that are
// neither attention nor MLP; empty: none.
std::string key_without_reading(const JsonSection& root);

// Sets the experts from any of the keys that families have for them; none of them: no experts.
// Throws ConfigError.
void read_any_experts(const JsonSection& text, ModelConfig& model);

// ModelConfig::approximation: what the model is simulated as, and by which keys of `text`.
std::string approximation_of(const std::string& architecture, const JsonSection& text,
                             const ModelConfig& model);

}  // namespace metronome
