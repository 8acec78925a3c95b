// `metronome tune`: finds the settings that sustain the highest load within an SLO.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <optional>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/progress.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "reports/files/result_files.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "reports/terminal/text.h"
#include "study/run/engine_flags.h"
#include "study/run/variant_run.h"
#include "study/sweep/sweep_plan.h"
#include "study/sweep/sweep_points.h"
#include "study/tune/tune_run.h"
#include "study/tune/tune_search.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

struct CommandOptions {
  SweepRequest request;
  std::optional<std::string> seed_text;
  std::vector<std::string> over;
  std::string slo;  // preset; empty: the scenario's
  std::string out;
  double attainment = 0.99;
  int num_seeds = 3;
  int num_jobs = 1;
  bool wants_json = false;
  bool is_quiet = false;
};

constexpr const char* kExamples =
    "examples:\n"
    "  metronome tune scenarios/quickstart.yaml\n"
    "  metronome tune scenarios/quickstart.yaml --variant budget-1024 --slo "
    "llama3.1-8b-interactive \\\n"
    "      --over variants.budget-1024.scheduler.max_num_batched_tokens=256:8192:x2\n"
    "  metronome tune scenarios/slo.yaml --variant slo --variant unchunked --jobs 8\n"
    "\n"
    "The command finds the highest load within the SLO by bisection for each setting. It drops\n"
    "settings that fall behind on a part of the requests, and compares the best on all requests.\n"
    "A load scales the times of the scenario's arrivals. The capacity for other requests of the\n"
    "same kind is beyond an end of its band with a probability of about 5 %. If a band is wide,\n"
    "trials grow to some 50,000 requests, unless a trace limits them. The share within the SLO,\n"
    "goodput and percentiles are of the same requests: those after the first fifth, of all\n"
    "workloads together. 'front': no other setting beats both its goodput and its p99 ITL.\n"
    "\n"
    "exit codes: 0 done, 1 no setting meets the SLO at any load, 2 bad input, 130 interrupted\n"
    "(129 by SIGHUP, 143 by SIGTERM)\n";

constexpr CommandText kText = {
    .name = "tune",
    .arguments = "SCENARIO [OPTION...]",
    .summary =
        "Finds the settings that carry the highest load within the scenario's SLO, among its\n"
        "variants and the values of --over. Prints the flags of vLLM and SGLang for them.\n",
    .examples = kExamples,
    .file_name = "SCENARIO",
    .file_kind = "scenario file"};

OptionList option_list(CommandOptions& options) {
  return {
      {"over KEY=A,B,C", &options.over,
       "settings to choose from, as in `metronome sweep`; several options make a grid; repeatable"},
      {"set KEY=VALUE", &options.request.assignments,
       "override a key of all settings; slo.ttft_ms, slo.tpot_ms, slo.itl_ms and slo.e2el_ms are "
       "the limits; repeatable"},
      {"slo PRESET", &options.slo, "limits of MLPerf Inference, as in slo.preset"},
      {"attainment SHARE", &options.attainment,
       "required share of requests within every limit (default: 0.99)"},
      {"variant NAME", &options.request.variants, "choose from this variant; repeatable"},
      {"seed N", &options.seed_text, "override the scenario's seed"},
      {"seeds N", &options.num_seeds,
       "workloads to draw and evaluate together, with seeds that follow the scenario's; a trace is "
       "one workload (default: 3)"},
      {"jobs,j N", &options.num_jobs, "settings to try at once (default: one per processor)"},
      {"out DIR", &options.out,
       "folder for tune.json and best.yaml (default: that of `metronome run` with the suffix "
       ".tune)"},
      {"json", &options.wants_json, "print only tune.json on standard output"},
      {"quiet,q", &options.is_quiet, "print only errors"},
  };
}

// Rejects "none", which the key allows, as it would leave no limit.
void check_preset(const std::string& name) {
  std::vector<std::string_view> known = slo_preset_names();
  std::erase(known, "none");
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  throw UsageError("--slo: no such preset: '" + printable(name) + "'" + did_you_mean(name, known) +
                   "; allowed: " + join_names(known));
}

