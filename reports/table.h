// The comparison of variants that `metronome run` prints: plain ASCII, at most 80 columns for
// names of up to 14 characters and figures of usual size.
#pragma once

#include <span>
#include <string>

#include "core/summary.h"
#include "reports/result_files.h"

namespace metronome {

struct TableOptions {
  bool use_color = false;  // ANSI escapes, for terminals
};

// Latencies, cadence, throughput, device use and request counts, then one digest a run. With more
// than one run the best value of a column is marked with `*`, provided that they completed the same
// requests of the same workload; otherwise a line says why nothing is marked.
std::string render_table(std::span<const RunResult> results, const TableOptions& options);

// One sentence: "412.3 ms at 12.08 s: request 57 waited while 24,150 tokens were prefilled, 12,000
// of them in one chunk of request 91". The time is when the gap began.
std::string describe_stall(const Stall& stall);

}  // namespace metronome
