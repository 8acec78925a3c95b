// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <string>

#include "core/scenario/scenario.h"
#include "engines/sarathi/product.h"
#include "engines/sarathi/settings.h"

namespace metronome {

// Sarathi's chunk includes the decodes, and the rest must not be negative.
void check_sarathi_settings(const Scenario& scenario, const ConfigNode& source) {
  if (scenario.scheduler.policy != "sarathi") return;  // its other schedulers have no such limit
  const SarathiConfig& config = scenario.scheduler.settings<SarathiConfig>();
  const auto require_room = [&](const std::string& key, std::int64_t chunk) {
    const std::int64_t seqs = scenario.engine.max_num_seqs;
    if (chunk >= seqs) return;
    fail_setting(source, "scheduler." + key,
                 fmt::format("{} is less than engine.max_num_seqs {}, but every decode takes one "
                             "token of the chunk; allowed: at least {}",
                             chunk, seqs, seqs));
  };
  if (!config.enable_dynamic_chunking_schedule) {
    return require_room("chunk_size", config.chunk_size);
  }
  const auto require_multiple = [&](const std::string& key, std::int64_t chunk) {
    if (chunk % 32 == 0) return;
    fail_setting(source, "scheduler." + key,
                 fmt::format("{} is not a multiple of 32; allowed: 32, 64, 96, ...", chunk));
  };
  require_multiple("low_chunk_size", config.low_chunk_size);
  require_multiple("high_chunk_size", config.high_chunk_size);
  require_room("low_chunk_size", config.low_chunk_size);
  if (config.high_chunk_size >= config.low_chunk_size) return;
  fail_setting(source, "scheduler.high_chunk_size",
               fmt::format("{} is less than scheduler.low_chunk_size {}; allowed: at least as much",
                           config.high_chunk_size, config.low_chunk_size));
}

}  // namespace metronome
