// SPDX-License-Identifier: Apache-2.0
// Promises for a change of settings, made by `metronome diagnose --json`, or by hand.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// The figures that can be promised, by their keys: those of core/metrics/figures.h that a
// diagnosis has for each replay.
std::span<const std::string_view> promised_figures();

struct Advice {
  std::vector<std::string> changes;  // "scheduler.max_num_batched_tokens=192"
  std::vector<std::string> flags;    // of the server: "--max-num-batched-tokens 192"
  std::string engine;                // whose flags they are: "vLLM"; empty: there are none
  // Every gap is to stay within it; nullopt: no limit was asked for, or none was promised.
  std::optional<double> limit_ms;
  std::map<std::string, double> simulated_before;  // figures of the unchanged settings, simulated
  std::map<std::string, double> promised;          // figures with the change
};

// Reads the output of `metronome diagnose --json`. Throws ConfigError for another file, for one of
// several runs, and where no change was found.
Advice read_advice(const std::string& path);

// Adds a promise "p99_itl_ms=199", in place of one for the same figure. Throws UsageError, in the
// name of --promise.
void add_promise(const std::string& text, Advice& advice);

}  // namespace metronome
