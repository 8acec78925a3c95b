// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <string>

#include "core/scenario/scenario.h"
#include "engines/sglang/product.h"
#include "engines/sglang/settings.h"

namespace metronome {

// Settings that SGLang refuses at its start.
void check_sglang_settings(const Scenario& scenario, const ConfigNode& source) {
  using Order = SglangConfig::SchedulePolicy;
  const SglangConfig& config = scenario.scheduler.settings<SglangConfig>();
  const std::int64_t chunk = config.chunked_prefill_size;
  const std::int64_t block = scenario.kv_cache.block_size;
  if (scenario.kv_cache.backend == KvBackend::Paged && chunk > 0 && chunk % block != 0) {
    fail_setting(source, "scheduler.chunked_prefill_size",
                 fmt::format("{} is not a multiple of kv_cache.block_size {}; allowed: 0 or -1 "
                             "(off), or a multiple of it",
                             chunk, block));
  }
  const Order order = config.schedule_policy;
  if (config.enable_priority_scheduling && order != Order::Fcfs && order != Order::Lof) {
    fail_setting(
        source, "scheduler.schedule_policy",
        std::string(kSglangPolicies[static_cast<std::size_t>(order)]) +
            " is not possible with scheduler.enable_priority_scheduling; allowed: fcfs, lof");
  }
  const bool caches_prefixes = scenario.kv_cache.enable_prefix_caching.value_or(true);
  if (order == Order::ShortestPrefillFirst && !caches_prefixes) {
    fail_setting(source, "scheduler.schedule_policy",
                 "shortest-prefill-first needs cached prefixes; allowed: another order, or "
                 "kv_cache.enable_prefix_caching = true");
  }
}

}  // namespace metronome
