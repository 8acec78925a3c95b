// SPDX-License-Identifier: Apache-2.0
// A run or log that `metronome diagnose` has examined, as text and as a page.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "reports/files/result_reader.h"
#include "reports/html/report_html.h"
#include "tools/commands/diagnose_finding.h"

namespace metronome {

// Wrapped at the terminal's width. Ends with a line break.
std::string finding_text(const Finding& finding);

// The page of `metronome diagnose --html`: of each finding the answer, then what shows it, then the
// flags to copy and how to check them; below, the figures of the runs.
class FindingPage {
 public:
  explicit FindingPage(std::size_t num_findings) : report_(num_findings) {}

  // `run`: which was examined; nullptr: a log, which has no figures.
  void add(const Finding& finding, const StoredRun* run);
  std::string html();

 private:
  std::string title_;  // of the first finding
  std::vector<TextBlock> answer_;
  ReportBuilder report_;
  bool has_runs_ = false;
};

}  // namespace metronome