// nullopt if help was requested and printed.
std::optional<CommandOptions> parse(const Arguments& arguments) {
  CommandOptions options;
  const auto line = parse_command(kText, option_list(options), arguments);
  if (!line) return std::nullopt;
  options.request.scenario = line->file();
  options.request.backend = kBackendNames[0];
  if (options.seed_text) options.request.seed = parse_seed(*options.seed_text);
  if (line->has("slo")) {  // replaces the scenario's limits; --set may add to them
    check_preset(options.slo);
    options.request.assignments.insert(options.request.assignments.begin(),
                                       "slo={preset: " + options.slo + "}");
  }
  if (!(options.attainment > 0 && options.attainment <= 0.9999)) {
    throw UsageError("--attainment: is out of range; allowed: above 0, to 0.9999");
  }
  if (options.num_seeds < 1 || options.num_seeds > 100) {
    throw UsageError("--seeds: " + std::to_string(options.num_seeds) +
                     " is out of range; allowed: 1 to 100");
  }
  if (!line->has("jobs")) options.num_jobs = default_jobs();
  check_jobs(options.num_jobs);
  return options;
}

// The candidate settings. Settings that resolve to the same scenario are one candidate.
struct Candidates {
  SweepPlan plan;
  std::vector<std::string> names;  // of plan.runs: "chunked-512 scheduler.order=fcfs"
};

void check_keys(const SweepSpec& spec) {
  const auto check = [](const std::string& key, const std::string& where) {
    if (key != "seed" && !key.starts_with("workload.") && !key.starts_with("slo.")) return;
    throw UsageError(where + ": '" + key +
                     "' is not a setting of an engine: requests and limits are the same for all; "
                     "allowed: any key but seed and those of workload and slo");
  };
  for (const SweptKey& swept : spec.over) check(swept.key, swept.where);
  for (const std::vector<Assignment>& point : spec.points) {
    for (const auto& [key, value] : point) check(key, spec.points_where);
  }
}

Candidates find_candidates(const CommandOptions& options, const ScenarioFile& file) {
  Candidates candidates;
  SweepSpec spec;
  if (!options.over.empty() || file.sweep.kind != ConfigNode::Kind::Null)
    spec = read_sweep(file, options.over);
  check_keys(spec);
  candidates.plan = plan_sweep(options.request, spec, options.num_jobs);
  candidates.names.resize(candidates.plan.runs.size());
  for (const SweepRow& row : candidates.plan.rows) {
    std::string& name = candidates.names[row.run];
    if (!name.empty()) continue;
    if (file.has_variants) name = candidates.plan.runs[row.run].scenario.name;
    for (const auto& [key, value] : row.values) {
      name += (name.empty() ? "" : " ") + key + "=" + value;
    }
    if (name.empty()) name = candidates.plan.runs[row.run].scenario.name;
  }
  return candidates;
}

// Requests and limits must be the same for all candidates.
void check_alike(const SweepPlan& plan) {
  const auto text = [](const Scenario& scenario) {
    const Json config = Json::parse(scenario.to_json());
    return config.at("workload").dump() + config.at("slo").dump() + config.at("seed").dump();
  };
  const Scenario& first = plan.runs.front().scenario;
  for (const SweepRun& run : plan.runs) {
    if (text(run.scenario) == text(first)) continue;
    throw UsageError("tune: " + printable(run.scenario.name) +
                     " has a different workload, slo or seed than " + printable(first.name) +
                     "; allowed: variants with the same ones, chosen by --variant");
  }
}

void check_slo(const Scenario& scenario) {
  const SloConfig& slo = scenario.slo;
  if (slo.ttft_ms || slo.e2el_ms) return;
  throw UsageError("tune: " + printable(scenario.name) +
                   " has no limit that a growing queue exceeds; allowed: --slo PRESET, or --set "
                   "slo.ttft_ms=500 or slo.e2el_ms=20000");
}

// A trial changes the number of requests and their arrivals.
void check_no_sessions(const Scenario& scenario) {
  if (scenario.workload.sessions.kind == SessionKind::None) return;
  fail_config(scenario.location_of("workload.sessions"), "workload.sessions",
              "tune has no load of sessions; allowed: single requests, or `metronome sweep --over "
              "workload.arrivals.rate=VALUES`");
}

std::string slo_text(const SloConfig& slo, double attainment) {
  std::string text;
  const auto add = [&text](const char* name, const std::optional<double>& limit) {
    if (limit) text += std::string(text.empty() ? "" : ", ") + name + " " + ms_text(*limit) + " ms";
  };
  add("TTFT", slo.ttft_ms);
  add("TPOT", slo.tpot_ms);
  add("every ITL", slo.itl_ms);
  add("E2EL", slo.e2el_ms);
  return text + ", of " + fixed_text(100 * attainment, 1) + " % of requests";
}

