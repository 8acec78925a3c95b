// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_run.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/config/config_node.h"
#include "core/metrics/answer_rates.h"
#include "core/metrics/first_tokens.h"
#include "core/metrics/goals.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/workload/workload_cut.h"
#include "fleet/fleet_run.h"
#include "sim/virtual_clock.h"
#include "system/progress.h"

namespace metronome {
namespace {

double requests_per_second(const Workload& workload) {
  const TimeNs span = workload.requests.back().arrival;
  return static_cast<double>(workload.requests.size()) / to_seconds(span);
}

// A whole trial lasts this many times the limit L that a growing queue violates. A queue that
// exceeds L for one request in a hundred has a memory of about 0.4 L / (1 - utilization), 10 to 20
// times L. This follows from the relaxation time and the tail of reflected Brownian motion. A batch
// should last longer.
constexpr double kWindowLimits = 300;
// One request in this many arrives while the engine fills up.
constexpr std::size_t kFillingShare = 5;
constexpr std::size_t kMaxListRequests = 100'000;  // per list; reached only at loads far too high

bool has_tokens(const RequestRecord& request) {
  return request.completed() && request.first_token != kNoTime;
}

// A kind of limit, and what a request has of it.
struct LimitKind {
  std::optional<double> SloConfig::*limit;
  double (*value_ms)(const RequestRecord&);
};
constexpr LimitKind kLimitKinds[] = {
    {&SloConfig::ttft_ms, [](const RequestRecord& r) { return to_ms(r.ttft_ns()); }},
    {&SloConfig::tpot_ms,
     [](const RequestRecord& r) { return r.has_itl() ? r.tpot_ns() / 1e6 : 0; }},
    {&SloConfig::itl_ms,
     [](const RequestRecord& r) { return r.has_itl() ? to_ms(r.max_itl_ns) : 0; }},
    {&SloConfig::e2el_ms, [](const RequestRecord& r) { return to_ms(r.e2el_ns()); }}};

// How far a request is beyond the limit that it misses most; at most 1: beyond none.
double excess(const RequestRecord& request, const SloConfig& slo) {
  double most = 0;
  for (const LimitKind& kind : kLimitKinds) {
    if (const std::optional<double>& limit = slo.*kind.limit) {
      most = std::max(most, kind.value_ms(request) / *limit);
    }
  }
  return most;
}

// Three digits are enough of a limit, rounded up.
double rounded_up(double ms) {
  if (!(ms > 0)) return ms;
  const double scale = std::pow(10, 2 - std::floor(std::log10(ms)));
  return std::ceil(ms * scale) / scale;
}

}  // namespace

std::optional<SloConfig> limits_that_hold(std::vector<RequestRecord> requests,
                                          std::size_t num_judged, const SloConfig& slo,
                                          double attainment) {
  const auto num_needed =
      static_cast<std::size_t>(std::ceil(attainment * static_cast<double>(num_judged)));
  if (num_needed == 0 || requests.size() < num_needed) return std::nullopt;
  if (!slo.by_class.empty()) return std::nullopt;  // each class would have its own
  std::sort(requests.begin(), requests.end(),
            [&slo](const RequestRecord& a, const RequestRecord& b) {
              return excess(a, slo) < excess(b, slo);
            });
  SloConfig held = slo;
  held.preset = SloPreset::None;
  for (const LimitKind& kind : kLimitKinds) {
    std::optional<double>& limit = held.*kind.limit;
    if (!limit) continue;
    double most = 0;
    for (std::size_t i = 0; i < num_needed; ++i) {
      most = std::max(most, kind.value_ms(requests[i]));
    }
    if (most > *limit) limit = rounded_up(most);
  }
  return held;
}

TuneWorkloads::TuneWorkloads(const Scenario& scenario, int num_seeds)
    : scenario_(scenario),
      is_trace_(!scenario.workload.trace.file.empty()),
      num_seeds_(is_trace_ ? 1 : static_cast<std::size_t>(num_seeds)) {
  const std::shared_ptr<const Workload> given = drawn(0, 0);
  if (given->has_sessions()) {  // a trial changes the number of requests and their arrivals
    const char* const key = is_trace_ ? "workload.trace.file" : "workload.sessions";
    fail_config(scenario.location_of(key), key,
                "tune has no load of sessions; allowed: single requests, or `metronome sweep "
                "--over workload.arrivals.rate=VALUES`");
  }
  const bool has_span = given->mode == ArrivalMode::Timed && !given->requests.empty() &&
                        given->requests.back().arrival > 0;
  if (!has_span) {
    fail_config(scenario.location_of("workload.arrivals.process"), "workload.arrivals.process",
                "does not spread requests over time; there is no load to vary; allowed: "
                "poisson, gamma, constant (with a finite rate), burst (of several), trace");
  }
  num_given_ = given->requests.size();
  given_load_ = requests_per_second(*given);
  double limit_ms = std::max(scenario.slo.ttft_ms.value_or(0), scenario.slo.e2el_ms.value_or(0));
  for (const SloConfig& own : scenario.slo.by_class) {
    limit_ms = std::max({limit_ms, own.ttft_ms.value_or(0), own.e2el_ms.value_or(0)});
  }
  window_s_ = kWindowLimits * limit_ms / 1e3;
}

std::shared_ptr<const Workload> TuneWorkloads::drawn(std::size_t seed,
                                                     std::size_t num_requests) const {
  // Sizes are powers of two, so that few lists are drawn.
  std::size_t size = is_trace_ ? 0 : static_cast<std::size_t>(scenario_.workload.num_requests);
  while (!is_trace_ && size < std::min(num_requests, kMaxListRequests)) size *= 2;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Workload>& list = lists_[{seed, size}];
  if (list == nullptr) {
    Scenario scenario = scenario_;
    if (!is_trace_) scenario.workload.num_requests = static_cast<std::int64_t>(size);
    scenario.seed += seed;
    list = std::make_shared<const Workload>(make_workload(scenario));
  }
  return list;
}

bool TuneWorkloads::can_be_longer(const Workload& workload) const {
  return !is_trace_ && workload.requests.size() * num_seeds_ < kMaxTrialRequests;
}

std::shared_ptr<const Workload> TuneWorkloads::at_load(std::size_t seed, double load, double share,
                                                       double length) const {
  const double least = std::max(share * static_cast<double>(num_given_),
                                length * load * std::min(share, 1.0) * window_s_);
  // Settings of other costs ask for the same requests by other factors: rounding must not add one.
  constexpr double kRounding = 1 - 1e-9;
  const auto wanted = static_cast<std::size_t>(std::ceil(
      kRounding * std::min(least, static_cast<double>(std::max(num_given_, kMaxListRequests)))));
  const std::shared_ptr<const Workload> given = drawn(seed, wanted);
  const double stretch = requests_per_second(*given) / load;
  auto workload = std::make_shared<Workload>(*given);
  keep_first(std::clamp<std::size_t>(wanted, 1, given->requests.size()), *workload);
  const double last_s = to_seconds(workload->requests.back().arrival) * stretch;
  if (last_s > static_cast<double>(kMaxArrivalSeconds)) {
    fail_config(scenario_.location_of("workload"), "workload",
                fmt::format("at this load the last request would arrive after {} s; at most {} s",
                            std::to_string(last_s), kMaxArrivalSeconds));
  }
  for (RequestSpec& request : workload->requests) {
    request.arrival = std::llround(static_cast<double>(request.arrival) * stretch);
  }
  return workload;
}

TuneSetting::TuneSetting(const Scenario& scenario, const TuneWorkloads& workloads)
    : scenario_(scenario), workloads_(workloads), run_(FleetBackend().prepare(scenario)) {}

RunRecord TuneSetting::run_once(const Workload& workload) {
  RunRecorder recorder(workload.requests.size());
  EventSink* const sink = &recorder;
  VirtualClock clock;
  check_workload(scenario_, *run_, workload);
  run_->run(workload, clock, {&sink, 1}, [](const RunProgress&) {
    throw_if_interrupted();
    return true;
  });
  return recorder.finish();
}

// Sums over the runs of a trial.
struct TuneSetting::Sums {
  double duration_s = 0;
  double busy_s = 0;
  double input_tokens = 0;
  double output_tokens = 0;
  std::vector<double> ttft_ns;
  std::vector<double> tpot_ns;
  std::vector<WeightedTime> gaps;
};

// Adds which requests from `first` on met the SLO, what the others broke, and the samples of the
// latencies.
void TuneSetting::judge(const RunRecord& record, std::size_t first, TuneTrial& trial,
                        Sums& sums) const {
  const auto num_ttft = static_cast<std::ptrdiff_t>(sums.ttft_ns.size());
  const auto num_tpot = static_cast<std::ptrdiff_t>(sums.tpot_ns.size());
  for (std::size_t i = first; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    const SloConfig& slo = scenario_.slo.of_class(request.class_number);
    const bool is_good = meets_slo(request, scenario_.slo);
    trial.good.push_back(is_good ? 1 : 0);
    if (!has_tokens(request)) {
      ++trial.misses.not_completed;
      continue;
    }
    sums.ttft_ns.push_back(static_cast<double>(request.ttft_ns()));
    if (request.has_itl()) sums.tpot_ns.push_back(request.tpot_ns());
    if (is_good) continue;
    const bool has_itl = request.has_itl();
    const double tpot_ms = has_itl ? request.tpot_ns() / 1e6 : 0;
    const double itl_ms = has_itl ? to_ms(request.max_itl_ns) : 0;
    trial.misses.ttft += slo.ttft_ms && to_ms(request.ttft_ns()) > *slo.ttft_ms ? 1 : 0;
    trial.misses.tpot += slo.tpot_ms && tpot_ms > *slo.tpot_ms ? 1 : 0;
    trial.misses.itl += slo.itl_ms && itl_ms > *slo.itl_ms ? 1 : 0;
    trial.misses.e2el += slo.e2el_ms && to_ms(request.e2el_ns()) > *slo.e2el_ms ? 1 : 0;
  }
  std::vector<WeightedTime> gaps = pooled_gaps(record, first);
  sums.gaps.insert(sums.gaps.end(), gaps.begin(), gaps.end());
  const Distribution itl = describe(gaps);
  trial.run_p99_itl_ms.push_back(itl.p99_ms);
  trial.run_max_itl_ms.push_back(itl.max_ms);
  std::vector<double> ttft_ns(sums.ttft_ns.begin() + num_ttft, sums.ttft_ns.end());
  trial.run_p99_ttft_ms.push_back(describe(ttft_ns).p99_ms);
  std::vector<double> tpot_ns(sums.tpot_ns.begin() + num_tpot, sums.tpot_ns.end());
  trial.run_mean_tpot_ms.push_back(describe(tpot_ns).mean_ms);
}

void TuneSetting::add_waits(const RunRecord& record, TuneTrial& trial, Sums& sums) const {
  const EngineSetup& setup = run_->setup;
  QueueReasons reasons(record, {.max_num_seqs = setup.max_num_seqs,
                                .num_blocks = setup.kv_cache.num_blocks,
                                .block_tokens = setup.kv_cache.block_size});
  const auto num_engines = static_cast<double>(std::max<std::size_t>(record.replicas.size(), 1));
  std::size_t next = 0;
  for (const StepEntry& step : record.steps) {
    const TimeNs until =
        ++next < record.steps.size() ? record.steps.planned_at(next) : step.finished_at;
    const double held_s = to_seconds(std::max<TimeNs>(until - step.planned_at, 0));
    sums.busy_s += to_seconds(step.duration_ns()) / num_engines;
    const FirstTokenPart why = reasons.of_next(step);
    if (step.num_waiting == 0) continue;
    (why == FirstTokenPart::Blocks  ? trial.waits.kv_cache
     : why == FirstTokenPart::Slots ? trial.waits.max_num_seqs
                                    : trial.waits.steps) += held_s;
  }
}

std::optional<SloConfig> TuneSetting::nearest_limits(double load, std::size_t num_requests,
                                                     double attainment) {
  const double share = share_of(num_requests);
  std::vector<RequestRecord> judged;
  std::size_t num_judged = 0;
  for (std::size_t seed = 0; seed < workloads_.num_seeds(); ++seed) {
    const RunRecord record = run_once(*workloads_.at_load(seed, load, share, length_));
    for (std::size_t i = record.requests.size() / kFillingShare; i < record.requests.size(); ++i) {
      ++num_judged;
      if (has_tokens(record.requests[i])) judged.push_back(record.requests[i]);
    }
  }
  return limits_that_hold(judged, num_judged, scenario_.slo, attainment);
}

double TuneSetting::share_of(std::size_t num_requests) const {
  return static_cast<double>(num_requests) / static_cast<double>(workloads_.num_requests());
}

// The mean rate of answers during prefill over the runs that have one, and the slowest ten seconds
// of all.
class MeanRates {
 public:
  void add(const AnswerRates& rates) {
    if (!std::isnan(rates.during_prefill)) {
      sum_ += rates.during_prefill;
      ++num_;
    }
    slowest_ = std::fmin(slowest_, rates.slowest_10s);  // of a number and NaN, the number
  }
  AnswerRates mean() const {
    AnswerRates rates;
    if (num_ > 0) rates.during_prefill = sum_ / num_;
    rates.slowest_10s = slowest_;
    return rates;
  }

