// SPDX-License-Identifier: Apache-2.0
// Helpers of the workload tests: configs from YAML text, traces from text, messages of errors.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/config/config_node.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "tests/error_of.h"

namespace metronome::testing {

// `yaml` is the content of a `workload` mapping in a file called w.yaml.
inline WorkloadConfig read_config(const std::string& yaml, const std::string& base_dir = "base") {
  return read_workload_config(parse_config_text(yaml, "w.yaml"), "workload", base_dir);
}

inline Workload make(const std::string& yaml, std::uint64_t seed = 7) {
  return make_workload(read_config(yaml), seed);
}

}  // namespace metronome::testing
