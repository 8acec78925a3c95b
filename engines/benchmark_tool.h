// SPDX-License-Identifier: Apache-2.0
// The benchmark that comes with an engine, whose report reports/measured reads.
#pragma once

#include <string_view>

namespace metronome {

inline constexpr std::string_view kEngineBenchmark = "trtllm-bench";
inline constexpr std::string_view kEngineBenchmarkCommand = "trtllm-bench throughput --report_json";

}  // namespace metronome
