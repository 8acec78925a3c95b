// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <string>

#include "core/scenario/scenario.h"
#include "engines/tensorrt_llm/product.h"
#include "engines/tensorrt_llm/settings.h"

namespace metronome {

// TensorRT-LLM's chunks end at KV block boundaries.
void check_tensorrt_llm_settings(const Scenario& scenario, const ConfigNode& source) {
  const std::int64_t unit = scenario.scheduler.settings<TensorRtLlmConfig>().chunk_unit_size;
  const std::int64_t block = scenario.kv_cache.block_size;
  if (scenario.kv_cache.backend == KvBackend::Slotted || unit % block == 0) return;
  fail_setting(source, "scheduler.chunk_unit_size",
               fmt::format("{} is not a multiple of kv_cache.block_size {}; allowed: 0 (a block), "
                           "or a multiple of it",
                           unit, block));
}

}  // namespace metronome
