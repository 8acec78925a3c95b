// SPDX-License-Identifier: Apache-2.0
#include "study/recorded/pinned_run.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "sim/cold_start.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/recorded/pinned_executor.h"

namespace metronome {
namespace {

// After a step an engine returns the step's tokens one by one, reads its input, then plans. So a
// request queued shortly after the end of a step was visible to the next plan. This time is much
// longer than that work and much shorter than a step.
TimeNs loop_time(const ObservedRun& log) {
  constexpr double kStepShare = 0.25;
  double shortest = static_cast<double>(3 * kNsPerMs / 2);
  for (const ObservedRequest& request : log.requests) {
    if (request.num_output_tokens < 2) continue;
    shortest = std::min(shortest, kStepShare * request.tpot_ns());
  }
  return static_cast<TimeNs>(shortest);
}

void set_arrivals(const ObservedRun& log, Workload& workload) {
  const TimeNs lag = loop_time(log);
  const auto fail = [&](const std::string& what) {
    throw ConfigError(log.path + ": " + what +
                      "; allowed: the requests of the simulated run, in its order");
  };
  if (workload.requests.size() != log.requests.size()) {
    fail(fmt::format("has {} requests, but the simulated run has {}", log.requests.size(),
                     workload.requests.size()));
  }
  workload.mode = ArrivalMode::Timed;
  TimeNs last = 0;
  for (std::size_t i = 0; i < log.requests.size(); ++i) {
    RequestSpec& request = workload.requests[i];
    const ObservedRequest& seen = log.requests[i];
    if (request.num_prompt_tokens != seen.num_prompt_tokens ||
        request.max_output_tokens != seen.num_output_tokens) {
      fail(fmt::format("request {} has different token counts in the simulated run", i));
    }
    request.arrival = std::max<TimeNs>(seen.begin - lag, last);
    last = request.arrival;
  }
}

// Instants at which the engine was between steps, without those of tokens. A token's instant only
// ends the step that produces the token.
std::vector<TimeNs> hints_of(const ObservedRun& log) {
  std::vector<TimeNs> tokens;
  std::vector<TimeNs> hints;
  for (const ObservedRequest& request : log.requests) {
    tokens.insert(tokens.end(), {request.first_token, request.last_token});
    for (const TimeNs time : {request.begin, request.scheduled}) {
      if (time != kNoTime) hints.push_back(time);
    }
  }
  std::sort(tokens.begin(), tokens.end());
  std::sort(hints.begin(), hints.end());
  const TimeNs lag = loop_time(log);
  std::erase_if(hints, [&](TimeNs hint) {
    const auto near = std::lower_bound(tokens.begin(), tokens.end(), hint - lag);
    return near != tokens.end() && *near <= hint + lag;
  });
  return hints;
}

// Random noise carries no information about step times.
Scenario without_noise(Scenario scenario) {
  scenario.cost_model.noise = StepNoise::None;
  return scenario;
}

// One simulation and how far it agrees with the log.
struct Trial {
  PinnedRun run;
  std::vector<double> scales;  // per step
  std::vector<double> ratios;  // per step, learned before the first contradiction
  std::size_t first_odd = 0;   // index of its first contradictory interval
  TimeNs agrees_until = 0;     // when that interval ends
};

class PinSearch {
 public:
  PinSearch(const Scenario& scenario, const ObservedRun& log)
      : workload_(make_workload(scenario)),
        hints_(hints_of(log)),
        spread_(loop_time(log)),
        simulation_(prepare_simulation(without_noise(scenario))) {
    if (!workload_.images.empty()) {
      fail_config(scenario.location_of("workload"), "workload",
                  "has images, whose encoding no step of the log tells apart; allowed: text alone");
    }
    set_arrivals(log, workload_);
    for (const ObservedRequest& request : log.requests) {
      instants_.push_back({request.first_token, request.last_token});
    }
  }

  PinnedRun run() {
    Trial best = simulate({});
    std::size_t variant = 0;
    for (int trial = 1; trial < kMaxTrials && best.agrees_until < kForever; ++trial) {
      if (variant == kNumVariants) {
        variant = 0;
        if (!stands(best)) break;
      }
      Trial next = simulate(scales_of(best, variant));
      const bool gets_farther = next.agrees_until > best.agrees_until;
      variant = gets_farther ? 0 : variant + 1;
      if (gets_farther) best = std::move(next);
    }
    return std::move(best.run);
  }

 private:
  static constexpr TimeNs kForever = std::numeric_limits<TimeNs>::max();
  static constexpr int kMaxTrials = 300;
  // Variants of the next trial. Steps from kBack intervals before the first contradiction get new
  // times: the ratio of their kind before the contradiction, times a factor.
  static constexpr std::size_t kBack[] = {1000000, 40, 10, 3};
  static constexpr double kFactors[] = {1,    0.985, 1.015, 0.97, 1.03, 0.955, 1.045, 0.94, 1.06,
                                        0.92, 1.08,  1.11,  1.15, 1.2,  1.25,  0.89,  0.85, 0.8};
  static constexpr std::size_t kNumVariants = std::size(kBack) * std::size(kFactors);

