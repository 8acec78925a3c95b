// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/base/real.h"
#include "core/engine/memory_facts.h"
#include "core/scenario/scenario.h"
#include "engines/sglang/product.h"

namespace metronome {
namespace {

// Sources, of 0.5.23: _handle_max_mamba_cache(), _calculate_mamba_ratio(), resolve_max_num_reqs()
// and mm_runtime_reservation_gb() of srt/mem_cache/kv_cache_configurator.py.
constexpr double kStatesPerKv = 0.9;             // bytes; mamba_full_memory_ratio
constexpr double kImageCacheGib = 100.0 / 1024;  // SGLANG_VLM_CACHE_SIZE_MB

// States of the pool for each running request. With the radix cache it has three, and more for the
// prefixes that it caches: two that steps in flight write in turn, or one without overlap, where
// pages call for it (_mamba_radix_cache_resolution of srt/arg_groups/overrides.py).
std::int64_t states_per_request(const Scenario& scenario) {
  if (!scenario.kv_cache.enable_prefix_caching.value_or(true)) return 1;
  if (scenario.engine.async_depth > 1) return 5;
  return scenario.kv_cache.block_size > 1 ? 4 : 3;
}

// States of the pool. Without the radix cache, as many as the requests that the user allows.
std::int64_t states_of_pool(const Scenario& scenario, const StateMemory& memory) {
  const bool is_given = !is_default_of(scenario.serve_defaults, "engine.max_num_seqs");
  if (states_per_request(scenario) == 1 && is_given) return scenario.engine.max_num_seqs;
  const double share = kStatesPerKv / (1 + kStatesPerKv);
  const double states = memory.free_bytes * share / memory.request_bytes;
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(states)) - 1, 0);
}

}  // namespace

// SGLang takes its share of the memory that is free before it loads weights. Logs miss 0.4 to 0.8
// GiB on one device, and 1.8 on one of eight. Embeddings of images are cached beside the KV.
double sglang_reserved_gib(const MemoryFacts& facts, const ModelConfig& model) {
  constexpr double kRuntimeGib = 0.6;
  constexpr double kParallelRuntimeGib = 1.5;
  const double runtime = facts.tensor_parallel_size > 1 ? kParallelRuntimeGib : kRuntimeGib;
  return facts.gpu_memory_utilization * runtime + (model.vision.is_empty() ? 0 : kImageCacheGib);
}

StatePool sglang_divide_memory(const Scenario& scenario, const StateMemory& memory) {
  const std::int64_t num_states = states_of_pool(scenario, memory);
  // One more pads batches.
  const double bytes = real(num_states + 1) * memory.request_bytes;
  const double tokens = std::max((memory.free_bytes - bytes) / memory.token_bytes, 0.0);
  return {.bytes = bytes,
          .max_requests = std::min(num_states / states_per_request(scenario),
                                   static_cast<std::int64_t>(tokens) / 2)};
}

}  // namespace metronome
