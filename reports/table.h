// The comparison of variants that `metronome run` prints: plain ASCII, at most 100 columns for
// names of up to 28 characters.
#pragma once

#include <span>
#include <string>

#include "core/summary.h"
#include "reports/result_files.h"

namespace metronome {

struct TableOptions {
  bool use_color = false;  // ANSI escapes, for terminals
};

// Latencies, cadence, throughput, device use and request counts, then one digest a run. The best
// value of a column is marked with `*` when there is more than one run.
std::string render_table(std::span<const RunResult> results, const TableOptions& options);

// One sentence: "412.3 ms at 12.08 s: request 57 waited while request 91 prefilled 6,144 tokens".
// The time is when the gap began.
std::string describe_stall(const Stall& stall);

}  // namespace metronome
