#include "tools/pinned_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/run.h"
#include "core/workload.h"
#include "core/workload_config.h"
#include "sim/cold_start.h"
#include "sim/pinned_executor.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"

namespace metronome {
namespace {

// An engine gives out a step's tokens one after the other, then looks at its input, then plans:
// what it queued shortly after a step ended was there when the next one was planned. Far longer
// than it needs for that, and far shorter than a step.
TimeNs loop_time(const ObservedRun& log) {
  constexpr double kStepShare = 0.25;
  double shortest = static_cast<double>(3 * kNsPerMs / 2);
  for (const ObservedRequest& request : log.requests) {
    if (request.num_output_tokens < 2) continue;
    shortest = std::min(shortest, kStepShare * request.tpot_ns());
  }
  return static_cast<TimeNs>(shortest);
}

void take_arrivals(const ObservedRun& log, Workload& workload) {
  const TimeNs lag = loop_time(log);
  const auto fail = [&](const std::string& what) {
    throw ConfigError(log.path + ": " + what +
                      "; allowed: the requests of the simulated run, in its order");
  };
  if (workload.requests.size() != log.requests.size()) {
    fail("has " + std::to_string(log.requests.size()) + " requests, the simulated run " +
         std::to_string(workload.requests.size()));
  }
  workload.mode = ArrivalMode::Timed;
  TimeNs last = 0;
  for (std::size_t i = 0; i < log.requests.size(); ++i) {
    RequestSpec& request = workload.requests[i];
    const ObservedRequest& seen = log.requests[i];
    if (request.num_prompt_tokens != seen.num_prompt_tokens ||
        request.max_output_tokens != seen.num_output_tokens) {
      fail("request " + std::to_string(i) + " has other token counts than in the simulated run");
    }
    request.arrival = std::max<TimeNs>(seen.begin - lag, last);
    last = request.arrival;
  }
}

// Instants at which the engine was between steps, other than those of tokens: these end the steps
// that give them and no others.
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

// How far the time between two pinned steps may be from what such steps take: a part of the longest
// of them, so that one more or less is found out, and a part of them all.
constexpr double kLongestShare = 0.45;
constexpr double kWholeShare = 0.03;
// Each simulation finds more of the intervals whole. How many of them together say how long steps
// are differs from one to the next, so that none goes in circles.
constexpr std::size_t kMaxRounds = 60;
constexpr std::size_t kReach[] = {1000000, 40, 20, 10};

// Steps that take about the same: decodes by their number, others by their tokens.
std::size_t kind_of(const PinnedStep& step) {
  constexpr std::size_t kDecodesPerKind = 8;
  constexpr std::size_t kTokensPerKind = 128;
  constexpr std::size_t kMostDecodes = 4096;
  const auto tokens = static_cast<std::size_t>(step.num_prefill_tokens + step.num_decode_tokens);
  if (step.num_prefill_tokens == 0) return std::min(tokens, kMostDecodes) / kDecodesPerKind;
  return kMostDecodes / kDecodesPerKind + 1 + tokens / kTokensPerKind;
}

// The steps behind one known instant, up to and including a pinned one.
struct Interval {
  std::size_t begin = 0;
  std::size_t end = 0;
  TimeNs took = 0;
  double expected = 0;  // by the ratios of their kinds
  double longest = 0;   // of these

