// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/report_page.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "reports/files/result_names.h"
#include "reports/files/result_reader.h"
#include "reports/html/report_html.h"
#include "reports/measured/measured_reader.h"
#include "reports/measured/measured_result.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/tune_report.h"

namespace metronome {

namespace fs = std::filesystem;

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

// A run that a client measured; its record, if its tokens have times.
struct ClientRun {
  MeasuredRun run;
  std::optional<RunRecord> record;
};

void add_client_runs(const std::string& path, std::optional<std::int64_t> run_number,
                     std::vector<ClientRun>& runs) {
  std::vector<MeasuredRun> measured;
  if (run_number) {
    measured.push_back(read_measured_run(path, run_number));
  } else {
    measured = read_measured_runs(path);
  }
  for (MeasuredRun& run : measured) {
    std::optional<RunRecord> record = measured_record(run);
    runs.push_back({std::move(run), std::move(record)});
  }
}

// The sentences of a client's result on what it lacks, each once.
void add_lacks(const std::vector<ClientRun>& runs, ReportBuilder& report) {
  std::set<std::string> told;
  for (const ClientRun& client : runs) {
    for (const std::string& lack : client.run.lacks) {
      const std::string note = "Of " + client.run.path + ": " + lack + ".";
      if (told.insert(note).second) report.add_note(note);
    }
    if (client.run.num_failed == 0) continue;
    report.add_note("Of " + client.run.path + ": " + measured_run_text(client.run) + ".");
  }
}

bool is_client_result(const std::string& path) {
  return !is_folder(path) || (!has_results(path) && is_measured(path));
}

}  // namespace

void check_replaceable(const std::string& option, const std::string& path, bool is_detailed) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    throw UsageError(option + ": " + path + " is a folder; allowed: the path of a file");
  }
  const fs::path folder = fs::path(path).parent_path();
  if (!folder.empty() && !fs::is_directory(folder, error)) {
    throw UsageError(option + ": " + path + ": no such folder: " + folder.string() +
                     "; allowed: a file in a folder that exists");
  }
  if (!fs::exists(path, error)) return;
  const std::string text = read_file(path).value_or("");
  constexpr std::string_view kMark = "<meta name=\"generator\" content=\"Metronome\">";
  if (!text.starts_with("<!DOCTYPE html>") || text.find(kMark) == std::string::npos) {
    throw UsageError(option + ": " + path +
                     " exists and is not a report; allowed: a report, or a new file");
  }
  if (!is_detailed && text.find("\"detail\":{") != std::string::npos) {
    throw UsageError(option + ": " + path + " draws steps and requests, but the runs have no " +
                     std::string(kStepsFile) + " or " + std::string(kRequestsFile) +
                     " to draw them again; allowed: another file, or results.steps: true and "
                     "results.requests: true in the scenario");
  }
}

ReportPage write_report_page(const std::vector<std::string>& paths, const std::string& out,
                             PageCheck check, std::optional<std::int64_t> run_number) {
  std::vector<std::string> folders;
  std::vector<TuneReport> tuned;
  std::vector<ClientRun> clients;
  std::size_t num_runs = 0;
  for (const std::string& path : paths) {
    if (is_tune_folder(path)) {
      tuned.push_back(read_tune_report(path));
      num_runs += tuned.back().runs.size();
    } else if (path_exists(path) && is_client_result(path)) {
      add_client_runs(path, run_number, clients);
    } else {
      for (std::string& folder : result_folders(path)) folders.push_back(std::move(folder));
    }
  }
  if (run_number && clients.empty()) {
    throw ConfigError("--run: has no effect; allowed: with the result of a benchmark's client");
  }
  num_runs += folders.size() + clients.size();
  const auto num_recorded =
      std::count_if(folders.begin(), folders.end(), has_record) +
      std::count_if(clients.begin(), clients.end(),
                    [](const ClientRun& client) { return client.record.has_value(); });
  if (check == PageCheck::Replaces) check_replaceable("--out", out, num_recorded > 0);
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
  for (const ClientRun& client : clients) {
    ReportBuilder::GetRecord record;
    if (client.record) record = [&]() -> const RunRecord& { return *client.record; };
    ResultContent result = measured_content(client.run);
    if (!client.run.model.empty()) models.insert(result.info.model);
    request_counts.insert(result.info.num_prompts);
    report.add(std::move(result), record);
  }
  add_lacks(clients, report);
  for (TuneReport& search : tuned) {
    report.add_answer(std::move(search.answer));
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
