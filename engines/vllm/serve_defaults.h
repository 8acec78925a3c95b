// SPDX-License-Identifier: Apache-2.0
// The settings that `vllm serve` (its API server, not its class LLM) chooses for a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/scenario/engine_product.h"

namespace metronome {

// The user's choice of the settings that others follow; absent: not chosen.
struct VllmServeOptions {
  std::optional<std::int64_t> max_num_seqs = {};
  std::optional<std::int64_t> max_num_batched_tokens = {};
  std::optional<std::int64_t> max_model_len = {};  // the model's limit if the user set none
  bool enable_chunked_prefill = true;
  std::int64_t num_speculative_tokens = 0;
  bool looks_up_drafts = false;  // speculative.method ngram
};

// In version 0.`minor`, 19 to 33.
std::vector<ServeDefault> vllm_serve_defaults(int minor, const HardwareSpec& gpu,
                                              const VllmServeOptions& chosen);
// The defaults for a scenario; see EngineProduct.
std::vector<ServeDefault> vllm_serve_defaults(const Scenario& scenario, const HardwareSpec& gpu,
                                              const IsGiven& is_given);

}  // namespace metronome
