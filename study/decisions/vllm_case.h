// SPDX-License-Identifier: Apache-2.0
// The `config` of a vLLM decision case.
#pragma once

#include <optional>

#include "study/decisions/case_fields.h"

namespace metronome {

// Reads a case's config into `setup`; `version` overrides the case's. Returns the watermark as a
// fraction of the blocks, if the case has one.
std::optional<double> read_vllm_config(const ConfigNode& section, std::optional<int> version,
                                       EngineSetup& setup);

}  // namespace metronome
