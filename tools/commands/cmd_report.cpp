// SPDX-License-Identifier: Apache-2.0
// `metronome report`: writes report.html again from result folders, also of several runs at once.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/config/config_reader.h"
#include "reports/files/result_files.h"
#include "reports/files/result_names.h"
#include "reports/terminal/text.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/report_page.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr CommandText kReportText = {
    .name = "report",
    .arguments = "RESULT... [OPTION...]",
    .summary =
        "Writes report.html from result folders: figures, table, formulas and configurations in\n"
        "one file that needs no network. One report compares several folders, and simulated with\n"
        "measured runs of the same variant, model and workload. It draws at most eight runs in\n"
        "detail, and names them with the reasons. A folder of `metronome tune` gives a row for "
        "each\n"
        "trial.\n"
        "The result of a benchmark's client (vLLM's or SGLang's benchmark, AIPerf, guidellm,\n"
        "inference-perf, llmperf, genai-perf) gives a row for each of its runs, alone or beside\n"
        "simulated runs.\n",
    .examples =
        "examples:\n"
        "  metronome report results/quickstart\n"
        "  metronome report results/quickstart/chunked-512 results/policies --out both.html\n"
        "  metronome report results/predicted benchmarks.json --run 2 --out measured.html\n",
    .file_name = "RESULT",
    .file_kind = "result folder or client's result",
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

}  // namespace

int report_command(const Arguments& arguments) {
  std::string out;
  std::optional<std::int64_t> run_number;
  const OptionList option_list = {
      {"out FILE", &out,
       "the file to write; replaces only a report (default: report.html in the folder that is "
       "RESULT, or in the current folder for a file or several results)"},
      {"run N", &run_number, "the run of a client's result with several (default: all of them)",
       EmptyText::Refused, WholeRange{1, 1'000'000}},
  };
  const auto line = parse_command(kReportText, option_list, arguments);
  if (!line) return kExitDone;
  if (out.empty()) {
    const std::string name(kReportFile);
    const bool is_one_folder = line->files.size() == 1 && is_folder(line->file());
    out = is_one_folder ? (fs::path(line->file()) / name).string() : name;
  }
  catch_signals();
  const ReportPage page = write_report_page(line->files, out, check_replaceable, run_number);
  std::cout << "report: " << printable(out) << ", " << count_text(page.num_runs, "run");
  if (page.num_recorded == 0) {
    std::cout << "; figures of single steps and requests are left out: no result has the times of "
                 "all tokens";
  }
  std::cout << '\n';
  if (!page.incomparable.empty()) {
    std::cout << "remark: the runs have " << printable(page.incomparable)
              << ": their figures cannot be compared with each other\n";
  }
  return kExitDone;
}

}  // namespace metronome
