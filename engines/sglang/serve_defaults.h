// SPDX-License-Identifier: Apache-2.0
// The settings that SGLang 0.5.23 (`sglang.launch_server`) chooses for a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/scenario/engine_product.h"

namespace metronome {

// The user's choice of the settings that others follow; absent: not chosen.
struct SglangServeOptions {
  std::int64_t tensor_parallel_size = 1;
  std::optional<std::int64_t> max_num_seqs = {};
  std::optional<std::int64_t> chunked_prefill_size = {};
  std::int64_t max_prefill_tokens = 16384;
  std::int64_t vision_dim = 0;  // hidden dimension of the model's vision tower; 0: it has none
};

// SglangServeOptions::vision_dim of the scenario's model; 0 if it names none.
std::int64_t vision_dim_of(const Scenario& scenario);

// Of a pool's size it only knows that max_running_requests is at least 2048.
std::vector<ServeDefault> sglang_serve_defaults(const HardwareSpec& gpu,
                                                const SglangServeOptions& chosen);
// The defaults for a scenario; see EngineProduct.
std::vector<ServeDefault> sglang_serve_defaults(const Scenario& scenario, const HardwareSpec& gpu,
                                                const IsGiven& is_given);

// Whether there is any GPU memory beside SGLang's reserve for chunks and graphs:
// cost_model.gpu_memory_utilization of sglang_serve_defaults is the least that the key can say
// where there is none.
bool sglang_leaves_memory(const HardwareSpec& gpu, const SglangServeOptions& chosen);

}  // namespace metronome