 private:
  double sum_ = 0;
  double num_ = 0;
  double slowest_ = std::nan("");
};

// Where a trial breaks a goal of the whole run, no request of it is good.
void TuneSetting::judge_run(TuneTrial& trial) const {
  const std::vector<Goal> goals = run_goals_of(scenario_.slo);
  if (goals.empty()) return;
  const FigureValues figures = figures_of(trial, scenario_);
  const bool is_kept = std::all_of(goals.begin(), goals.end(), [&figures](const Goal& goal) {
    return goal.is_kept_by(goal_figure(goal, figures));
  });
  if (is_kept) return;
  trial.misses.itl = trial.good.size();
  std::fill(trial.good.begin(), trial.good.end(), std::uint8_t{0});
  trial.attainment = trial.goodput = 0;
}

TuneTrial TuneSetting::run(double load, std::size_t num_requests) {
  TuneTrial trial;
  trial.load = load;
  trial.num_runs = workloads_.num_seeds();
  const double seed_share = 1.0 / static_cast<double>(trial.num_runs);
  const double share = share_of(num_requests);
  Sums sums;
  MeanRates rates;
  for (std::size_t seed = 0; seed < trial.num_runs; ++seed) {
    const auto workload = workloads_.at_load(seed, load, share, length_);
    const RunRecord record = run_once(*workload);
    trial.num_simulated += record.requests.size();
    judge(record, record.requests.size() / kFillingShare, trial, sums);
    add_waits(record, trial, sums);
    rates.add(answer_rates(record));
    trial.can_be_longer = workloads_.can_be_longer(*workload);
    // A whole summary would take longer than the run.
    std::vector<double> e2el_ns;
    for (const RequestRecord& request : record.requests) {
      if (!request.completed()) continue;
      sums.input_tokens += static_cast<double>(request.num_prompt_tokens);
      sums.output_tokens += static_cast<double>(request.num_output_tokens);
      e2el_ns.push_back(static_cast<double>(request.e2el_ns()));
    }
    if (!e2el_ns.empty())
      trial.num_in_system += seed_share * load * describe(e2el_ns).mean_ms / 1e3;
    sums.duration_s += to_seconds(run_duration(record));
  }
  const auto num_good = std::count(trial.good.begin(), trial.good.end(), std::uint8_t{1});
  trial.attainment = static_cast<double>(num_good) / static_cast<double>(trial.good.size());
  trial.goodput = trial.attainment * load;
  trial.summary.output_throughput = sums.output_tokens / sums.duration_s;
  trial.summary.total_token_throughput = (sums.input_tokens + sums.output_tokens) / sums.duration_s;
  trial.summary.busy_share = sums.busy_s / sums.duration_s;
  trial.summary.ttft = describe(sums.ttft_ns);
  trial.summary.itl = describe(sums.gaps);
  trial.summary.tpot = describe(sums.tpot_ns);
  trial.summary.rates = rates.mean();
  judge_run(trial);
  return trial;
}

}  // namespace metronome