std::string note_text(const TuneFinding& finding, std::size_t place, bool is_on_front) {
  std::string text;
  if (finding.capacity == 0) return "never within the SLO";
  if (place == 0) {
    text = "best";
  } else if (finding.is_equal_to_best) {
    text = "equal";
  } else if (!finding.is_finalist) {
    text = "dropped after " + std::to_string(finding.num_requests) + " requests";
  }
  if (is_on_front) text += text.empty() ? "front" : ", front";
  return text;
}

std::string band_text(const TuneFinding& finding) {
  if (!finding.is_finalist) return "-";
  return (finding.low > 0 ? fixed_text(finding.low, 2) + " to " : "up to ") +
         fixed_text(finding.high, 2);
}

void print_table(std::ostream& out, const std::vector<TuneFinding>& findings,
                 const std::vector<std::string>& names) {
  const std::vector<std::size_t> front = pareto_front(findings);
  std::vector<std::vector<std::string>> rows = {{"setting", "highest req/s", "90 % band",
                                                 "goodput req/s", "output tok/s", "p99 TTFT ms",
                                                 "p99 ITL ms", ""}};
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const TuneFinding& finding = findings[i];
    const bool is_on_front = std::find(front.begin(), front.end(), i) != front.end();
    const std::string note = note_text(finding, i, is_on_front);
    const TuneTrial* trial = finding.best_trial();
    const std::string name = printable(names[finding.setting]);
    if (trial == nullptr) {
      rows.push_back({name, "0", "-", "-", "-", "-", "-", note});
      continue;
    }
    rows.push_back({name, (finding.is_unbounded ? "over " : "") + fixed_text(finding.capacity, 2),
                    band_text(finding), fixed_text(trial->goodput, 2),
                    fixed_text(trial->output_throughput, 0), ms_text(trial->p99_ttft_ms),
                    ms_text(trial->p99_itl_ms), note});
  }
  out << aligned_rows(rows);
}

void print_flags(std::ostream& out, const Scenario& scenario) {
  for (const EngineFlags& flags : engine_flags(scenario)) {
    out << '\n'
        << flags.engine << ' ' << flags.version << ":\n  "
        << wrapped(joined_flags(flags), 2, output_columns());
    for (const std::string& note : flags.notes) out << "  - " << wrapped(note, 4, output_columns());
  }
}

// The scenario as a file that is valid in any folder; JSON is YAML.
std::string scenario_text(const Scenario& scenario) {
  namespace fs = std::filesystem;
  Json config = Json::parse(scenario.to_json());
  for (const char* key : {"file", "request_log"}) {
    if (scenario.workload.trace.file.empty()) break;
    Json& file = config.at("workload").at("trace").at(key);
    if (file == "") continue;
    file = fs::absolute(file.get<std::string>()).lexically_normal().string();
  }
  return config.dump(2) + "\n";
}

// The winner's scheduler, engine and cache as sections of a scenario.
void print_yaml(std::ostream& out, const Scenario& winner) {
  const Json config = Json::parse(winner.to_json());
  out << "\nas YAML:\n";
  for (const char* section : {"engine", "kv_cache", "scheduler"}) {
    std::string text = std::string(section) + ": {";
    bool is_first = true;
    for (const auto& [key, value] : config.at(section).items()) {
      text += (is_first ? "" : ", ") + key + ": ";
      text += value.is_string() ? value.get<std::string>() : value.dump();
      is_first = false;
    }
    out << "  " << wrapped(printable(text + "}"), 4, output_columns());
  }
}

Json to_json(const CommandOptions& options, const Candidates& candidates,
             const std::vector<TuneFinding>& findings, const TuneWorkloads& workloads) {
  const SloConfig& slo = candidates.plan.runs.front().scenario.slo;
  const auto or_null = [](const std::optional<double>& limit) {
    return limit ? Json(*limit) : Json(nullptr);
  };
  Json json = {{std::string(kResultSchemaKey), kResultSchema},
               {"scenario", options.request.scenario},
               {"slo",
                {{"ttft_ms", or_null(slo.ttft_ms)},
                 {"tpot_ms", or_null(slo.tpot_ms)},
                 {"itl_ms", or_null(slo.itl_ms)},
                 {"e2el_ms", or_null(slo.e2el_ms)}}},
               {"attainment", options.attainment},
               {"num_requests", workloads.num_requests()},
               {"num_seeds", workloads.num_seeds()},
               {"settings", Json::array()}};
  const std::vector<std::size_t> front = pareto_front(findings);
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const TuneFinding& finding = findings[i];
    Json entry = {{"setting", candidates.names[finding.setting]},
                  {"highest_request_rate", finding.capacity},
                  {"is_unbounded", finding.is_unbounded},
                  {"is_finalist", finding.is_finalist},
                  {"num_requests", finding.num_requests},
                  {"low", finding.is_finalist ? Json(finding.low) : Json(nullptr)},
                  {"high", finding.is_finalist ? Json(finding.high) : Json(nullptr)},
                  {"is_equal_to_best", finding.is_equal_to_best},
                  {"is_on_front", std::find(front.begin(), front.end(), i) != front.end()},
                  {"trials", Json::array()}};
    for (const TuneTrial& trial : finding.trials) {
      entry["trials"].push_back({{"request_rate", trial.load},
                                 {"num_judged", trial.good.size()},
                                 {"slo_attainment", trial.attainment},
                                 {"request_goodput", trial.goodput},
                                 {"output_throughput", trial.output_throughput},
                                 {"p99_ttft_ms", trial.p99_ttft_ms},
                                 {"p99_itl_ms", trial.p99_itl_ms}});
    }
    entry["config"] = Json::parse(candidates.plan.runs[finding.setting].scenario.to_json());
    json["settings"].push_back(std::move(entry));
  }
  return json;
}

