// SPDX-License-Identifier: Apache-2.0
// `metronome report`: writes report.html again from result folders, also of several runs at once.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/config/config_reader.h"
#include "reports/files/result_names.h"
#include "reports/files/result_reader.h"
#include "reports/html/report_html.h"
#include "reports/terminal/text.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/tune_report.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr CommandText kText = {
    .name = "report",
    .arguments = "DIR... [OPTION...]",
    .summary =
        "Writes report.html from result folders: figures, table, formulas and configurations in\n"
        "one file that needs no network. One report compares several folders, and simulated with\n"
        "measured runs of the same variant, model and workload. It draws at most eight runs in\n"
        "detail, and names them with the reasons. A folder of `metronome tune` gives a row for "
        "each\n"
        "trial.\n",
    .examples =
        "examples:\n"
        "  metronome report results/quickstart\n"
        "  metronome report results/quickstart/chunked-512 results/policies --out both.html\n",
    .file_name = "DIR",
    .file_kind = "result folder",
    .files = FileCount::OneOrMore};

// A report may only replace a report. It does not replace a detailed one if the runs no longer have
// the records to draw.
void check_replaceable(const std::string& path, bool is_detailed) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw UsageError("--out: " + path + " is a folder; allowed: the path of a file");
  }
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    throw UsageError("--out: " + path + ": no such folder: " + folder.string() +
                     "; allowed: a file in a folder that exists");
  }
  if (!fs::exists(path, error)) return;
  const std::string text = read_file(path).value_or("");
  if (!text.starts_with("<!DOCTYPE html>") ||
      text.find('"' + std::string(kResultSchemaKey) + '"') == std::string::npos) {
    throw UsageError("--out: " + path +
                     " exists and is not a report; allowed: a report, or a new file");
  }
  if (!is_detailed && text.find("\"detail\":{") != std::string::npos) {
    throw UsageError("--out: " + path + " draws steps and requests, but the runs have no " +
                     std::string(kStepsFile) + " or " + std::string(kRequestsFile) +
                     " to draw them again; allowed: another file, or results.steps: true and "
                     "results.requests: true in the scenario");
  }
}

// Why the figures of runs cannot be compared, whatever their settings; empty: nothing is known.
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

int report_command(const Arguments& arguments) {
  std::string out;
  const OptionList option_list = {
      {"out FILE", &out,
       "the file to write; replaces only a report (default: DIR/report.html, or report.html in the "
       "current folder for several folders)"},
  };
  const auto line = parse_command(kText, option_list, arguments);
  if (!line) return kExitDone;
  if (out.empty()) {
    const std::string name(kReportFile);
    out = line->files.size() == 1 ? (fs::path(line->file()) / name).string() : name;
  }
  std::vector<std::string> folders;
  std::vector<TuneReport> tuned;
  std::size_t num_runs = 0;
  for (const std::string& path : line->files) {
    if (is_tune_folder(path)) {
      tuned.push_back(read_tune_report(path));
      num_runs += tuned.back().runs.size();
    } else {
      for (std::string& folder : result_folders(path)) folders.push_back(std::move(folder));
    }
  }
  num_runs += folders.size();
  const auto num_recorded = std::count_if(folders.begin(), folders.end(), has_record);
  check_replaceable(out, num_recorded > 0);
  catch_signals();
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
    for (const std::string& point : search.refused) {
      report.add_note("Not a valid scenario, and not compared: " + point + ".");
    }
  }
  replace_file(out, report.html());
  std::cout << "report: " << printable(out) << ", " << count_text(num_runs, "run");
  if (num_recorded == 0) {
    std::cout << "; figures of single steps and requests are left out (no " << kStepsFile << " and "
              << kRequestsFile << ')';
  }
  std::cout << '\n';
  if (const std::string text = incomparable(models, request_counts); !text.empty()) {
    std::cout << "remark: the runs have " << printable(text)
              << ": their figures cannot be compared with each other\n";
  }
  return kExitDone;
}

}  // namespace metronome
