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
  const ReportPage page = write_report_page(line->files, out, PageCheck::Replaces, run_number);
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
