// SPDX-License-Identifier: Apache-2.0
// `metronome sweep`: runs a scenario at every point of a grid or of a list of settings.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <iostream>
#include <numeric>
#include <optional>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/wrapped_text.h"
#include "reports/terminal/text.h"
#include "study/run/variant_run.h"
#include "study/sweep/sweep_folder.h"
#include "study/sweep/sweep_plan.h"
#include "study/sweep/sweep_points.h"
#include "study/sweep/sweep_run.h"
#include "study/sweep/sweep_slurm.h"
#include "study/sweep/sweep_summary.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/fleet_options.h"
#include "tools/commands/goal_options.h"
#include "tools/commands/refused_points.h"
#include "tools/commands/run_choice.h"
#include "tools/commands/scenario_choice.h"

namespace metronome {
namespace {

struct SweepOptions {
  ChosenScenario scenario;
  SweepRequest request;
  SloConfig goals;  // of --target options
  std::optional<std::string> seed_text;
  std::vector<std::string> over;
  std::string out;  // empty = default_folder() plus .sweep
  std::string log;
  int num_jobs = 0;   // 0 = all CPU cores for a simulation, 1 for a measurement
  std::string slurm;  // path of the script to write; empty: none
  std::optional<std::int64_t> points_per_task;  // absent: the fewest that Slurm's arrays allow
  std::string only;                             // "I/N"; empty: all
  std::string expected;                         // plan_id(); empty: not checked
  bool is_merge = false;
  bool wants_json = false;
  bool is_quiet = false;
  bool is_dry_run = false;
};

constexpr std::size_t kMaxTableRows = 30;

constexpr const char* kSweepExamples =
    "examples:\n"
    "  metronome sweep scenarios/quickstart.yaml --over workload.arrivals.rate=2:16:2\n"
    "  metronome sweep scenarios/quickstart.yaml --variant chunked-512 \\\n"
    "      --over variants.chunked-512.scheduler.prefill_chunk_size=128:4096:x2 --over seed=1,2,3\n"
    "  metronome sweep scenarios/quickstart.yaml --over model=llama-3.2-1b,llama-3.1-8b --dry-run\n"
    "\n"
    "A section `sweep` in the scenario has the same effect:\n"
    "  sweep:\n"
    "    over: {workload.arrivals.rate: [2, 4, 8], seed: [1, 2]}        # every combination\n"
    "    points: [{scheduler.policy: vllm}, {scheduler.policy: orca}]   # each at all of them\n"
    "\n"
    "The folder of a point is named after everything that its result depends on. The same\n"
    "command continues a sweep that was stopped, and a larger sweep uses the existing points.\n"
    "Two commands at once share the work. A metronome that simulates, computes or writes\n"
    "differently runs all points again.\n"
    "\n"
    "exit codes: 0 done, 1 points failed or are not valid scenarios (they are listed), or no\n"
    "request of any point completed, 2 bad input, 130 interrupted (129 by SIGHUP, 143 by "
    "SIGTERM)\n";

constexpr CommandText kSweepText = {
    .name = "sweep",
    .arguments = "SCENARIO [OPTION...] | --command TEXT --gpu NAME [OPTION...]",
    .summary =
        "Runs every variant of a scenario file at every point of a grid or a list of settings.\n"
        "Writes a folder for each point and a summary of all, with the keys of vLLM's sweeps.\n",
    .examples = kSweepExamples,
    .file_name = "SCENARIO",
    .file_kind = "scenario file",
    .files = FileCount::AtMostOne};

OptionList option_list(SweepOptions& options, FleetOptions& fleet, ScenarioOptions& scenario) {
  OptionList list = {
      {"over KEY=A,B,C", &options.over,
       "vary a key (see `metronome list keys`; variants.NAME.KEY for one variant) over values, "
       "START:STOP:STEP or START:STOP:xFACTOR; several options make a grid; repeatable"},
      {"jobs,j N", &options.num_jobs,
       "points to run at once (default: one per CPU core, or 1 for a --backend other than sim)",
       EmptyText::Refused, kJobs},
      {"out DIR", &options.out,
       "folder of the sweep (default: that of `metronome run` with the suffix .sweep)"},
      {"set KEY=VALUE", &options.request.assignments,
       "override a key at all points; repeatable. Points write requests.jsonl, steps.jsonl and "
       "trace.json only where results.requests, .steps and .trace are given, here or in the "
       "scenario"},
      {"backend NAME (=sim)", &options.request.backend, "backend: sim, cpu or cuda"},
      {"variant NAME", &options.request.variants, "run only this variant; repeatable"},
      {"seed N", &options.seed_text, "override the scenario's seed"},
      {"runs N (=1)", &options.request.num_runs,
       "runs of each point, for a --backend that measures; simulations do not differ",
       EmptyText::Refused, WholeRange{1, 1000}},
      {"log FILE", &options.log, "append a line when a point starts and when it is done"},
      {"slurm FILE", &options.slurm,
       "write a script for Slurm and run nothing: `bash FILE` submits an array of tasks for any "
       "node, and a job that merges their results"},
      {"points-per-task N", &options.points_per_task,
       "points of a task of --slurm (default: 1, or more to limit the tasks to 1,000)",
       EmptyText::Refused, WholeRange{1, 1'000'000}},
      {"only I/N", &options.only,
       "run the I-th of N shares of the points and write no summary; for the tasks of --slurm"},
      {"merge", &options.is_merge,
       "run nothing, and write the summary of the existing points; for the last job of --slurm"},
      {"expect ID", &options.expected,
       "fail unless the sweep is the one of the script that --slurm wrote"},
      {"dry-run", &options.is_dry_run, "list the points; run and write nothing"},
      {"json", &options.wants_json, "print only summary.json on standard output"},
      {"quiet,q", &options.is_quiet, "print only errors"},
  };
  add_fleet_options(fleet, list);
  add_steps_option(fleet, list);
  add_goal_options(options.goals, list);
  add_scenario_options(scenario, list);
  return list;
}

// Allows at most one of the options that replace the sweep by another operation.
void check_mode(const SweepOptions& options) {
  const int num_modes = (options.slurm.empty() ? 0 : 1) + (options.only.empty() ? 0 : 1) +
                        (options.is_merge ? 1 : 0) + (options.is_dry_run ? 1 : 0);
  if (num_modes > 1) {
    throw UsageError(
        "sweep: --slurm, --only, --merge and --dry-run exclude each other; allowed: "
        "one of them");
  }
  if (options.points_per_task && options.slurm.empty()) {
    throw UsageError("--points-per-task: has no effect; allowed: with --slurm");
  }
}

bool is_simulated(const SweepOptions& options) {
  return options.request.backend == kBackendNames[0];
}

void check_options(const SweepOptions& options) {
  check_backend(options.request.backend);
  check_mode(options);
  if (options.request.num_runs > 1 && is_simulated(options)) {
    throw UsageError(
        "--runs: a simulation gives the same result every time; allowed: 1, or --over seed=1,2,3");
  }
}

// The runs [first, second) of `--only I/N`; all runs without it.
std::pair<std::size_t, std::size_t> chosen_share(const std::string& only, std::size_t num_runs) {
  if (only.empty()) return {0, num_runs};
  std::size_t task = 0;
  std::size_t num_tasks = 0;
  const char* end = only.data() + only.size();
  const auto first = std::from_chars(only.data(), end, task);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == '/') {
    const auto second = std::from_chars(first.ptr + 1, end, num_tasks);
    const bool is_valid = second.ec == std::errc() && second.ptr == end;
    if (is_valid && task >= 1 && task <= num_tasks && num_tasks <= num_runs) {
      return task_share(task, num_tasks, num_runs);
    }
  }
  throw UsageError(
      fmt::format("--only: '{}' is not a share of {} runs; allowed: I/N with I from 1 to N, and N "
                  "up to the number of runs",
                  only, num_runs));
}

// nullopt if help was requested and printed.
std::optional<SweepOptions> parse_sweep(const Arguments& arguments) {
  SweepOptions options;
  options.request.backend = kBackendNames[0];
  FleetOptions fleet;
  ScenarioOptions scenario;
  const auto line = parse_command(kSweepText, option_list(options, fleet, scenario), arguments);
  if (!line) return std::nullopt;
  append_assignments(fleet, options.request.assignments);
  if (options.seed_text) options.request.seed = parse_seed(*options.seed_text);
  for (std::string& goal : goal_assignments(options.goals)) {
    options.request.assignments.push_back(std::move(goal));
  }
  check_options(options);
  if (options.num_jobs == 0) options.num_jobs = is_simulated(options) ? default_jobs() : 1;
  options.scenario = choose_scenario(kSweepText, *line, scenario, options.out);
  options.request.scenario = options.scenario.path;
  return options;
}

// The variables, including `--seed`.
SweepSpec read_spec(const SweepOptions& options, const ScenarioFile& file) {
  SweepSpec spec = read_sweep(file, options.over);
  const std::vector<std::string> keys = swept_keys(spec);
  const bool varies_seed = std::find(keys.begin(), keys.end(), "seed") != keys.end();
  if (varies_seed && options.request.seed) {
    throw UsageError(
        "--seed: overrides every seed, but the sweep varies the seed; allowed: one of them");
  }
  const std::vector<std::string>& assignments = options.request.assignments;
  const auto sets_seed = [](const std::string& assignment) {
    return assignment.starts_with("seed=");
  };
  if (varies_seed && std::any_of(assignments.begin(), assignments.end(), sets_seed)) {
    throw UsageError(
        "--set seed: has no effect, as the sweep varies the seed; allowed: one of "
        "them");
  }
  return spec;
}

void print_header(std::ostream& out, const SweepOptions& options, const ScenarioFile& file,
                  const SweepPlan& plan, const SweepFolder& folder) {
  out << "scenario    "
      << wrapped(one_line(file.path + (file.description.empty() ? "" : ": " + file.description)),
                 12, output_columns())
      << "sweep       " << count_text(plan.num_points, "point") << ", "
      << count_text(plan.rows.size(), "row") << ", "
      << count_text(plan.runs.size(), "different run");
  if (!plan.invalid.empty()) out << "; " << refused_text(plan);
  out << "\njobs        " << options.num_jobs << '\n';
  if (const std::size_t num_others = folder.num_others(plan); num_others > 0) {
    out << "others      " << count_text(num_others, "run")
        << " with other settings or from another "
        << "version of metronome in " << printable(folder.path()) << ": not used\n";
  }
  out << '\n' << std::flush;
}

void print_plan(const SweepOptions& options, const SweepPlan& plan) {
  std::ostream& out = text_stream(options.is_quiet, options.wants_json);
  for (const SweepRun& run : plan.runs) out << run.id << "  " << run_text(plan, run) << '\n';
}

void print_failures(const SweepPlan& plan, const SweepFolder& folder, const SweepOutcome& outcome,
                    const std::vector<std::size_t>& missing) {
  for (const std::string& warning : outcome.warnings) std::cerr << "warning: " << warning << '\n';
  if (missing.empty()) return;
  std::cerr << "metronome: error: " << count_text(missing.size(), "run") << " of "
            << plan.runs.size() << (missing.size() == 1 ? " is" : " are") << " not done:\n";
  for (const std::size_t i : missing) {
    std::cerr << "  " << run_text(plan, plan.runs[i]) << ": "
              << folder.read_failure(plan.runs[i]).value_or("was not run") << '\n';
  }
}

// Writes the summaries and prints the table. Returns the exit code.
int finish_sweep(const SweepOptions& options, const SweepPlan& plan, SweepFolder& folder,
                 const SweepOutcome& outcome) {
  const SweepSummary summary(plan, folder, options.num_jobs);
  const std::string json = summary.json();
  folder.write_summary("summary.csv", summary.csv());
  folder.write_summary("summary.json", json);
  if (options.wants_json) std::cout << json;
  std::ostream& text = text_stream(options.is_quiet, options.wants_json);
  if (summary.num_rows() > 0) text << summary.table(kMaxTableRows) << '\n';
  const std::size_t num_done = plan.runs.size() - summary.missing().size();
  text << count_text(outcome.num_run, "run") << " done now, " << num_done - outcome.num_run
       << " before, " << summary.missing().size()
       << " failed; results: " << printable(folder.path()) << '\n';
  print_failures(plan, folder, outcome, summary.missing());
  print_refused(plan, "error");
  if (summary.num_rows() > 0 && !summary.has_completed()) {
    std::cerr << "metronome: error: no request of any point completed\n";
    return kExitRunFailed;
  }
  return summary.missing().empty() && plan.invalid.empty() ? kExitDone : kExitRunFailed;
}

// The arguments of the script's tasks: this command line, complete.
std::vector<std::string> task_arguments(const SweepOptions& options, const std::string& out) {
  const SweepRequest& request = options.request;
  std::vector<std::string> arguments = {"sweep", request.scenario};
  const auto add = [&arguments](const char* name, const std::string& value) {
    arguments.insert(arguments.end(), {name, value});
  };
  for (const std::string& over : options.over) add("--over", over);
  for (const std::string& assignment : request.assignments) add("--set", assignment);
  for (const std::string& variant : request.variants) add("--variant", variant);
  if (request.seed) add("--seed", std::to_string(*request.seed));
  if (!is_simulated(options)) add("--backend", request.backend);
  if (request.num_runs > 1) add("--runs", std::to_string(request.num_runs));
  if (!options.log.empty()) add("--log", options.log);
  add("--out", out);
  return arguments;
}

int write_slurm_script(const SweepOptions& options, const SweepPlan& plan, const std::string& out) {
  namespace fs = std::filesystem;
  SlurmSweep sweep;
  std::error_code error;
  sweep.program = fs::read_symlink("/proc/self/exe", error).string();
  if (error) throw std::runtime_error("/proc/self/exe: " + error.message());
  sweep.arguments = task_arguments(options, out);
  sweep.folder = fs::current_path().string();
  sweep.name = "metronome-" + fs::path(options.request.scenario).stem().string();
  sweep.expected = plan_id(plan);
  sweep.num_runs = plan.runs.size();
  const auto tasks_of = [&](std::size_t share) { return (sweep.num_runs + share - 1) / share; };
  const std::size_t share = options.points_per_task
                                ? static_cast<std::size_t>(*options.points_per_task)
                                : tasks_of(kMaxSlurmTasks);
  sweep.num_tasks = tasks_of(share);
  if (sweep.num_tasks > kMaxSlurmTasks) {
    throw UsageError(fmt::format(
        "--points-per-task: {} makes {} tasks; allowed: at least {}, for at most {} tasks", share,
        sweep.num_tasks, tasks_of(kMaxSlurmTasks), kMaxSlurmTasks));
  }
  if (path_exists(options.slurm)) {
    std::ifstream file = open_input(options.slurm);
    std::string line;
    next_line(file, line);
    next_line(file, line);
    if (line != kSlurmScriptMark) {
      throw UsageError(
          "--slurm: " + printable(options.slurm) +
          ": is not a script of --slurm; allowed: a new file, or a script of an earlier sweep");
    }
  }
  replace_file(options.slurm, slurm_script(sweep));
  fs::permissions(options.slurm, fs::perms::owner_exec, fs::perm_options::add);
  text_stream(options.is_quiet, options.wants_json)
      << count_text(sweep.num_tasks, "task") << " over " << count_text(sweep.num_runs, "run")
      << "; to submit them: bash " << printable(shell_quoted(options.slurm)) << '\n';
  print_refused(plan, "warning");
  return kExitDone;
}

int run_in_folder(const SweepOptions& options, const SweepPlan& plan, SweepLog& log,
                  SweepFolder& folder) {
  if (options.is_merge) return finish_sweep(options, plan, folder, {});
  const auto [first, last] = chosen_share(options.only, plan.runs.size());
  std::vector<std::size_t> chosen(last - first);
  std::iota(chosen.begin(), chosen.end(), first);
  folder.remove_leftovers();
  const SweepOutcome outcome = run_sweep(plan, chosen, folder,
                                         {[&] { return make_backend(options.request.backend); },
                                          options.num_jobs, options.is_quiet, &log});
  if (!options.only.empty()) {
    // Failed runs are recorded for the merge; the share itself succeeds.
    print_failures(plan, folder, outcome, outcome.failed);
    return kExitDone;
  }
  return finish_sweep(options, plan, folder, outcome);
}

}  // namespace

