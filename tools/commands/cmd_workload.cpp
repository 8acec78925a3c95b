// SPDX-License-Identifier: Apache-2.0
// `metronome workload`: what a scenario's workload is, and how much of it the engine can do.
#include <algorithm>
#include <fmt/core.h>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "core/workload/trace_writer.h"
#include "core/workload/workload_profile.h"
#include "reports/terminal/text.h"
#include "study/run/saturation.h"
#include "study/run/variant_run.h"
#include "system/file_writer.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/run_choice.h"
#include "tools/commands/scenario_choice.h"

namespace metronome {
namespace {

struct WorkloadOptions {
  ChosenScenario scenario;
  std::vector<std::string> assignments;
  std::vector<std::string> variants;
  std::optional<std::string> seed_text;
  bool wants_json = false;
  std::string trace_path;  // empty: no trace is written
  std::string trace_format = "plain";
};

constexpr const char* kWorkloadExamples =
    "examples:\n"
    "  metronome workload scenarios/quickstart.yaml\n"
    "  metronome workload scenarios/sessions.yaml --set workload.arrivals.rate=2\n"
    "  metronome workload scenarios/quickstart.yaml --json\n"
    "  metronome workload scenarios/sessions.yaml --write-trace sessions.jsonl\n"
    "\n"
    "exit codes: 0 done, 1 no request can be served, 2 bad input, 130 interrupted\n";

OptionList option_list(WorkloadOptions& options, ScenarioOptions& scenario) {
  OptionList list = {
      {"set KEY=VALUE", &options.assignments,
       "override a key (see `metronome list keys`); repeatable"},
      {"variant NAME", &options.variants, "only this variant; repeatable"},
      {"seed N", &options.seed_text, "override the scenario's seed"},
      {"write-trace FILE", &options.trace_path, "write the requests as a trace"},
      {"trace-format NAME", &options.trace_format, "format of that trace; plain by default"},
      {"json", &options.wants_json, "print the same as JSON, on standard output"},
  };
  add_scenario_options(scenario, list);
  return list;
}

constexpr CommandText kWorkloadText = {
    .name = "workload",
    .arguments = "SCENARIO [OPTION...] | --command TEXT --gpu NAME [OPTION...]",
    .summary =
        "Describes the workload of a scenario: requests and their rate, lengths, and the\n"
        "tokens that prompts share. Compares the load with the capacity of the simulated\n"
        "engine. The capacity is simulated with a queue that is never empty: up to 1000\n"
        "requests, or eight times as many as may run at once.\n",
    .examples = kWorkloadExamples,
    .file_name = "SCENARIO",
    .file_kind = "scenario file",
    .files = FileCount::AtMostOne};

std::string arrivals_text(const ArrivalConfig& arrivals, const Workload& workload,
                          const WorkloadProfile& profile) {
  const std::string what = workload.has_sessions() ? "sessions" : "requests";
  if (workload.mode == ArrivalMode::ClosedLoop) {
    return fmt::format("closed loop of {} {}", workload.concurrency, what);
  }
  if (workload.mode == ArrivalMode::Steps) return "at engine steps";
  if (!profile.requests_per_s) return "all at the start";
  constexpr std::string_view kNames[] = {"poisson",     "gamma", "constant",   "bursts",
                                         "closed loop", "steps", "as recorded"};
  return std::string(kNames[static_cast<std::size_t>(arrivals.process)]) + ", the last " +
         (workload.has_sessions() ? "session " : "") + "after " +
         fixed_text(to_seconds(profile.last_arrival), 1) +
         " s: " + fixed_text(*profile.requests_per_s, 3) + " requests/s" +
         (workload.has_sessions() ? " once as many sessions end as start" : "");
}

std::vector<std::string> row_of(const std::string& name, const CountFigures& figures) {
  std::vector<std::string> row = {name, grouped_text(figures.mean, 1)};
  for (const std::int64_t count :
       {figures.p50, figures.p90, figures.p99, figures.max, figures.total}) {
    row.push_back(grouped_text(count));
  }
  return row;
}

void print_workload(const PreparedVariant& variant, const WorkloadProfile& profile) {
  const Workload& workload = *variant.workload;
  std::string requests = grouped_text(profile.num_requests);
  if (workload.has_sessions()) {
    requests += " in " + count_text(workload.num_sessions(), "session");
  }
  say("requests", requests);
  say("arrivals", arrivals_text(variant.scenario.workload.arrivals, workload, profile));
  const double share =
      static_cast<double>(profile.shared_tokens) / static_cast<double>(profile.prompt_tokens.total);
  say("shared",
      percent_text(share, 1) + " of the prompt tokens, the upper bound of prefix cache hits");
  if (!workload.unused_fields.empty()) say("not used", unused_fields_text(workload));
  for (const std::string& warning : workload_warnings(variant.scenario.workload)) {
    say("warning", warning);
  }
  std::vector<std::vector<std::string>> rows = {
      {"tokens", "mean", "p50", "p90", "p99", "max", "total"},
      row_of("prompt", profile.prompt_tokens)};
  if (workload.has_sessions()) rows.push_back(row_of("  of it new", profile.new_tokens));
  rows.push_back(row_of("output", profile.output_tokens));
  std::cout << '\n' << aligned_rows(rows);
  if (!workload.has_sessions()) return;
  std::cout << '\n'
            << aligned_rows({{"requests", "mean", "p50", "p90", "p99", "max", "total"},
                             row_of("of a session", profile.session_requests)});
}

// A row of the table of loads, with the mean tokens of a request.
std::vector<std::string> rates_of(const std::string& name, double requests_per_s,
                                  double prompt_tokens, double output_tokens) {
  return {name, grouped_text(requests_per_s, 2), grouped_text(requests_per_s * prompt_tokens, 0),
          grouped_text(requests_per_s * output_tokens, 0)};
}

// ---- JSON ----

Json json_of(const CountFigures& figures) {
  return {{"mean", figures.mean}, {"p50", figures.p50}, {"p90", figures.p90},
          {"p99", figures.p99},   {"max", figures.max}, {"total", figures.total}};
}

Json json_of(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json json_of(const PreparedVariant& variant, const WorkloadProfile& profile) {
  const Workload& workload = *variant.workload;
  Json json = Json::object();
  json["num_requests"] = profile.num_requests;
  json["num_sessions"] =
      workload.has_sessions() ? Json(static_cast<std::int64_t>(workload.num_sessions())) : Json();
  json["requests_per_s"] = json_of(profile.requests_per_s);
  json["last_arrival_s"] = to_seconds(profile.last_arrival);
  json["concurrency"] =
      workload.mode == ArrivalMode::ClosedLoop ? Json(workload.concurrency) : Json();
  json["shared_tokens"] = profile.shared_tokens;
  json["prompt_tokens"] = json_of(profile.prompt_tokens);
  json["output_tokens"] = json_of(profile.output_tokens);
  if (workload.has_sessions()) {
    json["new_tokens"] = json_of(profile.new_tokens);
    json["session_requests"] = json_of(profile.session_requests);
  }
  if (!workload.unused_fields.empty()) json["unused_fields"] = Json(workload.unused_fields);
  json["warnings"] = Json::array();
  for (const std::string& warning : workload_warnings(variant.scenario.workload)) {
    json["warnings"].push_back(warning);
  }
  return json;
}

// The most that each variant serves, as print_loads() measures it.
Json json_of_loads(std::span<PreparedVariant> variants, const WorkloadProfile& profile,
                   bool& serves_any) {
  Json json = Json::array();
  for (PreparedVariant& variant : variants) {
    const Saturation saturation = saturation_of(variant);
    const double most = saturation.requests_per_s;
    const double share = static_cast<double>(saturation.num_served) /
                         static_cast<double>(std::max<std::int64_t>(saturation.num_tried, 1));
    serves_any = serves_any || most > 0;
    Json entry = Json::object();
    entry["variant"] = variant.scenario.name;
    entry["device"] = variant.run->device;
    entry["most_requests_per_s"] = most;
    entry["most_prompt_tokens_per_s"] = most * saturation.prompt_tokens;
    entry["most_output_tokens_per_s"] = most * saturation.output_tokens;
    entry["num_served"] = saturation.num_served;
    entry["num_tried"] = saturation.num_tried;
    entry["load"] =
        profile.requests_per_s && most > 0 ? Json(*profile.requests_per_s * share / most) : Json();
    json.push_back(std::move(entry));
  }
  return json;
}

// ---- texts ----

// Prints the load that the workload puts on each variant, and the most that the variant serves.
// Returns whether any variant serves a request.
bool print_loads(std::span<PreparedVariant> variants, const WorkloadProfile& profile) {
  std::vector<std::vector<std::string>> rows = {
      {"a second", "requests", "prompt tokens", "output tokens", "load"}};
  const std::optional<double> offered = profile.requests_per_s;
  const double prompt_tokens = profile.prompt_tokens.mean;
  const double output_tokens = profile.output_tokens.mean;
  if (offered) rows.push_back(rates_of("offered", *offered, prompt_tokens, output_tokens));
  bool is_too_much = false;
  bool serves_any = false;
  for (PreparedVariant& variant : variants) {
    const Saturation saturation = saturation_of(variant);
    const double most = saturation.requests_per_s;
    const bool serves_all = saturation.num_served == saturation.num_tried;
    serves_any = serves_any || most > 0;
    if (!serves_all) {
      const std::int64_t num_left = saturation.num_tried - saturation.num_served;
      const std::string what = most > 0 ? grouped_text(num_left) + " of " +
                                              count_text(saturation.num_tried, "request") +
                                              " cannot be served; its row is for the others"
                                        : "no request of this workload can be served";
      std::cerr << "warning: " << printable(variant.scenario.name) << ": " << what
                << "; `metronome run` says why\n";
    }
    rows.push_back(rates_of(variant.scenario.name + " on " + variant.run->device, most,
                            serves_all ? prompt_tokens : saturation.prompt_tokens,
                            serves_all ? output_tokens : saturation.output_tokens));
    if (!offered) continue;
    const double share = static_cast<double>(saturation.num_served) /
                         static_cast<double>(std::max<std::int64_t>(saturation.num_tried, 1));
    const double load = *offered * share / most;
    rows.back().push_back(most > 0 ? percent_text(load, 0) : "-");
    is_too_much = is_too_much || (most > 0 && load > 1);
  }
  std::cout << '\n' << aligned_rows(rows);
  if (is_too_much) {
    std::cout << "Above 100 % the engine is saturated: the queue grows until arrivals end.\n";
  }
  return serves_any;
}

// Writes the requests as a trace.
void write_trace(const WorkloadOptions& options, const Workload& workload) {
  const std::optional<TraceFormat> format = trace_format_of(options.trace_format);
  if (!format) {
    throw UsageError("--trace-format: '" + printable(options.trace_format) +
                     "' is none; allowed: " + writable_formats());
  }
  try {
    write_file(options.trace_path, trace_text(workload, *format));
  } catch (const UnplacedConfigError& error) {
    throw UsageError("--trace-format: " + error.message());
  }
}

}  // namespace

int workload_command(const Arguments& arguments) {
  WorkloadOptions options;
  ScenarioOptions scenario;
  const auto line = parse_command(kWorkloadText, option_list(options, scenario), arguments);
  if (!line) return kExitDone;
  options.scenario = choose_scenario(kWorkloadText, *line, scenario, "");
  std::optional<std::uint64_t> seed;
  if (options.seed_text) seed = parse_seed(*options.seed_text);
  const ScenarioFile file = load_scenario(options.scenario.path, options.assignments, seed);
  const std::unique_ptr<Backend> backend = make_backend("sim");
  std::vector<PreparedVariant> variants =
      prepare_variants(*backend, chosen_variants(file, options.variants));
  catch_signals();
  if (!options.trace_path.empty()) write_trace(options, *variants.front().workload);
  print_choice(text_stream(false, options.wants_json), options.scenario);
  bool serves_any = false;
  Json all = Json::array();
  // Variants mostly share a workload.
  for (std::size_t begin = 0, end = 0; begin < variants.size(); begin = end) {
    while (end < variants.size() && variants[end].workload == variants[begin].workload) ++end;
    const WorkloadProfile profile = profile_of(*variants[begin].workload);
    if (options.wants_json) {
      all.push_back(json_of(variants[begin], profile));
      all[all.size() - 1]["variants"] =
          json_of_loads(std::span(variants).subspan(begin, end - begin), profile, serves_any);
      continue;
    }
    if (begin > 0) std::cout << '\n';
    if (end - begin < variants.size()) say("of variant", variants[begin].scenario.name);
    print_workload(variants[begin], profile);
    serves_any =
        print_loads(std::span(variants).subspan(begin, end - begin), profile) || serves_any;
  }
  if (options.wants_json) {
    Json json = Json::object();
    json["workloads"] = std::move(all);
    std::cout << json.dump({.indent = 2, .replaces_bad_utf8 = true}) << '\n';
  }
  return serves_any ? kExitDone : kExitRunFailed;
}

}  // namespace metronome
