// SPDX-License-Identifier: Apache-2.0
// `metronome validate`: compares a simulated run with a measured one.
#include <fmt/core.h>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json_place.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/config/catalogue.h"
#include "core/config/config_writer.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "core/workload/workload_config.h"
#include "engines/log/engine_log.h"
#include "reports/compare/comparable.h"
#include "reports/compare/validation.h"
#include "reports/measured/measured_reader.h"
#include "reports/terminal/text.h"
#include "sim/simulation.h"
#include "study/recorded/pinned_run.h"
#include "study/recorded/validate_log.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/simulated_run.h"

namespace metronome {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr const char* kValidateExamples =
    "MEASURED is a result folder of one run (`--backend=cpu` or `--backend=cuda`), the result of "
    "a\n"
    "benchmark's client, or a request log: JSON Lines with input_toks, output_toks, queued_ts,\n"
    "first_token_ts and last_token_ts, in seconds. Clients are vLLM's and SGLang's benchmarks,\n"
    "AIPerf, guidellm, inference-perf, llmperf and genai-perf: a file, or the folder with all "
    "files\n"
    "of a run. The content tells which. --run chooses one of several runs.\n"
    "SIMULATED is a result folder of one run of the same workload: another model, another number\n"
    "of requests or other lengths are an error unless --allow-differences is given.\n"
    "\n"
    "The command compares:\n"
    "  decisions   chunk by chunk if both runs recorded their steps, else by the instants of\n"
    "              first and last tokens\n"
    "  step times  the time of each measured step with the prediction of SIMULATED's cost model\n"
    "  latencies   TTFT, TPOT, ITL and E2EL at mean, p50, p90, p95 and p99\n"
    "An error is simulated / measured - 1. Its band has 95 of 100 resamples of the requests.\n"
    "\n"
    "MEASURED may also be a log with vLLM's iterations (--enable-logging-iteration-details). The\n"
    "command then schedules the requests of SIMULATED along the log and prints the first\n"
    "iteration that differs. A log may begin with a warm-up: the requests begin where most\n"
    "iterations match, or at the first one of --iterations.\n"
    "\n"
    "A request log has no steps. The command then simulates its requests again, with steps that\n"
    "end at the instants of its tokens, and prints each step that cannot have ended then. TTFT\n"
    "and E2EL begin with the arrival. For a request log they begin when the engine next looked at\n"
    "its input, as queued_ts does.\n"
    "\n"
    "examples:\n"
    "  metronome run scenarios/cpu.yaml --backend=cpu --out results/real\n"
    "  metronome run scenarios/cpu.yaml --out results/predicted\n"
    "  metronome validate results/real/chunked results/predicted/chunked\n"
    "  metronome validate served.yaml --measured benchmarks.json --run 2\n"
    "\n"
    "exit codes: 0 done, 1 decisions differ and --same-decisions was given, 2 bad input\n";

constexpr CommandText kValidateText = {
    .name = "validate",
    .arguments = "MEASURED SIMULATED [OPTION...] | SCENARIO --measured FILE [OPTION...]",
    .summary = "Compares a measured run with a simulated one of the same workload.\n",
    .examples = kValidateExamples,
    .file_name = "MEASURED SIMULATED",
    .file_kind = "run",
    .files = FileCount::OneOrMore};

struct ValidateOptions {
  std::string measured;
  std::string simulated;      // a result folder, or with --measured a scenario
  std::string measured_file;  // of --measured
  std::string scenario;
  std::optional<double> after_s;
  std::optional<std::string> iterations;
  std::optional<std::int64_t> run_number;  // of a client's result
  bool allows_differences = false;
  bool needs_same_decisions = false;
  bool wants_json = false;
};

// The comparisons; absent if the runs lack the information.
struct Validation {
  RunDifferences differences;
  std::optional<DecisionComparison> decisions;
  std::optional<TimestampComparison> timestamps;
  // The timestamps under the step times of a request log, if both runs have the same requests.
  std::optional<PinnedRun> pinned;
  std::optional<TimestampComparison> pinned_timestamps;
  std::string why_not_pinned;  // empty if pinned or not applicable
  std::vector<RegimeError> step_times;
  std::optional<double> after_s;  // figures cover requests with a later first token
  FigureComparison figures;

