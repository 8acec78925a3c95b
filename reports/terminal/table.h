// SPDX-License-Identifier: Apache-2.0
// The comparison of variants that `metronome run` prints. Plain ASCII, at most 80 columns for names
// of up to 14 characters and figures of usual size.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/metrics/summary.h"
#include "reports/files/result_files.h"

namespace metronome {

struct TableOptions {
  bool use_color = false;  // ANSI escapes, for terminals
};

// Properties that must be equal before a figure of one run can be called better than the other's.
struct ComparedRun {
  std::string workload;  // any text that is equal for equal requests
  std::array<double, 4> slo_limits_ms{};
  std::int64_t completed = 0;
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;

  auto operator<=>(const ComparedRun&) const = default;
};

// For ComparedRun: the value of each kind of limit, infinite if there is none.
std::array<double, 4> slo_limits_ms(const SloConfig& slo);

// Why the figures of the runs are not comparable; empty if they are.
std::string_view incomparable_because(std::span<const ComparedRun> runs);

// Latencies, cadence, throughput, device use and request counts, then one digest per run. With more
// than one run, `*` marks the best value of a column if the runs are comparable; otherwise a line
// explains why nothing is marked.
std::string render_table(std::span<const RunResult> results, const TableOptions& options);

// One sentence: "412.3 ms at 12.08 s: request 57 waited while 24,150 tokens were prefilled, 12,000
// of them in one chunk of request 91". The time is the beginning of the gap.
std::string describe_stall(const Stall& stall);

}  // namespace metronome
