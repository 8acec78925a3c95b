// The comparison of variants that `metronome run` prints: plain ASCII, at most 80 columns for
// names of up to 14 characters and figures of usual size.
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

// What has to be the same of two runs before one of their figures is called better.
struct ComparedRun {
  std::string workload;  // any text that is the same for the same requests
  std::array<double, 4> slo_limits_ms{};
  std::int64_t completed = 0;
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;

  auto operator<=>(const ComparedRun&) const = default;
};

// For ComparedRun: of each kind of limit its value, infinite where there is none.
std::array<double, 4> slo_limits_ms(const SloConfig& slo);

// Why the figures of the runs do not compare; empty when they do.
std::string_view incomparable_because(std::span<const ComparedRun> runs);

// Latencies, cadence, throughput, device use and request counts, then one digest a run. With more
// than one run the best value of a column is marked with `*`, provided that they compare; otherwise
// a line says why nothing is marked.
std::string render_table(std::span<const RunResult> results, const TableOptions& options);

// One sentence: "412.3 ms at 12.08 s: request 57 waited while 24,150 tokens were prefilled, 12,000
// of them in one chunk of request 91". The time is when the gap began.
std::string describe_stall(const Stall& stall);

}  // namespace metronome
