// SPDX-License-Identifier: Apache-2.0
#include "reports/files/engine_limits.h"

#include "core/base/json.h"
#include "reports/files/result_files.h"

namespace metronome {

EngineLimits engine_limits(const RunInfo& info) {
  const auto number = [&info](const char* section, const char* key) -> std::int64_t {
    if (!info.config.is_object()) return 0;
    const Json* keys = info.config.find(section);
    const Json* found = keys == nullptr ? nullptr : keys->find(key);
    return found != nullptr && found->is_number_integer() ? found->get<std::int64_t>() : 0;
  };
  return {number("engine", "max_num_seqs"), info.num_blocks, number("kv_cache", "block_size")};
}

}  // namespace metronome
