// SPDX-License-Identifier: Apache-2.0
// A run or log that `metronome diagnose` has examined, as text, as JSON and as a page.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "core/base/distribution.h"
#include "reports/files/result_reader.h"
#include "reports/html/report_html.h"
#include "reports/terminal/cache_pressure.h"
#include "reports/terminal/diagnosis.h"
#include "study/what_if/causes.h"
#include "study/what_if/what_if.h"

namespace metronome {

class JsonText;

// One run or log: its title, its findings, and remarks on the figures.
struct Finding {
  std::string title;
  std::vector<std::string> facts;
  Diagnosis diagnosis;
  std::vector<std::string> notes;
  Distribution itl;
  std::optional<double> limit_ms;
  std::vector<Cause> causes;
  std::optional<WhatIf> what_if;
  std::optional<CachePressure> pressure;  // of a log
  std::string engine_json;                // of a log
};

// Wrapped at the terminal's width. Ends with a line break.
std::string finding_text(const Finding& finding);

// Appends the finding as one JSON value.
void append_finding(const Finding& finding, JsonText& json);

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
