// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/report_page.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/names.h"
#include "core/base/number_text.h"
#include "reports/files/result_reader.h"
#include "reports/html/report_html.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/tune_report.h"

namespace metronome {
namespace {

// The reason for which figures of runs cannot be compared, whatever their settings; empty: none is
// known.
std::string incomparable(const std::set<std::string>& models,
                         const std::set<std::int64_t>& request_counts) {
  std::string text;
  if (models.size() > 1) {
    text = "different models (" +
           join_names(std::vector<std::string_view>(models.begin(), models.end())) + ")";
  }
  if (request_counts.size() > 1) {
    text += (text.empty() ? "" : " and ") + std::string("different numbers of requests (") +
            grouped_text(*request_counts.begin()) + " to " +
            grouped_text(*request_counts.rbegin()) + ")";
  }
  return text;
}

}  // namespace

ReportPage write_report_page(const std::vector<std::string>& paths, const std::string& out,
                             void (*may_replace)(const std::string& out, bool is_detailed)) {
  std::vector<std::string> folders;
  std::vector<TuneReport> tuned;
  std::size_t num_runs = 0;
  for (const std::string& path : paths) {
    if (is_tune_folder(path)) {
      tuned.push_back(read_tune_report(path));
      num_runs += tuned.back().runs.size();
    } else {
      for (std::string& folder : result_folders(path)) folders.push_back(std::move(folder));
    }
  }
  num_runs += folders.size();
  const auto num_recorded = std::count_if(folders.begin(), folders.end(), has_record);
  if (may_replace != nullptr) may_replace(out, num_recorded > 0);
  ReportBuilder report(num_runs);
  std::set<std::string> models;
  std::set<std::int64_t> request_counts;
  for (const std::string& folder : folders) {
    throw_if_interrupted();
    std::optional<StoredRun> run;
    ReportBuilder::GetRecord record;
    if (has_record(folder)) {
      record = [&]() -> const RunRecord& { return run.emplace(read_result(folder)).record; };
    }
    ResultContent result = read_result_content(folder);
    models.insert(result.info.model);
    request_counts.insert(result.info.num_prompts);
    report.add(std::move(result), record);
  }
  for (TuneReport& search : tuned) {
    for (TuneReportRun& run : search.runs) report.add(std::move(run.result), {}, run.name);
    if (!search.unfinished.empty()) {
      report.add_note(
          "The search was ended early. Not finished, and perhaps better or worse than "
          "their rows say: " +
          search.unfinished + ".");
    }
    for (std::string& note : search.notes) report.add_note(std::move(note));
    for (const std::string& point : search.refused) {
      report.add_note("Not a valid scenario, and not compared: " + point + ".");
    }
  }
  replace_file(out, report.html());
  return {num_runs, static_cast<std::size_t>(num_recorded), incomparable(models, request_counts)};
}

}  // namespace metronome
