// SPDX-License-Identifier: Apache-2.0
// report.html of result folders, of folders of `metronome tune`, and of results of benchmarks'
// clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace metronome {

struct ReportPage {
  std::size_t num_runs = 0;
  std::size_t num_recorded = 0;  // with files of steps and requests
  // The reason for which figures of the runs cannot be compared; empty: none is known.
  std::string incomparable;
};

// Writes the page of these paths; of a client's result with several runs, that of `run_number`, or
// all of them. Throws before it writes, if `may_replace` does so for a page with details, or
// without.
ReportPage write_report_page(const std::vector<std::string>& paths, const std::string& out,
                             void (*may_replace)(const std::string& out,
                                                 bool is_detailed) = nullptr,
                             std::optional<std::int64_t> run_number = std::nullopt);

}  // namespace metronome
