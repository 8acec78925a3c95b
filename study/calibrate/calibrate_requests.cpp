// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_requests.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/metrics/recorded_steps.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/engine_setup.h"
#include "reports/measured/measured_reader.h"
#include "reports/terminal/text.h"
#include "sim/corrected/corrected_file.h"
#include "sim/corrected/corrected_fit.h"
#include "sim/roofline/roofline.h"
#include "sim/simulation.h"
#include "study/calibrate/request_log_run.h"
#include "system/file_writer.h"

namespace metronome {
namespace {

double seconds(TimeNs ns) { return static_cast<double>(ns) / static_cast<double>(kNsPerMs) / 1e3; }

std::vector<PredictedStep> predicted_steps(const PinnedRun& run) {
  std::vector<PredictedStep> steps;
  for (const PinnedStep& step : run.steps) {
    const auto attention = static_cast<double>(step.predicted.attention_ns);
    const auto comm = static_cast<double>(step.predicted.comm_ns);
    steps.push_back({static_cast<double>(step.predicted.total_ns) - attention - comm, attention,
                     comm, step.num_prefill_tokens, step.num_decode_tokens});
  }
  return steps;
}

// The device time of an interval. Visible host gaps are assumed to have the scenario's length.
double device_ns(const PinnedRun& run, const PinnedInterval& interval) {
  TimeNs gaps = 0;
  for (std::size_t i = interval.begin; i < interval.end; ++i) {
    gaps += run.steps[i].cost - run.steps[i].predicted.total_ns;
  }
  return static_cast<double>(interval.took - gaps);
}

std::vector<MeasuredInterval> measured_intervals(const PinnedRun& run,
                                                 std::span<const PinnedInterval> telling) {
  std::vector<MeasuredInterval> intervals;
  for (const PinnedInterval& interval : telling) {
    const bool follows = !intervals.empty() && intervals.back().end == interval.begin &&
                         !run.steps[interval.begin].is_after_idle;
    intervals.push_back({interval.begin, interval.end, device_ns(run, interval), follows});
  }
  return intervals;
}

std::int64_t num_steps_of(std::span<const MeasuredInterval> intervals) {
  std::int64_t count = 0;
  for (const MeasuredInterval& interval : intervals) {
    count += static_cast<std::int64_t>(interval.end - interval.begin);
  }
  return count;
}

TimeNs end_of(const PinnedRun& run, const MeasuredInterval& interval) {
  return run.steps[interval.end - 1].earliest;
}

std::string off_text(const CorrectionFit& check) {
  return "off by " + signed_percent(check.sum_error) + " in sum, " +
         fixed_text(100 * check.mean_abs_error, 2) + " % on average";
}

// The errors before and after the correction.
std::string errors_text(const StepFactors& factors, const PinnedRun& run,
                        std::span<const MeasuredInterval> intervals) {
  const std::vector<PredictedStep> steps = predicted_steps(run);
  return off_text(check_factors(unit_factors(), steps, intervals)) + "; corrected " +
         off_text(check_factors(factors, steps, intervals));
}

std::string intervals_text(const PinnedRun& run, std::span<const MeasuredInterval> intervals) {
  return grouped_text(std::ssize(intervals)) + " intervals of " +
         count_text(num_steps_of(intervals), "step") + ", " +
         fixed_text(seconds(run.steps[intervals.front().begin].started_at), 1) + " to " +
         fixed_text(seconds(end_of(run, intervals.back())), 1) + " s";
}

BaseScatter base_scatter(const Scenario& scenario) {
  const std::string& base = scenario.cost_model.file;
  if (base.empty()) return {};
  const SourceLocation where = scenario.location_of("cost_model.file");
  return find_cost_model_file(base, where).kind == "profile" ? kProfileScatter : BaseScatter{};
}

// How well a correction fitted to the beginning predicts the rest.
void print_check(const CorrectionOptions& options, const RequestLogRun& beginning,
                 const StepFactors& factors) {
  std::vector<std::string> assignments = options.assignments;
  if (const auto& ms = beginning.found_cold_start_ms) {
    assignments.push_back("cost_model.cold_start_ms=" + fixed_text(*ms, 0));
  }
  const RequestLogRun whole = follow_request_log(options.log, options.run_number, options.scenario,
                                                 assignments, std::nullopt);
  std::vector<MeasuredInterval> intervals =
      measured_intervals(whole.pinned, telling_intervals(whole.pinned));
  const auto until_ns = static_cast<TimeNs>(*options.until_s * 1e9);
  std::erase_if(intervals, [&](const MeasuredInterval& interval) {
    return end_of(whole.pinned, interval) <= until_ns;
  });
  if (intervals.empty()) return say("later", "the log does not give the times of these steps");
  say("later", intervals_text(whole.pinned, intervals) + "; " +
                   errors_text(factors, whole.pinned, intervals));
  const std::vector<PredictedStep> steps = predicted_steps(whole.pinned);
  const auto error = [&](const StepFactors& tried) {
    return check_factors(tried, steps, intervals).mean_abs_error;
  };
  if (error(factors) <= error(unit_factors())) return;
  say("remark",
      "the correction makes the predictions of later steps worse; a longer fit "
      "(--until) may improve them");
}

void print_link(const RequestLogRun& run, const StepFactors& factors) {
  constexpr double kMentioned = 0.01;
  if (std::abs(factors.link - 1) < kMentioned) return;
  say("link", "collectives take " + fixed_text(factors.link, 2) +
                  " times the predicted time; without the other factors, cost_model.link_factor: " +
                  fixed_text(factors.link * run.scenario.cost_model.link_factor, 2) +
                  " simulates this");
}

void require_enough(const RequestLogRun& run, std::size_t num_intervals) {
  if (num_intervals >= kMinIntervals) return;
  const std::string why = contradiction_remark(run);
  throw ConfigError(
      fmt::format("{}: gives the times of {} intervals of steps{}; allowed: at least {}, with the "
                  "settings, requests and first step of the measured run (for a cold server whose "
                  "pause was not found: --set cost_model.cold_start_ms=...)",
                  run.log.path, num_intervals, why.empty() ? "" : " (" + why + ")", kMinIntervals));
}

// If step times differ by more than a few per cent, the settings or the log are wrong.
constexpr double kPlausibleError = 0.04;

// Reports the longer first step of a server that was not warm.
std::string first_step_text(const RequestLogRun& run, const StepFactors& factors) {
  const PinnedInterval& first = run.pinned.intervals.front();
  const std::vector<PredictedStep> steps = predicted_steps(run.pinned);
  const MeasuredInterval interval{first.begin, first.end, device_ns(run.pinned, first), false};
  const CorrectionFit check = check_factors(factors, steps, std::span(&interval, 1));
  const double ms = -check.sum_error * interval.took_ns / 1e6;
  constexpr double kMentioned = 5;
  const double pause_ms = std::max(ms + run.scenario.cost_model.cold_start_ms, 0.0);
  if (std::abs(ms) < kMentioned || pause_ms == run.scenario.cost_model.cold_start_ms) return "";
  return "took " + fixed_text(std::abs(ms), 0) + " ms " + (ms > 0 ? "longer" : "less") +
         " than predicted; cost_model.cold_start_ms: " + fixed_text(pause_ms, 0) +
         " simulates this";
}

void print_ranges(const StepFactors& factors) {
  std::vector<std::vector<std::string>> rows = {{"factor", "of", "tokens", "steps"}};
  const auto add = [&](const std::vector<StepFactors::Range>& ranges, const char* what) {
    std::int64_t from = 1;
    for (const StepFactors::Range& range : ranges) {
      if (range.num_steps > 0) {
        rows.push_back({fixed_text(range.factor, 3), what,
                        fmt::format("{}-{}", from, range.max_tokens),
                        grouped_text(range.num_steps)});
      }
      from = range.max_tokens + 1;
    }
  };
  add(factors.decode, "decodes alone");
  add(factors.prompt, "with prompts");
  rows.push_back({fixed_text(factors.decode_attention, 3), "attention of decodes", "", ""});
  rows.push_back({fixed_text(factors.prompt_attention, 3), "attention with prompts", "", ""});
  if (factors.link != 1) rows.push_back({fixed_text(factors.link, 3), "collectives", "", ""});
  std::cout << '\n' << aligned_rows(rows);
}

// No step of the run may be faster than the hardware.
void check_floor(const RequestLogRun& run, const StepFactors& factors) {
  if (run.hardware.memory_bytes == 0) return;
  const RooflineCostModel roofline(run.model, run.hardware, run.scenario.cost_model);
  const std::vector<PredictedStep> steps = predicted_steps(run.pinned);
  RecordedSteps recorded(run.pinned.record, resolved_step_shape(run.scenario));
  StepPlan plan;
  while (recorded.next(plan)) {
    const std::size_t at = recorded.position();
    const PredictedStep& step = steps[at];
    const double ns = corrected_ns(factors, step);
    const auto floor = static_cast<double>(roofline.floor_ns(roofline.step_work(plan)));
    if (ns + 1 >= floor) continue;
    throw ConfigError(
        fmt::format("{}: after the correction step {} ({} tokens) takes {} us, but {} needs at "
                    "least {} us; allowed: a log, a model and hardware that match",
                    run.log.path, at, step.num_prefill_tokens + step.num_decode_tokens,
                    fixed_text(ns / 1e3, 1), run.hardware.name, fixed_text(floor / 1e3, 1)));
  }
}

CostModelFile file_of(const RequestLogRun& run, const CorrectionFit& fit,
                      std::int64_t num_intervals) {
  const CostModelConfig& config = run.scenario.cost_model;
  CorrectedModel corrected{std::nullopt,      fit,         num_intervals,
                           run.until_s,       config.link, config.network,
                           config.link_factor};
  const std::string& base = run.scenario.cost_model.file;
  if (!base.empty()) {
    corrected.base = find_cost_model_file(base, run.scenario.location_of("cost_model.file"));
  }
  CostModelFile file;
  file.kind = "corrected";
  file.hardware = corrected.base ? corrected.base->hardware : run.hardware.name;
  file.model = corrected.base ? corrected.base->model : run.model.name;
  file.tensor_parallel_size = run.scenario.cost_model.tensor_parallel_size;
  file.engine = corrected.base ? corrected.base->engine : "";
  file.source =
      "requests of " + run.log.path +
      (run.until_s ? ", its first " + fixed_text(*run.until_s, 1) + " s" : std::string()) +
      (corrected.base ? "; base: " + corrected.base->source : std::string());
  file.body = std::make_shared<const Json>(corrected_body(corrected));
  return file;
}

}  // namespace

bool has_request_times(const std::string& path) {
  std::ifstream file = open_input(path);
  char first = 0;
  return (file >> first && first == '{') || is_measured(path);
}

void calibrate_from_requests(const CorrectionOptions& options) {
  const RequestLogRun run = follow_request_log(options.log, options.run_number, options.scenario,
                                               options.assignments, options.until_s);
  const std::vector<MeasuredInterval> intervals =
      measured_intervals(run.pinned, telling_intervals(run.pinned));
  require_enough(run, intervals.size());
  const CorrectionFit fit =
      fit_correction(predicted_steps(run.pinned), intervals, base_scatter(run.scenario));
  const std::string& base = run.scenario.cost_model.file;
  say("corrected", base.empty() ? "the roofline of " + run.hardware.name : printable(base));
  say("fitted to", intervals_text(run.pinned, intervals) + "; the uncertainty of an instant is " +
                       fixed_text(fit.instant_ns / 1e6, 1) + " ms");
  if (run.log.client) {
    say("remark",
        "the times are those of a client, with the way to the server and back: the correction "
        "includes what differs from request to request");
  }
  if (run.found_cold_start_ms) {
    say("cold start", fixed_text(*run.found_cold_start_ms, 0) +
                          " ms, the shortest with which the steps fit the log "
                          "(cost_model.cold_start_ms)");
  }
  const std::string remark = contradiction_remark(run);
  if (!remark.empty()) say("remark", printable(remark));
  say("errors", errors_text(fit.factors, run.pinned, intervals));
  if (fit.mean_abs_error > kPlausibleError) {
    say("remark",
        "the errors are still large: the scenario may differ from the measured run, or "
        "queued_ts may not be the instant at which the engine saw a request");
  }
  print_link(run, fit.factors);
  if (options.until_s) print_check(options, run, fit.factors);
  const std::string first = first_step_text(run, fit.factors);
  if (!first.empty()) say("first step", first);
  check_floor(run, fit.factors);
  print_ranges(fit.factors);
  if (options.out.empty()) return;
  replace_file(options.out, file_of(run, fit, std::ssize(intervals)).to_json());
  std::cout << "\ncost model: " << printable(options.out) << '\n';
}

}  // namespace metronome
