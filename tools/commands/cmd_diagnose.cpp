// SPDX-License-Identifier: Apache-2.0
// `metronome diagnose`: why tokens of a run came late, and which prefill delayed other requests.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/core.h>
#include <iostream>
#include <memory>
#include <optional>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/run/prepared_variant.h"
#include "engines/arguments/engine_settings.h"
#include "engines/command/pasted_command.h"
#include "engines/log/log_dialect.h"
#include "engines/log/log_text.h"
#include "engines/vllm/iteration_log.h"
#include "reports/compare/comparable.h"
#include "reports/files/engine_limits.h"
#include "reports/files/result_reader.h"
#include "reports/measured/measured_reader.h"
#include "reports/terminal/cache_pressure.h"
#include "reports/terminal/client_findings.h"
#include "reports/terminal/diagnosis.h"
#include "reports/terminal/log_facts.h"
#include "reports/terminal/log_gaps.h"
#include "reports/terminal/text.h"
#include "study/run/variant_run.h"
#include "study/what_if/causes.h"
#include "study/what_if/what_if.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/diagnose_finding.h"
#include "tools/commands/diagnose_help.h"
#include "tools/commands/diagnose_log.h"
#include "tools/commands/diagnose_notes.h"
#include "tools/commands/finding_page.h"
#include "tools/commands/goal_options.h"
#include "tools/commands/report_page.h"
#include "tools/commands/run_choice.h"
#include "tools/commands/scenario_choice.h"

