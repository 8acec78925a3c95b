// SPDX-License-Identifier: Apache-2.0
// report.html of result folders and of folders of `metronome tune`.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace metronome {

struct ReportPage {
  std::size_t num_runs = 0;
  std::size_t num_recorded = 0;  // with files of steps and requests
  // The reason for which figures of the runs cannot be compared; empty: none is known.
  std::string incomparable;
};

// Writes the page of these folders. Throws before it writes, if `may_replace` does so for a page
// with details, or without.
ReportPage write_report_page(const std::vector<std::string>& paths, const std::string& out,
                             void (*may_replace)(const std::string& out,
                                                 bool is_detailed) = nullptr);

}  // namespace metronome
