// SPDX-License-Identifier: Apache-2.0
// The drafter that a scenario asks for.
#pragma once

#include <optional>

#include "core/model/model_config.h"
#include "sim/drafts/drafter.h"

namespace metronome {

struct Scenario;

// The drafter of `speculative`; nullopt: none is needed. Throws UnplacedConfigError for a draft
// model with another vocabulary than the target's, as vLLM does, or one that is unknown.
std::optional<DrafterModel> find_drafter(const Scenario& scenario, const ModelConfig& target);

}  // namespace metronome
