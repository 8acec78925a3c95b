// report.html: one file with figures, table, formulas and configurations of a run or of several
// side by side. It needs no network, and without scripts it still shows everything but figures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/run_record.h"
#include "reports/files/result_files.h"
#include "reports/html/report_choice.h"
#include "reports/html/report_data.h"

namespace metronome {

struct ReportRun {
  std::string name;         // shown; the runs of a report should differ in it
  std::string result_json;  // the text of its result.json
  std::string detail_json;  // report_detail(); empty: its figures only
};

struct ReportText {
  std::string title;
  std::string description;  // may be empty
  // Sentences about what the report leaves out or what was odd about its input.
  std::vector<std::string> notes;
};

// Runs that share a name get behind it their backend where that differs, then the settings in which
// they differ, and where there are none a number.
void make_names_differ(std::vector<ReportRun>& runs);

// The file. Whatever stands in the runs' texts is shown as text. Throws ConfigError for a
// result_json that is none.
std::string report_html(const ReportText& text, std::span<const ReportRun> runs);

// Collects the runs of a report one by one, so that no record has to be kept.
class ReportBuilder {
 public:
  // Of so many runs; of those with a record the first kMaxDetailed of ranked_for_detail() are drawn
  // in detail, each within its share.
  explicit ReportBuilder(std::size_t num_runs)
      : limits_(report_limits(std::min(num_runs, kMaxDetailed))) {}
  static constexpr std::size_t kMaxDetailed = 8;

  bool empty() const { return runs_.empty(); }
  // `record` gives the run's record, and is called only if the run may be drawn in detail; it may
  // be empty: there is none.
  using GetRecord = std::function<const RunRecord&()>;
  void add(const RunInfo& info, std::string result_json, const GetRecord& record);
  std::string html();

 private:
  std::vector<std::string> detail_notes(std::span<const DetailChoice> drawn) const;

  ReportLimits limits_;
  std::vector<ReportRun> runs_;
  std::vector<std::size_t> recorded_;        // runs with a record,
  std::vector<DetailCandidate> candidates_;  // and what they are chosen by
  std::vector<std::string> scenarios_;
  std::string description_;  // what all runs say; empty where they differ
};

// `text` for HTML content and quoted attributes.
std::string html_text(std::string_view text);

}  // namespace metronome