namespace metronome {
namespace {

constexpr CommandText kDiagnoseText = {
    .name = "diagnose",
    .arguments = "RUN [OPTION...] | --command TEXT --gpu NAME [OPTION...]",
    .summary =
        "Splits every inter-token latency (ITL) and every time to a first token (TTFT) of a run "
        "into\n"
        "its causes, lists the longest stalls and the latest first tokens, ranks prefill chunks "
        "by\n"
        "their head-of-line blocking, and finds the smallest change of settings that keeps "
        "limits.\n",
    .examples = kDiagnoseExamples,
    .file_name = "RUN",
    .file_kind = "result folder or log",
    .files = FileCount::AtMostOne};

OptionList option_list(DiagnoseOptions& options, ScenarioOptions& scenario) {
  OptionList list = {
      {"top N", &options.max_entries, "stalls, chunks and requests to list (default: 5)",
       EmptyText::Refused, WholeRange{1, 10'000}},
      {"hardware NAME", &options.hardware,
       "GPU that the replay simulates (default: `hardware` of the scenario)"},
      {"scenario FILE", &options.scenario,
       "scenario of a log: its requests are replayed with its settings and others"},
      {"variant NAME", &options.variant, "variant of --scenario"},
      {"flags FLAGS", &options.flags,
       "engine flags that replace those in the log: '--max-num-seqs 64'"},
      {"iterations RANGE", &options.iterations,
       "iterations of a vLLM log to diagnose: FIRST:LAST by their numbers in it; either end may "
       "be left out"},
      {"engine NAME", &options.engine, "the engine to read, if a log has lines of several"},
      {"save FOLDER", &options.save,
       "write the requests, settings and step times of a log as a scenario"},
      {"run N", &options.run_number,
       "the run of a client's result with several (default: the only one)", EmptyText::Refused,
       WholeRange{1, 1'000'000}},
      {"no-replay", &options.has_no_replay, "do not search for settings without the stall"},
      {"json", &options.wants_json, "print JSON: a list with one object per run"},
      {"html FILE", &options.page,
       "also write a page: question, answer, flags to copy, what shows it, figures"},
  };
  add_goal_options(options.targets, list);
  add_scenario_options(scenario, list, false);
  std::erase_if(list, [](const CommandOption& option) { return option.syntax == "requests N"; });
  list.push_back({"requests N|FILE", &options.requests,
                  "number of requests; or a client's result with the requests of a log, whose "
                  "lengths and starts are then exact"});
  return list;
}

// "results/NAME.diagnosis.html", beside the scenario.
std::string page_of_scenario(const std::string& scenario) {
  return std::filesystem::path(scenario).replace_extension(".diagnosis.html").string();
}

// A scenario without a file: the one to run, or the one of a log, whose arguments it has.
void choose_scenario_of(const CommandLine& line, ScenarioOptions& scenario,
                        DiagnoseOptions& options) {
  CommandLine none = line;
  none.files.clear();
  if (!line.files.empty() && !scenario.is_given()) return;
  if (!options.scenario.empty()) {
    throw UsageError("--scenario: contradicts the options that describe one; allowed: one of them");
  }
  if (!line.files.empty()) {
    check_input(options.run, "a result folder, or the log of a server");
    if (is_folder(options.run)) {
      throw UsageError("diagnose: " + printable(options.run) +
                       " has its own scenario; allowed: options that describe one without a "
                       "folder, or with a log");
    }
    if (!scenario.request.describes_requests() && is_iteration_log(options.run)) {
      options.described = scenario.request;  // the requests are the log's
      return;
    }
    std::string& command = scenario.request.command;
    if (command.empty() && scenario.request.model.empty()) command = "@" + options.run;
  }
  scenario.request.engine = options.engine;
  scenario.request.has_one_engine = true;
  ChosenScenario chosen = choose_scenario(kDiagnoseText, none, scenario, "");
  options.is_composed = true;
  options.scenario = std::move(chosen.path);
  if (options.page.empty()) options.page = page_of_scenario(options.scenario);
  options.notes = std::move(chosen.notes);
}

// --requests is a number, as in other commands, or a file.
void resolve_requests(DiagnoseOptions& options, ScenarioOptions& scenario) {
  constexpr std::int64_t kMost = 10'000'000;
  const auto count = number_in<std::int64_t>(options.requests);
  if (!count) return;
  if (*count < 1 || *count > kMost) {
    throw UsageError(fmt::format(
        "--requests: {} is not valid; allowed: a number from 1 to {}, or a client's result",
        printable(options.requests), kMost));
  }
  scenario.request.num_requests = *count;
  options.requests.clear();
}

// nullopt if help was requested and printed.
std::optional<DiagnoseOptions> parse_diagnose(const Arguments& arguments) {
  DiagnoseOptions options;
  ScenarioOptions scenario;
  const auto line = parse_command(kDiagnoseText, option_list(options, scenario), arguments);
  if (!line) return std::nullopt;
  resolve_requests(options, scenario);
  if (!line->files.empty()) options.run = line->file();
  if (options.scenario.empty() && !options.variant.empty()) {
    throw UsageError("--variant: has no effect; allowed: with --scenario");
  }
  if (!options.engine.empty() && find_log_dialect(options.engine) == nullptr) {
    throw UsageError("--engine: '" + printable(options.engine) +
                     "' is not valid; allowed: " + log_dialect_names());
  }
  if (const auto share = options.targets.itl_share; share && !is_known_share(*share)) {
    throw UsageError("--target-itl-share: " + ms_text(*share) +
                     " is not valid; allowed: 0.5, 0.9, 0.95, 0.99 or 1");
  }
  choose_scenario_of(*line, scenario, options);
  return options;
}

// The causes in the record, where the run says its settings.
std::vector<Cause> causes_of_run(const StoredRun& run) {
  const RunInfo& info = run.result.info;
  if (info.config.is_null()) return {};
  const Scenario scenario = scenario_of_config(run, info.config, {});
  return find_causes({.record = &run.record,
                      .summary = &run.result.summary,
                      .scenario = &scenario,
                      .num_blocks = info.num_blocks,
                      .is_simulated = info.backend == kBackendNames[0]});
}

// A fleet's settings are not searched. Where its router made first tokens late, others are tried.
void compare_routers(const StoredRun& run, const DiagnoseOptions& options, Finding& finding) {
  finding.notes.push_back(
      "The run had several engines: no other settings of them are tried. `metronome tune` compares "
      "settings, routers and numbers of replicas.");
  const auto is_routers = [](const Cause& cause) { return cause.name == "router"; };
  const bool is_late = std::any_of(finding.causes.begin(), finding.causes.end(), is_routers);
  if (!is_late || options.has_no_replay) return;
  const Distribution& before = run.result.summary.ttft;
  for (const char* const router : {"round_robin", "least_loaded", "power_of_two"}) {
    if (run.result.info.config.at("fleet").at("router") == router) continue;
    const std::vector<Setting> changes = {setting_of("fleet.router", router)};
    try {
      const Scenario scenario = scenario_of_config(run, run.result.info.config, changes);
      const Distribution after = run_scenario(router, scenario).result.summary.ttft;
      finding.notes.push_back(
          fmt::format("With the router {}, simulated: TTFT p50 {} -> {} ms, p99 {} -> {} ms.",
                      router, ms_text(before.p50_ms), ms_text(after.p50_ms), ms_text(before.p99_ms),
                      ms_text(after.p99_ms)));
    } catch (const ConfigError&) {
      continue;  // the scenario has settings that only its own router reads
    }
  }
}

Finding examine_run(const StoredRun& run, const DiagnoseOptions& options) {
  const RunInfo& info = run.result.info;
  const Summary& summary = run.result.summary;
  Finding finding;
  finding.title = info.label;
  finding.facts = {info.model + " on " + info.hardware + ", policy " + info.policy + ", backend " +
                       info.backend + ", " + count_text(summary.num_requests, "request") + ", " +
                       count_text(summary.num_steps, "step"),
                   itl_text(summary.itl), ttft_text(summary.ttft)};
  if (const std::string rates = rates_text(summary.rates); !rates.empty()) {
    finding.facts.push_back(rates);
  }
  finding.itl = summary.itl;
  const SloConfig limits = with_options(info.slo, options.targets);
  finding.limit_ms = limits.itl_ms;
  finding.diagnosis =
      diagnose(run.record, summary.itl,
               {.itl_ms = limits.itl_ms, .ttft_ms = limits.ttft_ms, .engine = engine_limits(info)},
               options.max_entries);
  if (finding.diagnosis.is_estimated) {
    finding.notes.push_back(
        "The split of a mixed step into decode and prefill is an estimate from the steps without "
        "prefill.");
  }
  for (std::string& note : slow_decode_notes(finding.diagnosis.slow, "step", false)) {
    finding.notes.push_back(std::move(note));
  }
  if (const std::int64_t lost = summary.failed + summary.unfinished; lost > 0) {
    finding.notes.push_back(count_text(lost, "request") +
                            " did not complete; the tables include their gaps, the "
                            "percentiles do not.");
  }
  if (std::string note = preemption_note(finding.diagnosis, info.policy, sets_pool(info));
      !note.empty()) {
    finding.notes.push_back(std::move(note));
  }
  if (std::string note = draft_note(summary); !note.empty()) {
    finding.notes.push_back(std::move(note));
  }
  finding.causes = causes_of_run(run);
  if (run.record.replicas.empty()) {
    replay(run, options, "", finding);
  } else {
    compare_routers(run, options, finding);
  }
  return finding;
}

// A given option that only a log has; nullptr: none.
const char* option_of_logs(const DiagnoseOptions& options) {
  if (!options.scenario.empty()) return "--scenario";
  if (!options.flags.empty()) return "--flags";
  if (options.iterations) return "--iterations";
  if (!options.requests.empty()) return "--requests";
  if (!options.save.empty()) return "--save";
  return options.engine.empty() ? nullptr : "--engine";
}

// A client's result has no settings to change, and no steps.
int diagnose_client(const DiagnoseOptions& options) {
  const char* option = option_of_logs(options);
  if (option == nullptr && !options.page.empty()) option = "--html";
  if (option == nullptr && !options.hardware.empty()) option = "--hardware";
  if (option != nullptr) {
    throw UsageError(std::string(option) + ": has no effect, as " + options.run +
                     " is the result of a benchmark's client; allowed: with a log");
  }
  const MeasuredRun run = read_measured_run(options.run, options.run_number);
  const ClientFindings findings = examine_client(run, options.targets.itl_ms, options.max_entries);
  if (!options.wants_json) {
    std::cout << client_findings_text(run, findings);
    return kExitDone;
  }
  JsonText json(JsonText::Style::Indented);
  json.begin_array();
  append_client_findings(run, findings, json);
  json.end_array();
  std::cout << json.view() << '\n';
  return kExitDone;
}

}  // namespace

int diagnose_command(const Arguments& arguments) {
  const std::optional<DiagnoseOptions> options = parse_diagnose(arguments);
  if (!options) return kExitDone;
  const bool is_scenario = options->run.empty();
  if (!is_scenario) {
    check_input(options->run,
                "a result folder, the log of a server, or the result of a "
                "benchmark's client");
  }
  const bool is_log = !is_scenario && !is_folder(options->run);
  if (!is_log && options->has_no_replay && !options->hardware.empty()) {
    throw UsageError("--hardware: has no effect with --no-replay; allowed: one of them");
  }
  if (!options->hardware.empty()) {  // also where nothing is replayed
    find_hardware(options->hardware, {std::make_shared<const std::string>("--hardware"), 0});
  }
  if (!is_scenario && is_measured(options->run)) return diagnose_client(*options);
  if (options->run_number && options->requests.empty()) {
    throw UsageError("--run: has no effect; allowed: with the result of a benchmark's client");
  }
  const char* option = is_scenario || is_log ? nullptr : option_of_logs(*options);
  if (option != nullptr) {
    throw UsageError(std::string(option) + ": has no effect, as " + options->run +
                     " has its own scenario; allowed: with a log");
  }
  if (!options->page.empty()) check_replaceable("--html", options->page, !is_log);
  JsonText json(JsonText::Style::Indented);
  json.begin_array();
  bool is_first = true;
  const std::vector<std::string> folders =
      is_scenario || is_log ? std::vector<std::string>() : result_folders(options->run);
  FindingPage page(std::max<std::size_t>(folders.size(), 1));
  const auto report = [&](const Finding& finding, const StoredRun* run) {
    if (!options->page.empty()) page.add(finding, run);
    if (options->wants_json) return append_finding(finding, json);
    std::cout << (is_first ? "" : "\n\n") << finding_text(finding) << std::flush;
    is_first = false;
  };
  if (is_scenario) {
    const StoredRun run = run_scenario(options->scenario, chosen_variant(*options, {}));
    Finding finding = examine_run(run, *options);
    finding.notes.insert(finding.notes.begin(), options->notes.begin(), options->notes.end());
    report(finding, &run);
  } else if (is_log) {
    EngineLog log = read_engine_log(options->run, find_log_dialect(options->engine));
    if (options->iterations) keep_iterations(parse_iteration_range(*options->iterations), log);
    report(examine_log(log, *options), nullptr);
  }
  for (const std::string& folder : folders) {
    const StoredRun run = read_result(folder);
    require_steps(run);
    report(examine_run(run, *options), &run);
  }
  if (!options->page.empty()) replace_file(options->page, page.html());
  json.end_array();
  if (options->wants_json) {
    std::cout << json.view() << '\n';
  } else if (options->is_composed) {
    std::cout << "\nscenario: " << printable(options->scenario)
              << "\npage: " << printable(options->page) << '\n';
  }
  return kExitDone;
}

}  // namespace metronome
