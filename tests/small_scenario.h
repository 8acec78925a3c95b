// SPDX-License-Identifier: Apache-2.0
// The lines that a scenario must have, for tests that put others before or behind them.
#pragma once

namespace metronome::testing {

inline constexpr const char* kSmallScenario =
    "model: llama-3.2-3b\n"
    "hardware: h200\n"
    "workload:\n"
    "  num_requests: 4\n"
    "  arrivals: {process: poisson, rate: 2}\n"
    "  prompt_tokens: {distribution: fixed, value: 100}\n"
    "  output_tokens: {distribution: fixed, value: 10}\n";

}  // namespace metronome::testing