  // With its own step times, a simulated run may put tokens into other steps although all decisions
  // are the same.
  const std::optional<TimestampComparison>& decisive_timestamps() const {
    return pinned ? pinned_timestamps : timestamps;
  }
  bool compares_decisions() const {
    return decisions || (decisive_timestamps() && decisive_timestamps()->num_timestamps > 0);
  }
  bool has_same_decisions() const {
    return !(decisions && decisions->first_difference) &&
           !(pinned && !pinned->contradictions.empty()) &&
           !(decisive_timestamps() && decisive_timestamps()->num_violated > 0);
  }
};

std::optional<ValidateOptions> parse_validate(const Arguments& arguments) {
  ValidateOptions options;
  const OptionList option_list = {
      {"scenario FILE", &options.scenario,
       "the scenario file of SIMULATED, if its trace is not found from the current folder"},
      {"measured FILE", &options.measured_file,
       "compare this with a simulation of SCENARIO, which is run first: a client's result, a "
       "request log or a result folder, as MEASURED"},
      {"run N", &options.run_number,
       "the run of MEASURED, if it is a client's result with several (default: the only one)",
       EmptyText::Refused, WholeRange{1, 1'000'000}},
      {"after SECONDS", &options.after_s,
       "compare figures only for requests whose first token came later than this in MEASURED",
       EmptyText::Refused, RealRange{0, kMaxSeconds, "seconds"}},
      {"allow-differences", &options.allows_differences,
       "compare runs of different models or requests, too"},
      {"iterations RANGE", &options.iterations,
       "iterations of a log to compare: FIRST:LAST by their numbers in it; either end may be left "
       "out (default: those from which the requests of SIMULATED fit)"},
      {"same-decisions", &options.needs_same_decisions, "exit with 1 when a decision differs"},
      {"json", &options.wants_json, "print JSON"},
  };
  const auto line = parse_command(kValidateText, option_list, arguments);
  if (!line) return std::nullopt;
  if (!options.measured_file.empty()) {
    if (line->files.size() != 1) {
      throw UsageError(
          fmt::format("--measured: got {} scenarios; allowed: one SCENARIO", line->files.size()));
    }
    options.measured = options.measured_file;
    options.simulated = line->file();
    if (options.scenario.empty()) options.scenario = options.simulated;
    return options;
  }
  if (line->files.size() != 2) {
    throw UsageError(fmt::format(
        "validate: got {} runs; allowed: MEASURED and SIMULATED (see `metronome validate --help`)",
        line->files.size()));
  }
  options.measured = line->files.front();
  options.simulated = line->files.back();
  return options;
}

[[noreturn]] void fail_no_folder(const ValidateOptions& options) {
  throw UsageError("SIMULATED: " + options.simulated +
                   " is not a result folder; allowed: a folder that `metronome run` wrote");
}

std::vector<PathField> workload_paths(WorkloadConfig& workload) {
  return path_fields([&workload](FieldVisitor& visitor) { visit_fields(visitor, workload); });
}

// The scenario that SIMULATED ran, to run it again. Paths of its trace are relative to the folder
// of that run, which may be another one.
Scenario scenario_to_rerun(const ValidateOptions& options, const StoredRun& run) {
  Scenario scenario = scenario_of(run);
  if (options.scenario.empty()) return scenario;
  const ScenarioFile file = load_scenario(options.scenario, {}, std::nullopt);
  WorkloadConfig placed = file.variants.front().workload;
  const std::vector<PathField> from = workload_paths(placed);
  const std::vector<PathField> to = workload_paths(scenario.workload);
  for (std::size_t i = 0; i < to.size(); ++i) *to[i].value = *from[i].value;
  return scenario;
}

void pin(const ValidateOptions& options, const ObservedRun& log, const StoredRun& simulated,
         Validation& validation) {
  Scenario scenario = scenario_to_rerun(options, simulated);
  for (const PathField& field : workload_paths(scenario.workload)) {
    if (field.value->empty() || path_exists(*field.value)) continue;
    validation.why_not_pinned = *field.value + " does not exist; allowed: --scenario FILE";
    return;
  }
  validation.pinned = run_pinned(scenario, log);
  validation.pinned_timestamps = compare_timestamps(log, validation.pinned->record);
}

StoredRun read_simulated(const ValidateOptions& options) {
  ObservedRun run = read_observed_run(options.simulated);
  if (!run.stored) fail_no_folder(options);
  require_steps(*run.stored);
  return std::move(*run.stored);
}

// Refuses runs whose figures say nothing about the simulation.
RunDifferences accepted_differences(const ValidateOptions& options, const ObservedRun& measured,
                                    const ObservedRun& simulated) {
  RunDifferences differences = differences_of(measured, simulated);
  if (measured.client) {
    for (const std::string& lack : measured.client->lacks) {
      differences.remarks.push_back("of " + printable(measured.path) + ": " + lack);
    }
  }
  if (differences.found.empty() || options.allows_differences) return differences;
  throw ConfigError(printable(measured.path) + ": is no run of the workload of " +
                    printable(simulated.path) + ": " +
                    printable(joined_differences(differences.found)) +
                    "; allowed: the same model and requests, or --allow-differences");
}

Validation validate(const ValidateOptions& options, const ObservedRun& measured,
                    const ObservedRun& simulated) {
  if (!simulated.stored) fail_no_folder(options);
  require_steps(*simulated.stored);
  Validation validation;
  validation.differences = accepted_differences(options, measured, simulated);
  const Scenario scenario = scenario_of(*simulated.stored);
  if (measured.stored && measured.stored->record.has_steps()) {
    const RunRecord& record = measured.stored->record;
    const StepShape shape = resolved_step_shape(scenario_of(*measured.stored));
    validation.decisions =
        compare_decisions(record, shape, simulated.stored->record, resolved_step_shape(scenario));
    if (scenario.names_step_times()) {
      const ModelConfig model = simulated_model(scenario);
      const std::unique_ptr<StepTimePredictor> predictor = make_step_predictor(scenario, model);
      validation.step_times = compare_step_times(record, shape, *predictor);
    }
  } else if (measured.format == RunFormat::RequestLog) {
    validation.timestamps = compare_timestamps(measured, simulated.stored->record);
  }
  if (options.after_s) {
    validation.after_s = options.after_s;
    const auto after_ns = static_cast<TimeNs>(*options.after_s * 1e9);
    validation.figures = compare_later_figures(measured, simulated, after_ns);
  } else {
    validation.figures = compare_figures(measured, simulated);
  }
  const bool can_pin = validation.timestamps && validation.figures.is_paired &&
                       simulated.num_incomplete == 0 && scenario.names_step_times();
  if (can_pin) pin(options, measured, *simulated.stored, validation);
  return validation;
}

// ---- text ----

std::string run_text(const ObservedRun& run) {
  std::string text = printable(run.path) + ", ";
  switch (run.format) {
    case RunFormat::Metronome:
      text += run.stored->record.has_steps()
                  ? run.stored->result.info.backend + ", policy " + run.stored->result.info.policy
                  : "measured by a client, which saw no steps";
      break;
    case RunFormat::Client: return text + measured_run_text(*run.client);
    case RunFormat::RequestLog: text += "request log"; break;
  }
  text += ", " + count_text(run.requests.size(), "request");
  if (run.num_incomplete > 0) {
    text += " (" + grouped_text(run.num_incomplete) + " incomplete ones left out)";
  }
  return text;
}

void print_decisions(const DecisionComparison& decisions) {
  if (!decisions.first_difference) {
    std::cout << "decisions   the same in all " << count_text(decisions.num_equal, "step") << "\n";
    return;
  }
  const DecisionComparison::Difference& difference = *decisions.first_difference;
  std::cout << "decisions   the same in " << count_text(decisions.num_equal, "step") << ", of "
            << grouped_text(decisions.num_steps_measured) << " measured and "
            << grouped_text(decisions.num_steps_simulated) << " simulated; then, in step "
            << difference.step << ":\n";
  const auto print = [](const char* name, const std::string& text) {
    std::cout << "  " << name << (text.empty() ? "no such step" : text) << '\n';
  };
  print("measured    ", difference.measured);
  print("simulated   ", difference.simulated);
}

// "all", "all but 3 of 358".
std::string all_but(std::int64_t num_others, std::int64_t num_all) {
  if (num_others == 0) return "all";
  return "all but " + grouped_text(num_others) + " of " + grouped_text(num_all);
}

void print_timestamps(const TimestampComparison& timestamps) {
  std::cout << all_but(timestamps.num_violated, timestamps.num_timestamps)
            << " lie in simulated steps of the same order\n";
  for (const std::string& violation : timestamps.violations) {
    std::cout << "  the " << violation << '\n';
  }
}

void print_instants(const Validation& validation) {
  std::cout << "decisions   of " << grouped_text(validation.timestamps->num_timestamps)
            << " first and last tokens " << grouped_text(validation.timestamps->num_linked)
            << " came at the same instant as others\n";
  if (!validation.pinned) {
    std::cout << "  simulated   ";
    print_timestamps(*validation.timestamps);
    if (!validation.why_not_pinned.empty()) {
      std::cout << "  not checked with the measured step times: "
                << printable(validation.why_not_pinned) << '\n';
    }
    return;
  }
  std::cout << "  simulated   "
            << all_but(validation.timestamps->num_violated, validation.timestamps->num_timestamps)
            << " lie in simulated steps of the same order\n"
            << "  with the measured step times   ";
  print_timestamps(*validation.pinned_timestamps);
  const PinnedRun& pinned = *validation.pinned;
  const auto num_contradictions = static_cast<std::int64_t>(pinned.contradictions.size());
  std::cout << "  " << all_but(num_contradictions, pinned.num_pinned()) << " of their steps, of "
            << grouped_text(static_cast<std::int64_t>(pinned.record.steps.size()))
            << " in all, can have ended at these instants\n";
  constexpr std::int64_t kMaxShown = 10;
  for (std::int64_t i = 0; i < std::min(num_contradictions, kMaxShown); ++i) {
    const Contradiction& contradiction = pinned.contradictions[static_cast<std::size_t>(i)];
    std::cout << "  step " << contradiction.step << ' ' << contradiction.what << '\n';
  }
}

std::string band_text(const FigureError& figure) {
  if (!figure.low) return "-";
  return signed_percent(*figure.low) + " to " + signed_percent(*figure.high);
}

void print_figures(const FigureComparison& figures) {
  Rows rows = {{"figure", "", "measured", "simulated", "error", "95 % band"}};
  const auto add = [&rows](const FigureError& error, std::string name, std::string of) {
    const double scale = error.figure->shown.scale;
    rows.push_back({std::move(name), std::move(of), fixed_text(scale * error.measured, 3),
                    fixed_text(scale * error.simulated, 3), signed_percent(error.error)});
  };
  std::string_view last;
  for (const FigureError& error : figures.latencies) {
    const bool is_next = error.metric() == last;
    add(error, is_next ? "" : std::string(error.metric()) + " " + error.figure->shown.unit,
        std::string(error.statistic()));
    rows.back().push_back(band_text(error));
    last = error.metric();
  }
  for (const FigureError& error : figures.others) {
    const std::string& unit = error.figure->shown.unit;
    add(error, std::string(error.metric()), (unit.starts_with('/') ? "1" : "") + unit);
    rows.back().emplace_back();
  }
  std::cout << '\n' << aligned_rows(rows) << '\n';
  const FigureError& worst = figures.worst();
  std::cout << "mean |error| of TTFT, TPOT and E2EL "
            << fixed_text(100 * figures.mean_abs_error(), 2) << " %; worst: " << worst.metric()
            << ' ' << worst.statistic() << ' ' << signed_percent(worst.error) << '\n';
  if (!figures.distances.empty()) {
    std::cout << "distance of distributions (Kolmogorov-Smirnov):";
    for (const MetricDistance& distance : figures.distances) {
      std::cout << ' ' << distance.metric << ' ' << fixed_text(distance.distance, 3);
    }
    std::cout << '\n';
  }
  if (!figures.has_requests) {
    std::cout << "measured figures are the client's own: there are no requests for bands and "
                 "distances\n";
  } else if (!figures.is_paired) {
    std::cout << "the requests are not the same in the same order: bands are of independent "
                 "samples\n";
  }
}

void print_text(const Validation& validation, const ObservedRun& measured,
                const ObservedRun& simulated) {
  std::cout << "measured    " << run_text(measured) << "\nsimulated   " << run_text(simulated)
            << '\n';
  for (const std::string& remark : validation.differences.remarks) {
    std::cout << "remark      " << printable(remark) << '\n';
  }
  for (const std::string& difference : validation.differences.found) {
    std::cout << "differs     " << printable(difference) << '\n';
  }
  if (validation.decisions) print_decisions(*validation.decisions);
  if (validation.timestamps) print_instants(validation);
  if (!validation.step_times.empty()) {
    std::cout << '\n' << step_error_table("step times", validation.step_times);
  }
  if (validation.after_s) {
    std::cout << "\nfigures of requests whose first token came later than "
              << fixed_text(*validation.after_s, 1) << " s in the measured run\n";
  }
  print_figures(validation.figures);
}

// ---- JSON ----

void append_figures(const char* key, const std::vector<FigureError>& figures, JsonText& json) {
  json.key(key).begin_array();
  for (const FigureError& figure : figures) {
    json.begin_object();
    json.field("metric", figure.metric());
    if (!figure.statistic().empty()) json.field("statistic", figure.statistic());
    json.field("measured", figure.measured);
    json.field("simulated", figure.simulated);
    json.field("error", figure.error);
    if (figure.low) {
      json.field("error_low", *figure.low);
      json.field("error_high", *figure.high);
    }
    json.end_object();
  }
  json.end_array();
}

void append_timestamps(const char* key, const std::optional<TimestampComparison>& timestamps,
                       JsonText& json) {
  if (!timestamps) return;
  json.key(key).begin_object();
  json.field("events", timestamps->num_timestamps);
  json.field("linked", timestamps->num_linked);
  json.field("violated", timestamps->num_violated);
  json.key("violations").begin_array();
  for (const std::string& text : timestamps->violations) json.value(text);
  json.end_array();
  json.end_object();
}

void append_decisions(const Validation& validation, JsonText& json) {
  if (const auto& decisions = validation.decisions) {
    json.key("decisions").begin_object();
    json.field("equal_steps", decisions->num_equal);
    json.field("measured_steps", decisions->num_steps_measured);
    json.field("simulated_steps", decisions->num_steps_simulated);
    if (const auto& difference = decisions->first_difference) {
      json.key("first_difference").begin_object();
      json.field("step", difference->step);
      json.field("measured", difference->measured);
      json.field("simulated", difference->simulated);
      json.end_object();
    }
    json.end_object();
  }
  append_timestamps("timestamps", validation.timestamps, json);
  append_timestamps("pinned_timestamps", validation.pinned_timestamps, json);
  if (const auto& pinned = validation.pinned) {
    json.key("pinned").begin_object();
    json.field("steps", static_cast<std::int64_t>(pinned->record.steps.size()));
    json.field("pinned_steps", pinned->num_pinned());
    json.key("contradictions").begin_array();
    for (const Contradiction& contradiction : pinned->contradictions) {
      json.begin_object();
      json.field("step", contradiction.step);
      json.field("what", contradiction.what);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
}

std::string json_of(const Validation& validation, const ObservedRun& measured,
                    const ObservedRun& simulated) {
  JsonText json(JsonText::Style::Indented);
  json.begin_object();
  json.field("measured", measured.path);
  if (measured.client) {
    json.field("client", measured.client->client);
    json.field("run", static_cast<std::int64_t>(measured.client->number));
    json.field("failed", measured.client->num_failed);
  }
  json.field("simulated", simulated.path);
  json.key("differences").begin_array();
  for (const std::string& difference : validation.differences.found) json.value(difference);
  json.end_array();
  json.key("remarks").begin_array();
  for (const std::string& remark : validation.differences.remarks) json.value(remark);
  json.end_array();
  append_decisions(validation, json);
  append_step_errors("step_times", validation.step_times, json);
  json.field("same_requests", validation.figures.is_paired);
  if (validation.after_s) json.field("after_s", *validation.after_s);
  json.field("mean_abs_error", validation.figures.mean_abs_error());
  append_figures("latencies", validation.figures.latencies, json);
  append_figures("throughputs", validation.figures.others, json);
  json.key("distances").begin_object();
  for (const MetricDistance& distance : validation.figures.distances) {
    json.field(distance.metric, distance.distance);
  }
  json.end_object();
  json.end_object();
  json.end_line();
  return std::string(json.view());
}

constexpr const char* kOtherMeasured =
    "; or a request log, the result of a benchmark's client, or a folder with results";

// A log that has no requests and no iterations is refused by its name.
ObservedRun read_measured(const std::string& path, std::optional<std::int64_t> run_number) {
  try {
    return read_observed_run(path, {.run_number = run_number});
  } catch (const ConfigError&) {
    if (!is_folder(path)) refuse_log_without_iterations(path, kOtherMeasured);
    throw;
  }
}

}  // namespace

int validate_command(const Arguments& arguments) {
  const auto options = parse_validate(arguments);
  if (!options) return kExitDone;
  if (is_iteration_log(options->measured)) {
    if (!options->measured_file.empty()) {
      throw UsageError("--measured: " + printable(options->measured) +
                       " is a log of iterations; allowed: `metronome validate LOG SIMULATED`");
    }
    if (options->after_s) {
      throw UsageError(
          "--after: has no effect with a log of iterations; allowed: a MEASURED with requests");
    }
    const StoredRun simulated = read_simulated(*options);
    LogValidationOptions of_log;
    of_log.allows_differences = options->allows_differences;
    if (options->iterations) of_log.iterations = parse_iteration_range(*options->iterations);
    const LogValidation validation =
        validate_log(options->measured, scenario_to_rerun(*options, simulated), of_log);
    options->wants_json ? void(std::cout << validation.json()) : validation.print();
    return options->needs_same_decisions && !validation.has_same_decisions() ? kExitRunFailed
                                                                             : kExitDone;
  }
  if (options->iterations) {
    if (!is_folder(options->measured)) {
      refuse_log_without_iterations(options->measured, kOtherMeasured);
    }
    throw UsageError("--iterations: has no effect; allowed: with a log of iterations");
  }
  const ObservedRun measured = read_measured(options->measured, options->run_number);
  const bool is_run_here = !options->measured_file.empty();
  if (!options->scenario.empty() && !is_run_here && measured.format != RunFormat::RequestLog) {
    throw UsageError(
        "--scenario: has no effect, as only the requests of a log are run again; allowed: a "
        "MEASURED that is a request log or a log of iterations");
  }
  const bool from_queue = measured.counts_from_queue;
  const ObservedRun simulated =
      is_run_here ? observed_run_of(simulated_run(options->simulated), from_queue)
                  : read_observed_run(options->simulated, {.from_queue = from_queue});
  const Validation validation = validate(*options, measured, simulated);
  if (options->needs_same_decisions && !validation.compares_decisions()) {
    throw UsageError(
        "--same-decisions: " + printable(measured.path) +
        " has no decisions to compare; allowed: a MEASURED that is a run with recorded "
        "steps, a request log or a log of iterations");
  }
  if (options->wants_json) {
    std::cout << json_of(validation, measured, simulated);
  } else {
    print_text(validation, measured, simulated);
  }
  const bool has_failed = options->needs_same_decisions && !validation.has_same_decisions();
  return has_failed ? kExitRunFailed : kExitDone;
}

}  // namespace metronome
