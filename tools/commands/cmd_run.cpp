// SPDX-License-Identifier: Apache-2.0
// `metronome run`: runs every variant of a scenario on a backend and writes the results.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fmt/core.h>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload_profile.h"
#include "reports/files/requests_stream.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "reports/files/step_log.h"
#include "reports/files/steps_stream.h"
#include "reports/html/report_html.h"
#include "reports/terminal/table.h"
#include "reports/terminal/text.h"
#include "study/run/fleet_records.h"
#include "study/run/run_bands.h"
#include "study/run/variant_run.h"
#include "system/heap.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/fleet_options.h"
#include "tools/commands/run_choice.h"
#include "tools/commands/scenario_choice.h"

namespace metronome {
namespace {

struct RunOptions {
  FleetOptions fleet;
  std::optional<std::int64_t> threads;
  ChosenScenario scenario;
  std::vector<std::string> assignments;
  std::vector<std::string> variants;  // names; empty = all
  std::string out;                    // empty = default_folder()
  std::optional<std::string> seed_text;
  std::optional<std::uint64_t> seed;
  std::string backend = "sim";
  bool is_quiet = false;
  bool is_verbose = false;
  bool wants_json = false;
  bool wants_bands = false;
  bool wants_step_log = false;
};

constexpr const char* kRunExamples =
    "examples:\n"
    "  metronome run scenarios/quickstart.yaml\n"
    "  metronome run scenarios/quickstart.yaml --set workload.arrivals.rate=20 --out results/fast\n"
    "  metronome run scenarios/quickstart.yaml --variant unchunked --trace-steps\n"
    "  metronome run scenarios/policies.yaml --set variants.static.scheduler.batch_wait_ms=200\n"
    "  metronome run scenarios/policies.yaml --json | python3 -m json.tool\n"
    "  metronome run scenarios/quickstart.yaml --backend=cpu\n"
    "  metronome run --command @start_server.sh --gpu h100 --rate 4 --chat\n"
    "\n"
    "exit codes: 0 done, 1 the run failed or a variant completed no request, 2 bad input, 130\n"
    "interrupted (129 by SIGHUP, 143 by SIGTERM); results are complete or absent, and a variant\n"
    "without a completed request has results, too\n";

OptionList option_list(RunOptions& options, ScenarioOptions& scenario) {
  OptionList list = {
      {"set KEY=VALUE", &options.assignments,
       "override a key (see `metronome list keys`); variants.NAME.KEY for one variant; repeatable"},
      {"backend NAME", &options.backend,
       "backend: sim (a cost model of `hardware`, the default), cpu (the model itself, on this "
       "machine's CPU) or cuda"},
      {"variant NAME", &options.variants, "run only this variant; repeatable"},
      {"out DIR", &options.out,
       "folder of the results; replaces only earlier results (default: results/SCENARIO, the "
       "scenario's path below the last folder named scenarios or else its name, with .BACKEND for "
       "a --backend other than sim and .NAME for each --variant)"},
      {"seed N", &options.seed_text, "override the scenario's seed"},
      {"json", &options.wants_json, "print only the summary, as JSON, on standard output"},
      {"bands", &options.wants_bands,
       "a range for each figure, from other seeds and from the error of step times: short for "
       "--set results.bands=4"},
      {"trace-steps", &options.wants_step_log, "print every step during the run"},
      {"quiet,q", &options.is_quiet, "print only errors"},
      {"verbose,v", &options.is_verbose, "print the resolved configuration"},
  };
  add_fleet_options(options.fleet, list);
  add_steps_option(options.fleet, list);
  list.push_back({"threads N", &options.threads,
                  "threads that advance the replicas of a fleet (default: 1); results are the same "
                  "bytes for any number",
                  EmptyText::Refused, WholeRange{1, 1024}});
  add_scenario_options(scenario, list);
  return list;
}

// Throws UsageError where no fleet would use the threads.
void check_threads(const RunOptions& options, const std::vector<Scenario>& chosen) {
  if (!options.threads) return;
  const bool has_fleet = std::any_of(chosen.begin(), chosen.end(), [](const Scenario& scenario) {
    return scenario.fleet.is_on();
  });
  if (has_fleet && options.backend == kBackendNames[0]) return;
  throw UsageError("--threads: no fleet is simulated; allowed: with --replicas or a section fleet");
}

constexpr CommandText kRunText = {
    .name = "run",
    .arguments = "SCENARIO [OPTION...] | --command TEXT --gpu NAME [OPTION...]",
    .summary =
        "Runs every variant of a scenario file, simulated or for real, prints a table that\n"
        "compares them, and writes their results.\n",
    .examples = kRunExamples,
    .file_name = "SCENARIO",
    .file_kind = "scenario file",
    .files = FileCount::AtMostOne};

// nullopt if help was requested and printed.
std::optional<RunOptions> parse_run(const Arguments& arguments) {
  RunOptions options;
  ScenarioOptions scenario;
  const auto line = parse_command(kRunText, option_list(options, scenario), arguments);
  if (!line) return std::nullopt;
  check_backend(options.backend);
  if (options.wants_step_log && options.is_quiet) {
    throw UsageError("--trace-steps: has no effect with --quiet; allowed: one of them");
  }
  if (options.is_verbose && options.is_quiet) {
    throw UsageError("--verbose: has no effect with --quiet; allowed: one of them");
  }
  if (options.seed_text) options.seed = parse_seed(*options.seed_text);
  append_assignments(options.fleet, options.assignments);
  if (options.wants_bands) options.assignments.push_back("results.bands=4");
  options.scenario = choose_scenario(kRunText, *line, scenario, options.out);
  return options;
}

// An unusable folder is reported before the run, as the user's error.
ResultFolder open_result_folder(const std::string& path) {
  try {
    return ResultFolder(path);
  } catch (const ConfigError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

// "policy=chunked order=fcfs prefill_chunk_size=512", and of drafts "method=eagle ...".
std::string scheduler_text(const Scenario& scenario) {
  const Json config = scenario.resolved();
  std::string text;
  const auto add = [&text](const Json& section) {
    for (const auto& [key, value] : section.items()) {
      text += (text.empty() ? "" : " ") + key + "=";
      text += value.is_string() ? value.get<std::string>() : value.dump();
    }
  };
  add(config.at("scheduler"));
  if (scenario.speculative.is_on()) add(config.at("speculative"));
  return text;
}

// "engine.max_num_seqs=1024 engine.async_depth=2": what no key of the file gives.
std::string serve_defaults_text(const Scenario& scenario) {
  std::string text;
  for (const ServeDefault& added : scenario.serve_defaults) {
    text += (text.empty() ? "" : " ") + added.key + "=" + added.value;
  }
  return text;
}

// "llama-3.2-3b on h200, 64 sequences, 68,609 KV blocks of 16 tokens".
std::string engine_text(const PreparedVariant& variant) {
  const EngineSetup& setup = variant.run->setup;
  return variant.run->model.name + " on " + variant.run->device + ", " +
         count_text(setup.max_num_seqs, "sequence") + ", " +
         count_text(setup.kv_cache.num_blocks, "KV block") + " of " +
         count_text(setup.kv_cache.block_size, "token");
}

std::string workload_text(const PreparedVariant& variant) {
  const Workload& workload = *variant.workload;
  std::string text =
      workload.has_sessions() ? count_text(workload.num_sessions(), "session") + ", " : "";
  text += count_text(workload.requests.size(), "request") + ", " +
          count_text(workload.total_prompt_tokens(), "prompt token") + ", " +
          count_text(workload.total_output_tokens(), "output token");
  if (workload.num_skipped > 0) {
    text += "; " + count_text(workload.num_skipped, "row") +
            " of the trace are failed requests and are left out";
  }
  if (!workload.unused_fields.empty()) {
    text += "; of the trace not used: " + unused_fields_text(workload);
  }
  return text;
}

// Prints what will run. Facts common to all variants are printed once.
void print_header(std::ostream& out, const ScenarioFile& file,
                  const std::vector<PreparedVariant>& variants, bool is_verbose) {
  const auto say = [&out](const std::string& name, const std::string& text) {
    out << name << std::string(12 - name.size(), ' ') << wrapped(text, 12, output_columns());
  };
  const auto say_of_all = [&](const std::string& name, auto text_of) {
    const std::string first = text_of(variants.front());
    const bool is_shared =
        std::all_of(variants.begin(), variants.end(),
                    [&](const PreparedVariant& variant) { return text_of(variant) == first; });
    if (is_shared) return say(name, first);
    for (const PreparedVariant& variant : variants) {
      say(name, variant.scenario.name + ": " + text_of(variant));
    }
  };
  say("scenario", one_line(file.path + (file.description.empty() ? "" : ": " + file.description)));
  say_of_all("seed", [](const PreparedVariant& v) { return std::to_string(v.scenario.seed); });
  say_of_all("engine", engine_text);
  const auto fleet = [](const PreparedVariant& variant) {
    return variant.run->fleet_text.empty() ? "1 replica" : variant.run->fleet_text;
  };
  const auto has_fleet = [](const PreparedVariant& variant) {
    return !variant.run->fleet_text.empty();
  };
  if (std::any_of(variants.begin(), variants.end(), has_fleet)) say_of_all("fleet", fleet);
  const auto weights = [](const PreparedVariant& variant) { return variant.run->weights_text; };
  if (!weights(variants.front()).empty()) say_of_all("weights", weights);
  say_of_all("workload", workload_text);
  for (const PreparedVariant& variant : variants) {
    say("run", variant.scenario.name + ": " + scheduler_text(variant.scenario));
    const std::string defaults = serve_defaults_text(variant.scenario);
    if (!defaults.empty()) say("defaults", variant.scenario.name + ": " + defaults);
  }
  std::set<std::string> warnings;  // each once, as variants mostly share theirs
  for (const PreparedVariant& variant : variants) {
    const std::string& warning = variant.run->warning;
    if (!warning.empty() && warnings.insert(warning).second) say("warning", warning);
    for (const std::string& unlikely : workload_warnings(variant.scenario.workload)) {
      if (warnings.insert(unlikely).second) say("warning", unlikely);
    }
  }
  if (is_verbose) {
    for (const PreparedVariant& variant : variants) out << variant.scenario.to_yaml() << '\n';
  }
  out << '\n' << std::flush;
}

// Whether all variants' requests got the same tokens; empty without tokens.
std::string output_text(const std::vector<RunResult>& results) {
  const std::string& first = results.front().info.output_digest;
  if (first.empty()) return {};
  const auto is_equal = [&first](const RunResult& result) {
    return result.info.output_digest == first;
  };
  if (std::all_of(results.begin(), results.end(), is_equal)) {
    return "\noutput tokens: " + first +
           (results.size() > 1 ? ", the same in every variant\n" : "\n");
  }
  std::string text = "\noutput tokens differ:\n";
  for (const RunResult& result : results) {
    text += "  " + result.info.label + ": " + result.info.output_digest + ", " +
            count_text(result.summary.total_output_tokens, "token") + "\n";
  }
  return text;
}

// Throws if a variant completed no request: it has results, but no figure that answers anything.
void require_completed_requests(const std::vector<RunResult>& results, const std::string& out) {
  std::string names;
  for (const RunResult& result : results) {
    if (result.summary.completed > 0) continue;
    names += (names.empty() ? "" : ", ") + result.info.label;
  }
  if (names.empty()) return;
  throw std::runtime_error("no request was completed by " + names +
                           ", for the reason in the warning above; the results are in " + out);
}

void tell_left_out(const std::string& name, const std::vector<std::string>& files) {
  if (files.empty()) return;
  std::string list;
  for (const std::string& file : files) list += (list.empty() ? "" : ", ") + file;
  std::cerr << name << ": not written, as larger than " << kMaxUnaskedBytes / 1'000'000
            << " MB: " << list << "; the key in brackets, set to true, writes the file\n";
}

// Whether a thread may write steps.jsonl beside the run: a CPU core must be free for it, and no
// line may depend on later steps.
bool may_stream_steps(const Backend& backend, const PreparedVariant& variant) {
  return !backend.is_measured() && variant.run->fleet_text.empty() &&
         variant.workload->images.empty() && !variant.run->setup.kv_cache.verifies_drafts &&
         std::thread::hardware_concurrency() >= 2;
}

void name_scenario(const ScenarioFile& file, VariantOutcome& outcome) {
  const auto name = [&file](RunInfo& info) {
    info.scenario = printable(file.name);
    info.description = printable(file.description);
  };
  name(outcome.result.info);
  for (ReplicaOutcome& replica : outcome.replicas) name(replica.result.info);
}

std::vector<RunResult> run_all(Backend& backend, std::vector<PreparedVariant>& variants,
                               const ScenarioFile& file, ResultFolder& folder,
                               const RunOptions& options) {
  std::ostream& text = text_stream(options.is_quiet, options.wants_json);
  ProgressBar bar(!options.is_quiet && !options.wants_step_log);
  std::vector<RunResult> results;
  ReportBuilder report(variants.size());
  for (PreparedVariant& variant : variants) {
    const std::string& name = variant.scenario.name;
    const std::string place = fmt::format("{} of {}", results.size() + 1, variants.size());
    bar.start(variants.size() > 1 ? name + " (" + place + ")" : name);
    std::optional<StepLog> log;
    if (options.wants_step_log && !variant.run->fleet_text.empty()) {
      throw UsageError("--trace-steps: shows the steps of one engine, and " + name +
                       " has several; allowed: --variant with another one, or without the option");
    }
    if (options.wants_step_log && !options.is_quiet) {
      text << "steps of " << name << '\n';
      log.emplace(text);
    }
    const ProgressFn progress = [&bar](const RunProgress& now) {
      bar.update(now.num_ended, now.num_total);
      throw_if_interrupted();
      throw_if_output_failed();
      return true;
    };
    const std::string subfolder = file.has_variants ? name : std::string();
    std::unique_ptr<StepsStream> steps;  // null: the file is written after the run
    if (may_stream_steps(backend, variant)) {
      steps = open_steps_stream(variant.scenario.results, folder, subfolder, kMaxUnaskedBytes);
    }
    std::unique_ptr<RequestsStream> requests;  // null: as for `steps`
    if (!keeps_steps(variant)) {
      requests = open_requests_stream(variant.scenario.results, *variant.workload, folder,
                                      subfolder, kMaxUnaskedBytes);
    }
    VariantOutcome outcome = run_variant(backend, variant, log ? &*log : nullptr, progress,
                                         steps.get(), requests.get());
    add_bands(backend, variant, progress, outcome);
    name_scenario(file, outcome);
    bar.announce(name + ": writing results ...");
    const std::vector<std::string> left_out =
        write_variant(outcome, variant.scenario.results, folder, subfolder, kMaxUnaskedBytes,
                      {.steps = steps.get(), .requests = requests.get()});
    if (variant.scenario.results.report) report.add(outcome);
    bar.clear();
    throw_if_interrupted();
    if (log) text << '\n';
    if (!options.is_quiet) {
      std::cerr << name << ": " << outcome.result.summary.num_steps
                << (backend.is_measured() ? " steps computed in " : " steps simulated in ")
                << fixed_text(outcome.elapsed_ms, 1) << " ms\n";
    }
    if (!options.is_quiet) tell_left_out(name, left_out);
    for (const std::string& warning : outcome.warnings) {
      std::cerr << "warning: " << name << ": " << warning << '\n';
    }
    results.push_back(std::move(outcome.result));
  }
  for (const std::string& note : options.scenario.notes) report.add_note(printable(note));
  bar.announce("writing the report ...");
  if (!report.empty()) folder.write(kReportFile, report.html());
  return results;
}

}  // namespace

int run_command(const Arguments& arguments) {
  const std::optional<RunOptions> parsed = parse_run(arguments);
  if (!parsed) return kExitDone;
  const RunOptions& options = *parsed;
  const ScenarioFile file =
      load_scenario(options.scenario.path, options.assignments, options.seed, options.backend);
  std::vector<Scenario> chosen = chosen_variants(file, options.variants);
  check_threads(options, chosen);
  const std::unique_ptr<Backend> backend =
      make_backend(options.backend, static_cast<std::int32_t>(options.threads.value_or(1)));
  if (!backend->is_measured()) use_huge_pages();
  const std::string out = !options.out.empty() ? options.out
                                               : default_folder(options.scenario.path, *backend,
                                                                chosen, options.variants.empty());
  std::vector<PreparedVariant> variants = prepare_variants(*backend, std::move(chosen));
  // After this there are files to remove.
  catch_signals();
  ResultFolder folder = open_result_folder(out);

  std::ostream& text = text_stream(options.is_quiet, options.wants_json);
  print_choice(text, options.scenario);
  print_header(text, file, variants, options.is_verbose);
  throw_if_output_failed();
  const std::vector<RunResult> results = run_all(*backend, variants, file, folder, options);
  const std::string summary = summary_json(results);
  folder.write(kSummaryFile, summary);
  throw_if_interrupted();
  folder.commit();
  if (folder.replaces_result() && !options.is_quiet) {
    std::cerr << printable(out) << ": an earlier result was replaced\n";
  }

  if (options.wants_json) std::cout << summary;
  const bool is_terminal = is_capable_terminal(options.wants_json ? STDERR_FILENO : STDOUT_FILENO);
  const bool use_color = is_terminal && std::getenv("NO_COLOR") == nullptr;
  text << render_table(results, {use_color}) << output_text(results)
       << "\nresults: " << printable(out) << '\n'
       << std::flush;
  require_completed_requests(results, out);
  return kExitDone;
}

}  // namespace metronome
