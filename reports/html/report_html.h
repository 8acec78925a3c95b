// SPDX-License-Identifier: Apache-2.0
// report.html: one file with figures, table, formulas and configurations of one or several runs. It
// needs no network. Without scripts it shows everything except figures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text_block.h"
#include "core/metrics/first_tokens.h"
#include "core/metrics/run_record.h"
#include "reports/files/result_files.h"
#include "reports/html/report_choice.h"
#include "reports/html/report_data.h"

namespace metronome {

struct ReportRun {
  std::string name;  // displayed; should be unique in the report
  ResultContent result;
  std::string detail_json;               // report_detail(); empty: no detailed figures
  bool is_selected = true;               // drawn when the page opens; a reader may select others
  std::vector<FirstTokenRow> late = {};  // where the time to first tokens went; empty: unknown
};

struct ReportText {
  std::string title = {};
  std::string description = {};        // may be empty
  std::vector<TextBlock> answer = {};  // at the start of the page; empty: there was no question
  // Sentences about what the report leaves out or about unusual input.
  std::vector<std::string> notes = {};
};

// Makes equal names of runs differ. Appends the backend if it differs, then the settings in which
// the runs differ. Appends a number if names are still equal.
void make_names_differ(std::vector<ReportRun>& runs);

// The HTML file. Texts of the runs are escaped. Without runs it has the answer alone.
std::string report_html(const ReportText& text, std::span<const ReportRun> runs);

struct VariantOutcome;

// Collects the runs of a report one by one, so that records need not be kept.
class ReportBuilder {
 public:
  // For `num_runs` runs. Of the runs with a record, the first kMaxDetailed of ranked_for_detail()
  // are drawn in detail, each within its share. The others are kept as sketches.
  explicit ReportBuilder(std::size_t num_runs)
      : limits_(report_limits(std::min(num_runs, kMaxDetailed))),
        sketch_limits_(num_runs > kMaxDetailed ? std::optional(sketch_limits(num_runs))
                                               : std::nullopt) {}
  static constexpr std::size_t kMaxDetailed = 8;

  bool empty() const { return runs_.empty(); }
  // `record` returns the run's record. An empty function means that there is no record.
  using GetRecord = std::function<const RunRecord&()>;
  // `name`: of the run in the report; empty: its label.
  void add(ResultContent result, const GetRecord& record, const std::string& name = {});
  // A run, and the replicas whose steps it kept.
  void add(const VariantOutcome& outcome);
  // A sentence at the start of the report.
  void add_note(std::string note) { notes_.push_back(std::move(note)); }
  // The answer, behind those added before.
  void add_answer(std::vector<TextBlock> blocks) { append_blocks(std::move(blocks), answer_); }
  std::string html();

 private:
  // Of a run of recorded_. Once false, it stays false.
  bool may_be_drawn(std::size_t recorded) const;
  // Gives the runs that are drawn when the page opens their details, and returns why they are.
  std::vector<DetailChoice> select();
  std::vector<std::string> detail_notes(std::span<const DetailChoice> drawn) const;

  ReportLimits limits_;
  std::optional<ReportLimits> sketch_limits_;
  std::vector<ReportRun> runs_;               // with sketches
  std::vector<std::string> details_;          // of each run that may be drawn in detail; else empty
  std::vector<std::size_t> recorded_;         // runs with a record,
  DetailRanking ranking_;                     // in the same order
  std::vector<std::size_t> held_;             // of recorded_: those with details
  std::size_t num_held_last_ = kMaxDetailed;  // after details were last dropped
  std::vector<std::string> scenarios_;
  std::set<std::string> known_scenarios_;  // those of scenarios_
  std::string description_;                // common to all runs; empty if they differ
  std::vector<TextBlock> answer_;
  std::vector<std::string> notes_;
};

// Escapes `text` for HTML content and quoted attributes.
std::string html_text(std::string_view text);

}  // namespace metronome
