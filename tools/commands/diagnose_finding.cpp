// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/diagnose_finding.h"

#include <fmt/core.h>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/wrapped_text.h"
#include "core/run/prepared_variant.h"
#include "reports/terminal/text.h"
#include "study/run/fleet_records.h"
#include "study/run/variant_run.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/diagnose_notes.h"
#include "tools/commands/goal_options.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

// The limits of a run, with the command's in their place.
std::vector<Goal> goals_of_run(const StoredRun& run, const DiagnoseOptions& options) {
  return goals_of(with_options(run.result.info.slo, options.targets));
}

// A sample of the simulated or the logged figures.
void append_figures(const char* name, const Distribution& itl, const Distribution& ttft,
                    JsonText& json) {
  json.key(name).begin_object();
  json.field("p50_itl_ms", itl.p50_ms);
  json.field("p99_itl_ms", itl.p99_ms);
  json.field("max_itl_ms", itl.max_ms);
  json.field("p50_ttft_ms", ttft.p50_ms);
  json.field("p99_ttft_ms", ttft.p99_ms);
  json.end_object();
}

void append_workload(const LogWorkloadFacts& workload, JsonText& json) {
  json.key("workload").begin_object();
  json.field("requests", workload.num_requests);
  json.field("exact", workload.num_exact);
  json.field("of_client", workload.num_from_client);
  json.field("fitted_steps", workload.num_fitted_steps);
  append_figures("logged", workload.logged_itl, workload.logged_ttft, json);
  append_figures("as_logged", workload.as_logged.itl, workload.as_logged.ttft, json);
  if (workload.with_flags) {
    append_figures("with_flags", workload.with_flags->itl, workload.with_flags->ttft, json);
  }
  if (workload.running) {
    json.field("running_logged", workload.running->logged);
    json.field("running_simulated", workload.running->simulated);
  }
  if (workload.draws) {
    json.key("draws").begin_object();
    json.field("count", workload.draws->num_draws);
    json.field("least_p99_itl_ms", workload.draws->p99_itl.low);
    json.field("most_p99_itl_ms", workload.draws->p99_itl.high);
    json.field("least_p99_ttft_ms", workload.draws->p99_ttft.low);
    json.field("most_p99_ttft_ms", workload.draws->p99_ttft.high);
    json.end_object();
  }
  json.end_object();
}

}  // namespace

void replay(const StoredRun& run, const DiagnoseOptions& options, const std::string& engine,
            Finding& finding) {
  const bool is_log = finding.pressure.has_value();
  if (options.has_no_replay || (run.result.summary.completed == 0 && !is_log)) return;
  const std::vector<Goal> goals = goals_of_run(run, options);
  if (goals.empty() && is_log && !finding.workload) {
    finding.notes.push_back(
        "There is no limit: give --target-itl MS, --target-ttft MS or --target-rate TOK/S to "
        "search "
        "for settings that keep it.");
    return;
  }
  // A log has gaps of its own, and none of requests that lost their blocks.
  const bool has_unseen_gaps = is_log && finding.pressure->num_preempted > 0;
  const bool has_long_gaps = is_log && finding.limit_ms && finding.itl.max_ms > *finding.limit_ms;
  if (!goals.empty() && !has_unseen_gaps && !has_long_gaps && keeps_goals(run, goals)) {
    finding.notes.push_back("The run keeps " + goal_words(goals) + ": there is nothing to change.");
    return;
  }
  ProgressBar bar(!options.is_quiet);
  finding.what_if = find_smallest_change(
      run,
      {.goals = options.targets,
       .hardware = options.hardware,
       .engine = engine,
       .num_threads = options.num_threads > 0 ? options.num_threads : default_jobs()},
      [&bar](const std::string& name) { bar.start(name); },
      [&bar](const RunProgress& now) {
        bar.update(now.num_ended, now.num_total);
        return true;
      });
  bar.clear();
}

StoredRun run_scenario(const std::string& name, const Scenario& scenario, bool is_quiet) {
  std::vector<Scenario> variants = {scenario};
  const std::unique_ptr<Backend> backend = make_backend(std::string(kBackendNames[0]));
  std::vector<PreparedVariant> prepared = prepare_variants(*backend, std::move(variants));
  require_steps(prepared.front());
  ProgressBar bar(!is_quiet);
  bar.start(name);
  VariantOutcome outcome =
      run_variant(*backend, prepared.front(), nullptr, [&bar](const RunProgress& now) {
        bar.update(now.num_ended, now.num_total);
        return true;
      });
  bar.clear();
  return {name, std::move(outcome.result), std::move(outcome.record)};
}

void append_finding(const Finding& finding, JsonText& json) {
  json.begin_object();
  json.field("label", finding.title);
  if (!finding.engine_json.empty()) json.key("engine").raw(finding.engine_json);
  json.key("itl_limit_ms");
  if (finding.limit_ms) {
    json.value(*finding.limit_ms);
  } else {
    json.null();
  }
  json.field("p50_itl_ms", finding.itl.p50_ms);
  json.field("p99_itl_ms", finding.itl.p99_ms);
  json.field("max_itl_ms", finding.itl.max_ms);
  append_diagnosis(finding.diagnosis, json);
  json.key("causes");
  append_causes(finding.causes, json);
  json.key("notes").begin_array();
  for (const std::string& note : finding.notes) json.value(note);
  json.end_array();
  if (finding.workload) append_workload(*finding.workload, json);
  if (finding.pressure) {
    json.key("cache_pressure");
    append_pressure(*finding.pressure, json);
  }
  json.key("what_if");
  if (finding.what_if) {
    append_what_if(*finding.what_if, json);
  } else {
    json.null();
  }
  json.end_object();
}

}  // namespace metronome