int sweep_command(const Arguments& arguments) {
  const std::optional<SweepOptions> parsed = parse_sweep(arguments);
  if (!parsed) return kExitDone;
  const SweepOptions& options = *parsed;
  const SweepRequest& request = options.request;
  const ScenarioFile file =
      load_scenario(request.scenario, request.assignments, request.seed, request.backend);
  const std::vector<Scenario> chosen = chosen_variants(file, request.variants);
  const SweepSpec spec = read_spec(options, file);
  const SweepPlan plan = plan_sweep(request, spec, options.num_jobs);
  chosen_share(options.only, plan.runs.size());
  if (!options.expected.empty() && options.expected != plan_id(plan)) {
    throw ConfigError(printable(request.scenario) +
                      ": the script is for a different sweep: the scenario or one of its "
                      "files has changed; allowed: a new script");
  }
  // For a share or a merge, the plan's remarks were already shown when it was planned.
  if (options.expected.empty()) {
    for (const std::string& remark : plan.remarks) std::cerr << "warning: " << remark << '\n';
  }
  print_choice(text_stream(options.is_quiet, options.wants_json), options.scenario);
  if (options.is_dry_run) {
    print_plan(options, plan);
    print_refused(plan, "error");
    return plan.invalid.empty() ? kExitDone : kExitRunFailed;
  }
  const std::unique_ptr<Backend> backend = make_backend(request.backend);
  const std::string out =
      !options.out.empty()
          ? options.out
          : default_folder(request.scenario, *backend, chosen, request.variants.empty()) + ".sweep";
  if (!options.slurm.empty()) return write_slurm_script(options, plan, out);
  catch_signals();
  SweepLog log(options.is_merge ? "" : options.log);
  SweepFolder folder(out);
  if (!options.is_merge)
    print_header(text_stream(options.is_quiet, options.wants_json), options, file, plan, folder);
  throw_if_output_failed();
  try {
    return run_in_folder(options, plan, log, folder);
  } catch (const Interrupted&) {
    std::cerr.clear();  // the signal may have interrupted a write
    std::cerr << "metronome: interrupted; finished runs stay in " << printable(folder.path())
              << ", and the same command continues from there\n";
    return kExitSignal + interrupting_signal();
  }
}

}  // namespace metronome
