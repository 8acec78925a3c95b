// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/request_log_run.h"

#include <fmt/core.h>
#include <span>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "sim/corrected/corrected_fit.h"
#include "sim/cost/cost_model_file.h"
#include "sim/simulation.h"

namespace metronome {
namespace {

// A server that is not warm takes longer for its first step, and more requests arrive meanwhile. If
// the simulated engine has no such pause, none of its later steps is that of the log. Takes the
// shortest pause with which most steps fit.
void find_cold_start(RequestLogRun& run) {
  constexpr double kTriedMs[] = {20, 40, 60, 80, 110, 150, 200, 280, 400, 560, 800, 1100, 1600};
  const auto num_steps = [](const PinnedRun& pinned) {
    const std::span<const PinnedInterval> telling = telling_intervals(pinned);
    return telling.empty() ? 0 : telling.back().end;
  };
  if (telling_intervals(run.pinned).size() >= kMinIntervals) return;
  for (const double ms : kTriedMs) {
    Scenario tried = run.scenario;
    tried.cost_model.cold_start_ms = ms;
    PinnedRun pinned = run_pinned(tried, run.log);
    if (num_steps(pinned) <= num_steps(run.pinned)) continue;
    run.scenario.cost_model.cold_start_ms = ms;
    run.found_cold_start_ms = ms;
    run.pinned = std::move(pinned);
  }
}

void require_base(const Scenario& scenario) {
  const std::string& base = scenario.cost_model.file;
  if (base.empty()) return;
  const SourceLocation where = scenario.location_of("cost_model.file");
  if (find_cost_model_file(base, where).kind != "corrected") return;
  fail_config(where, "cost_model.file",
              base + " is a correction itself; allowed: the cost model that it corrects, or none");
}

// The fact that a client's result lacks; nullptr: none.
const char* missing_times(const ObservedRun& run) {
  if (run.requests.empty()) return "requests: it has figures alone";
  if (!run.client->has_starts()) return "the times at which requests were sent";
  for (const ObservedRequest& request : run.requests) {
    if (request.first_token == kNoTime) return "the first tokens of its requests";
    if (request.last_token == kNoTime) return "the last tokens of its requests";
  }
  return nullptr;
}

void require_times(const ObservedRun& run) {
  constexpr const char* kAllowed =
      "; allowed: the result of a client with the start, first and last token of each request, or "
      "JSON Lines with queued_ts, scheduled_ts, first_token_ts and last_token_ts";
  if (run.format == RunFormat::RequestLog) return;
  if (run.format != RunFormat::Client) {
    throw ConfigError(run.path + ": is not a request log" + kAllowed);
  }
  if (const char* const missing = missing_times(run)) {
    throw ConfigError(run.path + ": is a result of " + run.client->client + " without " + missing +
                      kAllowed);
  }
}

}  // namespace

RequestLogRun follow_request_log(const std::string& path, std::optional<std::int64_t> run_number,
                                 const std::string& scenario,
                                 const std::vector<std::string>& assignments,
                                 std::optional<double> until_s) {
  if (scenario.empty()) {
    throw UsageError(
        "calibrate: " + path +
        " has the times of tokens, but not the computed steps; allowed: --scenario FILE "
        "in addition, with the engine, the policy and the requests of the log");
  }
  ScenarioFile file = load_scenario(scenario, assignments, std::nullopt);
  if (file.variants.size() != 1) {
    throw UsageError(fmt::format("--scenario: {} has {} variants; allowed: one", scenario,
                                 file.variants.size()));
  }
  RequestLogRun run;
  run.log = read_observed_run(path, {.run_number = run_number});
  require_times(run.log);
  if (until_s) forget_after(static_cast<TimeNs>(*until_s * 1e9), run.log);
  run.until_s = until_s;
  run.scenario = std::move(file.variants.front());
  require_base(run.scenario);
  const Simulation simulation = prepare_simulation(run.scenario);
  run.model = simulation.model;
  run.hardware = simulation.hardware;
  run.pinned = run_pinned(run.scenario, run.log);
  if (run.scenario.source->find_path("cost_model.cold_start_ms") == nullptr) find_cold_start(run);
  return run;
}

std::string contradiction_remark(const RequestLogRun& run) {
  if (run.pinned.contradictions.empty()) return "";
  const Contradiction& first = run.pinned.contradictions.front();
  const TimeNs at = run.pinned.steps[static_cast<std::size_t>(first.step)].earliest;
  return fmt::format(
      "the simulated steps differ from the measured ones from {} s on: step {} {}; later steps are "
      "left out",
      fixed_text(to_seconds(at), 1), first.step, first.what);
}

}  // namespace metronome
