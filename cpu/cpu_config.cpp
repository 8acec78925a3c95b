// SPDX-License-Identifier: Apache-2.0
// The keys of the `cpu` section: names, ranges and meaning.
#include "cpu/cpu_config.h"

#include "core/config/config_reader.h"

namespace metronome {

void CpuConfig::visit(FieldVisitor& visitor) {
  visitor.integer_or_auto("threads", threads, 1, 1024,
                          "threads that compute; auto: one per CPU core that this process may use");
  visitor.optional_number("kv_cache_gib", kv_cache_gib, 0.001, 1e6,
                          "memory for KV blocks with kv_cache.num_blocks auto, GiB; null: half of "
                          "the available memory, and no more than all sequences need");
}

}  // namespace metronome
