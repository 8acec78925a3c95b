// SPDX-License-Identifier: Apache-2.0
#include "python/variant_results.h"

#include <chrono>
#include <fmt/core.h>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/names.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/unplaced_scenario.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "reports/html/report_html.h"
#include "reports/terminal/table.h"
#include "study/run/run_bands.h"
#include "study/run/fleet_records.h"
#include "study/run/variant_run.h"
#include "system/progress.h"
#include "tools/commands/run_choice.h"

namespace metronome::python {
namespace {

// More often nobody sees it, and each call takes the interpreter's lock.
constexpr auto kProgressInterval = std::chrono::milliseconds(50);

ScenarioFile read_source(const ScenarioSource& source, const RunChoice& choice) {
  if (source.text.empty()) {
    return load_scenario(source.name, choice.assignments, choice.seed, choice.backend);
  }
  return parse_given_scenario({source.name, source.text, source.has_lines}, choice.assignments,
                              choice.seed, choice.backend);
}

class Reporter {
 public:
  Reporter(const std::string& name, const VariantProgress& progress)
      : name_(name), progress_(progress) {}

  bool operator()(const RunProgress& now) {
    if (interrupting_signal() != 0) return false;
    const auto time = std::chrono::steady_clock::now();
    if (progress_ == nullptr || time < next_) return true;
    next_ = time + kProgressInterval;
    progress_(name_, now.num_ended, now.num_total);
    return true;
  }

 private:
  const std::string& name_;
  const VariantProgress& progress_;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now();
};

std::vector<RunResult> results_of(const VariantResults& results) {
  std::vector<RunResult> plain;
  for (const auto& one : results) plain.push_back(one->outcome.result);
  return plain;
}

ReportBuilder report_of(const VariantResults& results, const std::vector<std::string>& notes) {
  ReportBuilder report(results.size());
  for (const auto& one : results) {
    if (one->wanted.report) report.add(one->outcome);
  }
  for (const std::string& note : notes) report.add_note(printable(note));
  return report;
}

}  // namespace

VariantResults run_variants(const ScenarioSource& source, const RunChoice& choice,
                            const VariantProgress& progress) {
  check_backend(choice.backend);
  const ScenarioFile file = read_source(source, choice);
  const std::unique_ptr<Backend> backend = make_backend(choice.backend);
  std::vector<PreparedVariant> variants =
      prepare_variants(*backend, chosen_variants(file, choice.variants));
  VariantResults results;
  for (PreparedVariant& variant : variants) {
    const std::string& name = variant.scenario.name;
    require_steps(variant);  // for its tables
    const Reporter reporter(name, progress);
    VariantOutcome outcome = run_variant(*backend, variant, nullptr, reporter);
    add_bands(*backend, variant, reporter, outcome);
    outcome.result.info.scenario = printable(file.name);
    outcome.result.info.description = printable(file.description);
    const std::size_t num_requests = variant.workload->requests.size();
    if (progress != nullptr) progress(name, num_requests, num_requests);
    results.push_back(std::make_shared<VariantResult>(
        VariantResult{std::move(outcome), variant.scenario.results, file.has_variants}));
    variant.run.reset();
  }
  return results;
}

std::vector<std::string> save_results(const VariantResults& results, const std::string& path,
                                      const std::vector<std::string>& notes) {
  ResultFolder folder(path);
  std::vector<std::string> left_out;
  for (const auto& one : results) {
    const std::string& name = one->outcome.result.info.label;
    for (const std::string& file : write_variant(one->outcome, one->wanted, folder,
                                                 one->has_variants ? name : "", kMaxUnaskedBytes)) {
      left_out.push_back(fmt::format("{}: {}", name, file));
    }
  }
  ReportBuilder report = report_of(results, notes);
  if (!report.empty()) folder.write(kReportFile, report.html());
  folder.write(kSummaryFile, summary_text(results));
  throw_if_interrupted();
  folder.commit();
  return left_out;
}

std::string summary_text(const VariantResults& results) {
  return summary_json(results_of(results));
}

std::string table_text(const VariantResults& results) {
  return render_table(results_of(results), {});
}

std::string report_page(const VariantResults& results, const std::vector<std::string>& notes) {
  return report_of(results, notes).html();
}

}  // namespace metronome::python