  double excess() const { return static_cast<double>(took) - expected; }
  double allowed() const { return kLongestShare * longest + kWholeShare * expected; }
};

std::vector<Interval> intervals_of(const std::vector<PinnedStep>& steps) {
  std::vector<Interval> intervals;
  TimeNs known = 0;  // when the step before ended, or the engine woke
  std::size_t begin = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const PinnedStep& step = steps[i];
    if (i == 0 || step.is_after_idle) {
      known = step.started_at;
      begin = i;
    }
    if (!step.is_pinned()) continue;
    intervals.push_back({begin, i + 1, step.earliest - known, 0, 0});
    known = step.earliest;
    begin = i + 1;
  }
  return intervals;
}

// By how much longer than predicted the steps of each kind take, from what they took together.
class Ratios {
 public:
  explicit Ratios(const std::vector<PinnedStep>& steps) : steps_(steps) {
    for (const PinnedStep& step : steps) {
      ratios_.resize(std::max(ratios_.size(), kind_of(step) + 1), 1.0);
    }
  }
  double scaled(std::size_t step) const {
    return ratios_[kind_of(steps_[step])] * static_cast<double>(steps_[step].cost);
  }
  void expect(std::vector<Interval>& intervals) const {
    for (Interval& interval : intervals) {
      interval.expected = interval.longest = 0;
      for (std::size_t i = interval.begin; i < interval.end; ++i) {
        interval.expected += scaled(i);
        interval.longest = std::max(interval.longest, scaled(i));
      }
    }
  }
  // Each round gives an interval's time to its steps by what they are expected to take. An interval
  // that has a step too many stands beside one that has a step too few, so all have a say.
  void fit(std::vector<Interval>& intervals) {
    constexpr int kRounds = 25;
    for (int round = 0; round < kRounds; ++round) {
      expect(intervals);
      std::vector<double> took(ratios_.size());
      std::vector<double> cost(ratios_.size());
      double all_took = 0;
      double all_cost = 0;
      for (const Interval& interval : intervals) {
        const double share = static_cast<double>(interval.took) / interval.expected;
        for (std::size_t i = interval.begin; i < interval.end; ++i) {
          took[kind_of(steps_[i])] += share * scaled(i);
          cost[kind_of(steps_[i])] += static_cast<double>(steps_[i].cost);
          all_cost += static_cast<double>(steps_[i].cost);
        }
        all_took += static_cast<double>(interval.took);
      }
      if (all_cost == 0) return;
      // Kinds that are hardly seen take what all do.
      const double mean = all_took / all_cost;
      const double weight = 0.001 * all_cost;
      for (std::size_t k = 0; k < ratios_.size(); ++k) {
        ratios_[k] = (took[k] + mean * weight) / (cost[k] + weight);
      }
    }
    expect(intervals);
  }
  // For the next simulation: what each kind takes, by what the intervals around take, `reach` of
  // them on either side. An interval alone must not say how long its steps are: with one step too
  // many it would make them shorter, and keep it.
  std::vector<double> scales(const std::vector<Interval>& intervals, std::size_t reach) const {
    std::vector<double> scales;
    for (const PinnedStep& step : steps_) scales.push_back(ratios_[kind_of(step)]);
    for (std::size_t n = 0; n < intervals.size(); ++n) {
      double took = 0;
      double expected = 0;
      for (std::size_t i = n - std::min(n, reach); i < std::min(n + reach + 1, intervals.size());
           ++i) {
        took += static_cast<double>(intervals[i].took);
        expected += intervals[i].expected;
      }
      for (std::size_t i = intervals[n].begin; i < intervals[n].end; ++i) {
        scales[i] *= took / expected;
      }
    }
    return scales;
  }

 private:
  const std::vector<PinnedStep>& steps_;
  std::vector<double> ratios_;  // by kind
};

std::string ms_text(double ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", ns / static_cast<double>(kNsPerMs));
  return text;
}

std::vector<Contradiction> find_contradictions(const std::vector<PinnedStep>& steps,
                                               const std::vector<Interval>& intervals,
                                               TimeNs spread) {
  std::vector<Contradiction> found;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const Interval& interval = intervals[i];
    const PinnedStep& step = steps[interval.end - 1];
    const auto number = static_cast<std::int64_t>(interval.end - 1);
    if (step.latest - step.earliest > spread) {
      found.push_back({number, "gives first or last tokens that came " +
                                   ms_text(static_cast<double>(step.latest - step.earliest)) +
                                   " apart"});
    }
    // An engine's first steps load kernels and allocate: they may take any time.
    if (std::abs(interval.excess()) <= interval.allowed()) continue;
    if (i == 0 && interval.excess() > 0) continue;
    const std::size_t num_steps = interval.end - interval.begin;
    found.push_back(
        {number, "gives a token of request " + std::to_string(index(step.request)) + " " +
                     ms_text(static_cast<double>(interval.took)) +
                     " after the last instant known before; " +
                     (num_steps == 1 ? "it takes " : std::to_string(num_steps) + " steps take ") +
                     ms_text(interval.expected)});
  }
  return found;
}

}  // namespace

PinnedRun run_pinned(const Scenario& scenario, const ObservedRun& log) {
  Workload workload = make_workload(scenario.workload, scenario.seed);
  take_arrivals(log, workload);
  std::vector<TokenInstants> instants;
  for (const ObservedRequest& request : log.requests) {
    instants.push_back({request.first_token, request.last_token});
  }
  const std::vector<TimeNs> hints = hints_of(log);
  Simulation simulation = prepare_simulation(scenario);
  std::optional<PinnedRun> best;
  std::vector<double> scales;
  for (std::size_t round = 0; round < kMaxRounds; ++round) {
    PinnedExecutor device(*simulation.cost_model, instants, hints, scales);
    RunRecorder recorder(workload.requests.size());
    EventSink* sinks[] = {&recorder};
    VirtualClock clock;
    ColdStart executor(device, clock, simulation.cold_start_ns);
    run_workload(simulation.setup, executor, clock, workload, sinks, {}, 1024);
    std::vector<Interval> intervals = intervals_of(device.steps());
    Ratios ratios(device.steps());
    ratios.fit(intervals);
    PinnedRun run{recorder.finish(), static_cast<std::int64_t>(intervals.size()),
                  find_contradictions(device.steps(), intervals, loop_time(log))};
    if (!best || run.contradictions.size() < best->contradictions.size()) best = std::move(run);
    if (best->contradictions.empty()) break;
    scales = ratios.scales(intervals, kReach[round % std::size(kReach)]);
  }
  return std::move(*best);
}

}  // namespace metronome