  Trial simulate(std::vector<double> scales) {
    PinnedExecutor device(*simulation_.cost_model, instants_, hints_, scales);
    RunRecorder recorder(workload_.requests.size());
    EventSink* sinks[] = {&recorder};
    VirtualClock clock;
    ColdStart executor(device, simulation_.cold_start_ns);
    run_workload(simulation_.setup, executor, clock, workload_, sinks, {}, 1024);
    Trial trial;
    trial.run.record = recorder.finish();
    trial.run.steps = device.steps();
    trial.run.intervals = intervals_of(trial.run.steps);
    trial.scales = std::move(scales);
    judge(trial);
    return trial;
  }

  // Step times are learned from the intervals that agree. After a contradiction the simulated steps
  // differ from the measured ones.
  void judge(Trial& trial) const {
    constexpr int kRounds = 4;
    constexpr std::size_t kMinIntervals = 20;
    PinnedRun& run = trial.run;
    StepRatios ratios(run.steps, run.intervals);
    ratios.expect(run.steps, run.intervals);
    find_contradictions(trial);
    for (int round = 1; round < kRounds; ++round) {
      if (trial.first_odd < kMinIntervals || trial.first_odd == run.intervals.size()) break;
      ratios = StepRatios(run.steps, std::span(run.intervals).first(trial.first_odd));
      ratios.expect(run.steps, run.intervals);
      find_contradictions(trial);
    }
    // With so few intervals the ratios also depend on steps after the contradiction.
    const bool is_told = trial.first_odd >= kMinIntervals;
    for (const PinnedStep& step : run.steps) {
      trial.ratios.push_back(is_told ? ratios.ratio(step) : 1.0);
    }
  }

  void find_contradictions(Trial& trial) const {
    PinnedRun& run = trial.run;
    run.contradictions.clear();
    trial.first_odd = run.intervals.size();
    for (std::size_t i = 0; i < run.intervals.size(); ++i) {
      std::string what = contradiction_in(run.steps, run.intervals, i, spread_);
      if (what.empty()) continue;
      const std::size_t step = run.intervals[i].last();
      run.contradictions.push_back({static_cast<std::int64_t>(step), std::move(what)});
      if (run.steps[step].earliest > stands_until_) trial.first_odd = std::min(trial.first_odd, i);
    }
    trial.agrees_until = end_of(trial);
  }

  static TimeNs end_of(const Trial& trial) {
    const PinnedRun& run = trial.run;
    if (trial.first_odd == run.intervals.size()) return kForever;
    return run.steps[run.intervals[trial.first_odd].last()].earliest;
  }

  // Accepts the first contradiction as real. Returns false if no other contradiction follows.
  bool stands(Trial& trial) {
    stands_until_ = trial.agrees_until;
    find_contradictions(trial);
    return trial.agrees_until < kForever;
  }

  static std::vector<double> scales_of(const Trial& trial, std::size_t variant) {
    const double factor = kFactors[variant % std::size(kFactors)];
    const std::size_t back = std::min(kBack[variant / std::size(kFactors)], trial.first_odd);
    const std::size_t from = trial.run.intervals[trial.first_odd - back].begin;
    std::vector<double> scales = trial.scales;
    scales.resize(trial.run.steps.size(), 1.0);
    for (std::size_t i = from; i < scales.size(); ++i) {
      scales[i] = factor * (i < trial.ratios.size() ? trial.ratios[i] : 1.0);
    }
    return scales;
  }

  Workload workload_;
  std::vector<TokenInstants> instants_;
  std::vector<TimeNs> hints_;
  TimeNs spread_;
  Simulation simulation_;
  TimeNs stands_until_ = -1;  // contradictions up to here are accepted
};

}  // namespace

void forget_after(TimeNs until_ns, ObservedRun& log) {
  for (ObservedRequest& request : log.requests) {
    for (TimeNs* instant : {&request.scheduled, &request.first_token, &request.last_token}) {
      if (*instant > until_ns) *instant = kNoTime;
    }
  }
}

std::span<const PinnedInterval> telling_intervals(const PinnedRun& run) {
  const std::span<const PinnedInterval> all(run.intervals);
  if (all.empty()) return all;
  TimeNs odd_at = std::numeric_limits<TimeNs>::max();
  for (const Contradiction& contradiction : run.contradictions) {
    odd_at = std::min(odd_at, run.steps[static_cast<std::size_t>(contradiction.step)].earliest);
  }
  std::size_t end = 0;
  while (end < all.size() && run.steps[all[end].last()].earliest < odd_at) ++end;
  return all.subspan(1, std::max<std::size_t>(end, 1) - 1);
}

PinnedRun run_pinned(const Scenario& scenario, const ObservedRun& log) {
  return PinSearch(scenario, log).run();
}

}  // namespace metronome
