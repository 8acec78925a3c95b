// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/diagnose_log.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "engines/command/pasted_command.h"
#include "engines/log/log_dialect.h"
#include "reports/compare/comparable.h"
#include "reports/measured/measured_reader.h"
#include "reports/terminal/log_facts.h"
#include "reports/terminal/log_gaps.h"
#include "reports/terminal/report_findings.h"
#include "reports/terminal/text.h"
#include "study/rebuilt/log_scenario.h"
#include "study/run/variant_run.h"
#include "system/temporary_folder.h"
#include "tools/commands/cli.h"
#include "tools/commands/diagnose_notes.h"
#include "tools/commands/goal_options.h"

namespace metronome {
namespace {

// Requests of another model say nothing about those of the log.
void note_other_model(const EngineLog& log, const Scenario& scenario, Finding& finding) {
  const auto found = log.settings.find(std::string(log.dialect->server->model));
  if (found == log.settings.end()) return;
  const ModelComparison models =
      compare_models(served_model(found->second), scenario_model(scenario));
  if (!models.differs) return;
  finding.notes.push_back("In the log " + printable(models.text) +
                          " as in the scenario: a replay has other step times.");
}

std::string joined_settings(const EngineSettings& settings) {
  std::string text;
  for (const std::string& flag : settings.flags) text += (text.empty() ? "" : " ") + flag;
  return text;
}

// Searches for better settings by the run of the log's scenario. `has_pool`: the size of its cache
// is the log's, which nobody set.
void replay_scenario(const EngineLog& log, const StoredRun& run, const DiagnoseOptions& options,
                     bool has_pool, Finding& finding) {
  const std::string policy(log.dialect->name());
  const bool is_same_engine = run.result.info.policy == policy;
  if (!is_same_engine) {
    finding.notes.push_back("The scenario has the policy " + run.result.info.policy +
                            ", but the log is one of " + std::string(log.engine_name()) +
                            ": give its settings with --flags.");
  }
  replay(run, options, is_same_engine ? std::string(log.engine_name()) : "", finding);
  if (!finding.what_if) return;
  // The simulated run is compared with the log, which it represents.
  finding.what_if->scenario = options.scenario;
  finding.what_if->is_rebuilt = finding.workload.has_value();
  if (finding.workload) finding.what_if->step_error = finding.workload->step_error;
  finding.what_if->recorded_itl = finding.itl;
  if (has_pool) finding.what_if->cache.is_set = false;
  finding.what_if->is_same_run = false;
}

// The requests of the log itself, in files that last as long as this.
struct OwnRequests {
  LogScenario made;
  LogScenarioOptions options;                  // without the client
  std::unique_ptr<TemporaryFolder> temporary;  // nullptr: they stay
  std::string path;                            // of the scenario
};

// The folder of --save may hold an earlier log, and no other scenario.
void check_save_folder(const std::string& folder, const LogScenario& made) {
  namespace fs = std::filesystem;
  const std::string head = made.yaml.substr(0, made.yaml.find('\n'));
  const fs::path scenario = fs::path(folder) / kLogScenarioFile;
  if (fs::exists(scenario) && read_file(scenario.string()).value_or("").starts_with(head)) return;
  for (const char* name : {kLogScenarioFile, kLogRequestsFile, kLogStepsFile}) {
    const fs::path file = fs::path(folder) / name;
    if (!fs::exists(file)) continue;
    throw UsageError("--save: " + printable(file.string()) +
                     " exists and is not of a log; allowed: a new folder, or one that --save made");
  }
}

// A log has the step times of its own server alone.
void check_flags_of_steps(const EngineSettings& own, const EngineSettings& with_flags,
                          const DiagnoseOptions& options) {
  if (!options.hardware.empty() || !options.described.gpu.empty()) return;
  constexpr std::string_view kSize = "cost_model.tensor_parallel_size=";
  const auto size_of = [&kSize](const EngineSettings& settings) {
    for (const std::string& one : settings.assignments) {
      if (one.starts_with(kSize)) return one.substr(kSize.size());
    }
    return std::string("1");
  };
  if (size_of(own) == size_of(with_flags)) return;
  throw UsageError("--flags: the log has step times for a tensor parallel size of " + size_of(own) +
                   " alone; allowed: that, or --hardware NAME, whose step times "
                   "are simulated");
}

// A note where the flags change the KV cache and nobody knows its size then; empty: they do not.
std::string pool_note(const EngineSettings& own, const EngineSettings& with_flags) {
  const bool sets_blocks =
      std::any_of(with_flags.assignments.begin(), with_flags.assignments.end(),
                  [](const std::string& one) { return one.starts_with("kv_cache.num_blocks="); });
  if (own.pool.empty() || !with_flags.pool.empty() || sets_blocks) return {};
  return "The replays keep the KV cache of the log: it does not say how many tokens fit with these "
         "flags (--hardware NAME simulates that).";
}

OwnRequests own_requests(const EngineLog& log, const DiagnoseOptions& options) {
  OwnRequests own;
  const ScenarioRequest& described = options.described;
  std::optional<MeasuredRun> client;
  if (!options.requests.empty()) {
    client = read_measured_run(options.requests, options.run_number);
  }
  own.options = {.model = described.model,
                 .gpu = options.hardware.empty() ? described.gpu : options.hardware,
                 .simulates_gpu = !options.hardware.empty(),
                 .tensor_parallel_size = described.tensor_parallel_size,
                 .quantization = described.quantization,
                 .client = client ? &*client : nullptr};
  own.made = make_log_scenario(log, own.options);
  own.options.client = nullptr;
  if (!own.made.obstacle.empty()) return own;
  std::string folder = options.save;
  if (folder.empty()) {
    own.temporary = std::make_unique<TemporaryFolder>();
    folder = own.temporary->path();
  }
  if (!options.save.empty()) check_save_folder(folder, own.made);
  std::filesystem::create_directories(folder);
  own.path = write_log_scenario(own.made, folder);
  return own;
}

Distribution logged_ttft(const RebuiltLog& rebuilt) {
  std::vector<double> sample;
  for (const RebuiltRequest& request : rebuilt.requests) {
    if (request.ttft_ns != kNoTime) sample.push_back(static_cast<double>(request.ttft_ns));
  }
  return describe(sample);
}

LogWorkloadFacts facts_of(const LogScenario& made) {
  LogWorkloadFacts facts;
  facts.num_requests = static_cast<std::int64_t>(made.num_requests);
  facts.num_exact = static_cast<std::int64_t>(made.rebuilt.num_exact());
  facts.num_from_client = static_cast<std::int64_t>(made.num_from_client);
  if (made.fit) facts.num_fitted_steps = static_cast<std::int64_t>(made.fit->measured.steps.size());
  facts.logged_ttft = logged_ttft(made.rebuilt);
  facts.step_error = step_error(made);
  return facts;
}

// The delay of the first tokens that the client saw, over the replayed ones. Load that drifts makes
// some much later, so it is the lower quartile. 0: they are not later, or the client does not say.
double front_end_ms(const LogScenario& made, const RunRecord& replayed) {
  std::vector<TimeNs> later;
  const std::size_t count = std::min(made.client_ttft_ns.size(), replayed.requests.size());
  for (std::size_t i = 0; i < count; ++i) {
    const RequestRecord& request = replayed.requests[i];
    if (made.client_ttft_ns[i] == kNoTime || request.first_token == kNoTime) continue;
    later.push_back(made.client_ttft_ns[i] - request.ttft_ns());
  }
  if (later.empty()) return 0;
  const auto quartile = later.begin() + static_cast<std::ptrdiff_t>(later.size() / 4);
  std::nth_element(later.begin(), quartile, later.end());
  return std::max(to_ms(*quartile), 0.0);
}

// The replay of the log's own requests with its settings, and what else the user must know.
void add_workload(const EngineLog& log, LogScenario& made, const DiagnoseOptions& options,
                  Finding& finding) {
  finding.workload = facts_of(made);
  finding.facts.push_back(made.summary);
  finding.notes.insert(finding.notes.end(), made.notes.begin(), made.notes.end());
  if (!options.save.empty()) {
    finding.notes.push_back("The log as a scenario: " + printable(options.scenario) +
                            ", with its requests and step times beside it.");
  }
  const EngineSettings own = scenario_settings(*log.dialect->server, merged_arguments(log, {}));
  StoredRun run = run_scenario(options.scenario, chosen_variant(options, own), options.is_quiet);
  if (const double ms = front_end_ms(made, run.record); ms >= 0.1) {
    set_front_end(ms, made);
    write_log_scenario(made, std::filesystem::path(options.scenario).parent_path().string());
    finding.notes.push_back("The server takes about " + ms_text(ms) +
                            " ms before its engine sees a request, by the client's first tokens "
                            "beside the replayed ones.");
    run = run_scenario(options.scenario, chosen_variant(options, own), options.is_quiet);
  }
  finding.workload->as_logged = run.result.summary;
  if (const std::int64_t num = run.result.summary.never_fits; num > 0) {
    finding.notes.push_back(
        fmt::format("{} of these requests never {} into the KV cache or max_model_len of the log.",
                    grouped_text(num), num == 1 ? "fits" : "fit"));
  }
  if (!made.windows.empty() && made.is_drawn) {
    finding.workload->running = mean_running(made.windows, made.start, run.record);
  }
}

// Why drawn requests do not stand for the log's; empty: they may. A factor of two is usual.
std::string unlike_load(const Finding& finding) {
  constexpr double kMostRatio = 8;
  constexpr double kFew = 2;  // requests, of which a ratio says nothing
  if (!finding.workload->running) return {};
  const double logged = finding.workload->running->logged;
  const double simulated = finding.workload->running->simulated;
  if (std::max(logged, simulated) <= kMostRatio * std::max(std::min(logged, simulated), kFew)) {
    return {};
  }
  return fmt::format(
      "{} requests run on average in the reports, and {} when requests that were drawn to match "
      "them are simulated: they are not those of the log.",
      fixed_text(logged, 1), fixed_text(simulated, 1));
}

void add_figures(const DiagnoseOptions& options, Finding& finding) {
  LogWorkloadFacts& workload = *finding.workload;
  workload.logged_itl = finding.itl;
  if (workload.running) {
    finding.notes.push_back(fmt::format(
        "{} requests run on average in the reports, and {} when simulated "
        "with the log's settings.",
        fixed_text(workload.running->logged, 1), fixed_text(workload.running->simulated, 1)));
  }
  const auto figures = [](const Distribution& itl, const Distribution& ttft) {
    return itl_text(itl) + "; " + ttft_text(ttft);
  };
  if (workload.logged_itl.count > 0) {
    finding.notes.push_back("In the log: " + figures(workload.logged_itl, workload.logged_ttft) +
                            " (by the rebuilt arrivals).");
  }
  finding.notes.push_back("Simulated with the log's settings: " +
                          figures(workload.as_logged.itl, workload.as_logged.ttft) + ".");
  if (!workload.with_flags) return;
  finding.notes.push_back("Simulated with " + printable(options.flags) + ": " +
                          figures(workload.with_flags->itl, workload.with_flags->ttft) + ".");
}

// Options that only a log without a scenario of its own has, or one with steps.
void check_log_options(const EngineLog& log, const DiagnoseOptions& options) {
  const bool has_own = options.scenario.empty() && may_have_requests(log);
  if (has_own && !options.has_no_replay) return;
  const std::pair<const char*, bool> own[] = {{"--requests", !options.requests.empty()},
                                              {"--save", !options.save.empty()}};
  for (const auto& [name, is_given] : own) {
    if (!is_given) continue;
    throw UsageError(fmt::format(
        "{}: has no effect; allowed: with a log whose requests are replayed, and without "
        "--scenario",
        name));
  }
  if (has_own || !options.scenario.empty()) return;
  for (const auto& [name, value] :
       {std::pair("--hardware", options.hardware), std::pair("--flags", options.flags)}) {
    if (value.empty()) continue;
    throw UsageError(fmt::format(
        "{}: the replay of a log needs its scenario; allowed: --scenario as well", name));
  }
}

// Facts of the log itself, without its gaps.
void add_log_facts(const EngineLog& log, const EngineSettings& settings,
                   const DiagnoseOptions& options, Finding& finding) {
  JsonText engine;
  append_engine(log, settings.in_force(), engine);
  finding.engine_json = engine.view();
  std::vector<std::string> facts = {log_text(log)};
  if (finding.itl.count > 0) facts.push_back(itl_text(finding.itl));
  if (std::string text = mean_gap_text(log); !text.empty()) facts.push_back(std::move(text));
  if (log.num_drafts > 0) {
    facts.push_back(fmt::format("drafts: {} of {} accepted ({} %)",
                                grouped_text(log.num_accepted_drafts), grouped_text(log.num_drafts),
                                fixed_text(100.0 * static_cast<double>(log.num_accepted_drafts) /
                                               static_cast<double>(log.num_drafts),
                                           1)));
  }
  if (!settings.flags.empty()) {
    facts.push_back(
        std::string(options.flags.empty() ? "set in the log: " : "set in the log or by --flags: ") +
        joined_settings(settings));
  }
  if (!settings.pool.empty()) facts.push_back(settings.pool);
  if (!settings.chosen.empty()) {
    std::string chosen;
    for (const std::string& one : settings.chosen) chosen += (chosen.empty() ? "" : ", ") + one;
    facts.push_back("chosen by the server: " + chosen);
  }
  finding.facts.insert(finding.facts.begin(), facts.begin(), facts.end());
  finding.notes.insert(finding.notes.end(), options.notes.begin(), options.notes.end());
  finding.notes.insert(finding.notes.end(), settings.notes.begin(), settings.notes.end());
}

EngineSettings settings_of(const EngineLog& log, const GivenFlags& given) {
  EngineSettings settings =
      scenario_settings(*log.dialect->server, merged_arguments(log, given.arguments));
  GivenFlags logged = logged_flags(log);
  logged.ignored.clear();  // a log has dozens
  add_notes(logged, settings.notes);
  add_notes(given, settings.notes);
  return settings;
}

// Without a replay: the linear estimate, and why there is none.
void add_estimate(const EngineLog& log, const EngineArguments& arguments,
                  const DiagnoseOptions& options, Finding& finding) {
  if (finding.limit_ms) {
    std::string note = budget_note(finding.diagnosis, *log.dialect, arguments, *finding.limit_ms);
    if (!note.empty()) finding.notes.push_back(std::move(note));
  }
  if (options.has_no_replay || may_have_requests(log)) return;
  finding.notes.push_back(
      "Not replayed with other settings: the log does not have the arrivals, prompt lengths and "
      "output lengths of the requests. Describe them in a scenario, with the model, the hardware "
      "and the engine's settings, and give it with --scenario.");
}

}  // namespace

Scenario chosen_variant(const DiagnoseOptions& options, const EngineSettings& settings) {
  std::vector<std::string> assignments = settings.assignments;
  std::vector<std::string> fixed;
  if (!options.hardware.empty()) fixed.push_back("hardware=" + options.hardware);
  const auto choose = [&options](const std::vector<std::string>& all) {
    const ScenarioFile file = load_scenario(options.scenario, all, std::nullopt);
    std::vector<std::string> names;
    if (!options.variant.empty()) names.push_back(options.variant);
    std::vector<Scenario> variants = chosen_variants(file, names);
    if (variants.size() != 1) {
      std::vector<std::string_view> known;
      for (const Scenario& variant : variants) known.push_back(variant.name);
      throw UsageError(
          "--scenario: " + file.path +
          " has several variants; allowed: one of them with --variant: " + join_names(known));
    }
    return std::pair(file.has_variants, std::move(variants.front()));
  };
  auto [has_variants, scenario] = choose(fixed);
  if (scenario.kv_cache.sliding_window == 0) (void)leave_out_window_settings(assignments);
  if (settings.pool_tokens) {  // a scenario with a pool keeps its blocks' size by itself
    assignments.push_back(fmt::format("kv_cache.block_size={}", scenario.kv_cache.block_size));
    assignments.push_back(fmt::format("kv_cache.num_blocks={}",
                                      *settings.pool_tokens / scenario.kv_cache.block_size));
  }
  if (assignments.empty()) return std::move(scenario);
  for (std::string& assignment : assignments) {
    if (has_variants) assignment.insert(0, "variants." + scenario.name + ".");
    fixed.push_back(std::move(assignment));
  }
  try {
    return choose(fixed).second;
  } catch (const ConfigError& error) {
    throw ConfigError("a setting of " + printable(options.run) + " or of --flags: " + error.what());
  }
}

namespace {

// Whether an option is about the replay: then what hinders it is the answer.
bool asks_for_replay(const DiagnoseOptions& options) {
  const ScenarioRequest& described = options.described;
  const std::string* const given[] = {&options.flags,         &options.hardware, &options.requests,
                                      &options.save,          &described.model,  &described.gpu,
                                      &described.quantization};
  return described.tensor_parallel_size.has_value() ||
         std::any_of(std::begin(given), std::end(given),
                     [](const std::string* text) { return !text->empty(); });
}

// The run of the log's own requests with `settings`; nullopt, with a note, if there is none.
std::optional<StoredRun> run_own(const EngineLog& log, const EngineSettings& settings,
                                 DiagnoseOptions& options, std::optional<OwnRequests>& own,
                                 Finding& finding) {
  std::string obstacle;
  try {
    own = own_requests(log, options);
    obstacle = own->made.obstacle;
    if (obstacle.empty()) {
      options.scenario = own->path;
      options.hardware.clear();  // the scenario has it
      add_workload(log, own->made, options, finding);
      obstacle = unlike_load(finding);
    }
    if (obstacle.empty()) {
      return run_scenario(options.scenario, chosen_variant(options, settings), options.is_quiet);
    }
  } catch (const ConfigError& error) {
    if (asks_for_replay(options)) throw;
    obstacle = error.what();
  }
  finding.workload.reset();
  finding.notes.push_back("Not replayed with other settings: " + printable(obstacle));
  return std::nullopt;
}

// The figures over the log's own draw and four others: of the log's settings, or of a change.
void add_draws(const EngineLog& log, const EngineSettings& settings, const OwnRequests& own,
               const StoredRun& first, const std::vector<Setting>& changes,
               const DiagnoseOptions& options, Finding& finding) {
  constexpr std::uint64_t kNumDraws = 5;
  const std::vector<Goal> goals = goals_of(with_options(first.result.info.slo, options.targets));
  EngineSettings changed = settings;
  for (const Setting& change : changes) changed.assignments.push_back(change.text());
  DrawBand band;
  const auto add = [&](const StoredRun& run) {
    const double itl = run.result.summary.itl.p99_ms;
    const double ttft = run.result.summary.ttft.p99_ms;
    const bool is_first = band.num_draws++ == 0;
    band.p99_itl = is_first ? DrawBand::Range{itl, itl}
                            : DrawBand::Range{std::min(band.p99_itl.low, itl),
                                              std::max(band.p99_itl.high, itl)};
    band.p99_ttft = is_first ? DrawBand::Range{ttft, ttft}
                             : DrawBand::Range{std::min(band.p99_ttft.low, ttft),
                                               std::max(band.p99_ttft.high, ttft)};
    band.num_kept += keeps_goals(run, goals) ? 1 : 0;
  };
  LogScenarioOptions draw = own.options;
  for (draw.seed = 1; draw.seed <= kNumDraws; ++draw.seed) {
    if (draw.seed == 1 && changes.empty()) {
      add(first);
      continue;
    }
    const TemporaryFolder folder;
    DiagnoseOptions of_draw = options;
    const LogScenario drawn = make_log_scenario(log, draw);
    if (!drawn.obstacle.empty()) continue;  // such as too few steps to fit
    of_draw.scenario = write_log_scenario(drawn, folder.path());
    add(run_scenario(of_draw.scenario, chosen_variant(of_draw, changed), options.is_quiet));
  }
  if (changes.empty()) {
    finding.workload->draws = band;
  } else {
    finding.what_if->sureness.draws = band;
  }
}

}  // namespace

Finding examine_log(const EngineLog& log, const DiagnoseOptions& given_options) {
  DiagnoseOptions options = given_options;
  check_log_options(log, options);
  const GivenFlags given = read_flags(*log.dialect->server, options.flags, "--flags");
  const EngineSettings settings = settings_of(log, given);
  Finding finding;
  finding.title = log.path;
  finding.limit_ms = options.targets.itl_ms;
  LogGaps gaps = gaps_of(log);
  finding.notes = std::move(gaps.notes);
  finding.pressure = cache_pressure(log);
  for (std::string& note : pressure_notes(*finding.pressure, log)) {
    finding.notes.push_back(std::move(note));
  }
  for (std::string& note : left_out_notes(log)) finding.notes.push_back(std::move(note));
  for (LogFinding& found : report_findings(log)) {
    finding.causes.push_back({found.name, std::move(found.text), found.share});
  }
  std::optional<OwnRequests> own;
  std::optional<StoredRun> run;
  const auto note_left_out = [&](std::int64_t window) {
    std::vector<std::string> all = settings.assignments;
    std::string left_out = window > 0 ? std::string() : leave_out_window_settings(all);
    if (!left_out.empty()) finding.notes.push_back(std::move(left_out));
  };
  if (options.scenario.empty() && !options.has_no_replay && may_have_requests(log)) {
    const EngineSettings logged =
        scenario_settings(*log.dialect->server, merged_arguments(log, {}));
    check_flags_of_steps(logged, settings, options);
    if (std::string note = pool_note(logged, settings); !note.empty()) {
      finding.notes.push_back(std::move(note));
    }
    run = run_own(log, settings, options, own, finding);
    note_left_out(0);
  } else if (!options.scenario.empty()) {
    const Scenario scenario = chosen_variant(options, settings);
    note_other_model(log, scenario, finding);
    note_left_out(scenario.kv_cache.sliding_window);
    if (!finding.limit_ms) finding.limit_ms = scenario.slo.itl_ms;
    if (!options.has_no_replay) run = run_scenario(options.scenario, scenario, options.is_quiet);
  }
  finding.diagnosis = diagnose(gaps, finding.limit_ms, options.max_entries, finding.itl);
  add_log_facts(log, settings, options, finding);
  if (own && run) {
    if (!options.flags.empty()) finding.workload->with_flags = run->result.summary;
    add_figures(options, finding);
  }
  if (run) {
    const bool is_drawn = own && own->made.is_drawn;
    if (is_drawn) add_draws(log, settings, *own, *run, {}, options, finding);
    replay_scenario(log, *run, options, !settings.pool.empty(), finding);
    if (is_drawn && finding.what_if && finding.what_if->chosen) {
      add_draws(log, settings, *own, *run,
                finding.what_if->trials[*finding.what_if->chosen].changes, options, finding);
    }
  } else {
    add_estimate(log, merged_arguments(log, given.arguments), options, finding);
  }
  return finding;
}

}  // namespace metronome