std::vector<TuneFinding> search(const CommandOptions& options, const SweepPlan& plan,
                                const std::vector<std::string>& names,
                                const TuneWorkloads& workloads) {
  std::vector<std::unique_ptr<TuneSetting>> settings;
  for (const SweepRun& run : plan.runs) {
    settings.push_back(std::make_unique<TuneSetting>(run.scenario, workloads));
  }
  TuneOptions tuning;
  tuning.attainment = options.attainment;
  tuning.first_load = workloads.given_load();
  tuning.num_requests = workloads.num_requests();
  tuning.num_jobs = options.num_jobs;
  ProgressBar bar(!options.is_quiet);
  std::mutex mutex;
  std::size_t num_trials = 0;
  return tune(
      settings.size(), tuning,
      [&](std::size_t setting, double load, std::size_t num_requests) {
        TuneTrial trial = settings[setting]->run(load, num_requests);
        const std::lock_guard lock(mutex);
        bar.show("trial " + std::to_string(++num_trials) + ": " + printable(names[setting]));
        return trial;
      },
      throw_if_interrupted);
}

}  // namespace

int tune_command(const Arguments& arguments) {
  const std::optional<CommandOptions> parsed = parse(arguments);
  if (!parsed) return kExitDone;
  const CommandOptions& options = *parsed;
  const SweepRequest& request = options.request;
  const ScenarioFile file =
      load_scenario(request.scenario, request.assignments, request.seed, request.backend);
  const std::vector<Scenario> chosen = chosen_variants(file, request.variants);
  const Candidates candidates = find_candidates(options, file);
  const Scenario& first = candidates.plan.runs.front().scenario;
  check_slo(first);
  check_no_sessions(first);
  check_alike(candidates.plan);
  const TuneWorkloads workloads(first, options.num_seeds);
  const std::string out = !options.out.empty()
                              ? options.out
                              : default_folder(request.scenario, *make_backend(request.backend),
                                               chosen, request.variants.empty()) +
                                    ".tune";
  catch_signals();
  ResultFolder folder(out);
  std::ostream& text = text_stream(options.is_quiet, options.wants_json);
  text << "scenario    " << wrapped(one_line(file.path), 12, output_columns()) << "slo         "
       << slo_text(first.slo, options.attainment) << '\n'
       << "settings    " << candidates.names.size() << ", each with "
       << grouped_text(static_cast<std::int64_t>(workloads.num_requests())) << " requests ("
       << workloads.num_seeds() << (workloads.num_seeds() == 1 ? " workload" : " workloads")
       << ") or more, from " << fixed_text(workloads.given_load(), 2)
       << " per second up and down\n\n"
       << std::flush;
  const std::vector<TuneFinding> findings =
      search(options, candidates.plan, candidates.names, workloads);
  const TuneFinding& best = findings.front();
  const Scenario& winner = candidates.plan.runs[best.setting].scenario;
  const std::string json = to_json(options, candidates, findings, workloads).dump(2) + "\n";
  folder.write(kTuneFile, json);
  folder.write(kBestFile, scenario_text(winner));
  folder.commit();
  if (options.wants_json) std::cout << json;
  print_table(text, findings, candidates.names);
  if (best.capacity == 0) {
    throw std::runtime_error("no setting meets the SLO at any load; see " + printable(out));
  }
  text << "\nbest: " << printable(candidates.names[best.setting]) << '\n';
  print_yaml(text, winner);
  print_flags(text, winner);
  text << "\nresults: " << printable(out) << '\n';
  return kExitDone;
}

}  // namespace metronome
