// SPDX-License-Identifier: Apache-2.0
#include "study/recorded/logged_run.h"

#include <algorithm>
#include <cstddef>
#include <fmt/core.h>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/config/config_reader.h"
#include "core/engine/engine.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "sim/simulation.h"

namespace metronome {
namespace {

// The content of an iteration, as vLLM counts (compute_iteration_details in vllm/v1/utils.py): a
// request is in its context phase while it has no output, or if the step has it as a new request.
// The second model runner has resumed requests as new ones, the first has not. So a request that
// was preempted after its first token is resumed as a generation request with many tokens, in the
// second runner behind its first chunk.
struct Composition {
  std::int64_t num_context_requests = 0;
  std::int64_t num_context_tokens = 0;
  std::int64_t num_generation_requests = 0;
  std::int64_t num_generation_tokens = 0;

  Composition(const StepPlan& plan, const RequestTable& requests, ModelRunner runner)
      : num_generation_requests(plan.run.num_decodes), num_generation_tokens(plan.run.num_decodes) {
    for (const ScheduledChunk& chunk : plan.chunks) {
      const bool is_context = chunk.kind == ChunkKind::Prefill &&
                              (requests[chunk.request].num_output_tokens() == 0 ||
                               (runner == ModelRunner::V2 && is_admitted(plan, chunk.request)));
      ++(is_context ? num_context_requests : num_generation_requests);
      (is_context ? num_context_tokens : num_generation_tokens) += chunk.num_tokens;
    }
  }
  bool operator==(const LoggedIteration& logged) const {
    return num_context_requests == logged.num_context_requests &&
           num_context_tokens == logged.num_context_tokens &&
           num_generation_requests == logged.num_generation_requests &&
           num_generation_tokens == logged.num_generation_tokens;
  }
  std::string text() const {
    return composition_text(num_context_requests, num_context_tokens, num_generation_requests,
                            num_generation_tokens);
  }

 private:
  static bool is_admitted(const StepPlan& plan, RequestId request) {
    return std::find(plan.admitted.begin(), plan.admitted.end(), request) != plan.admitted.end();
  }
};

using Iterations = std::span<const LoggedIteration>;

// Steps take the logged times. With two steps in flight, one more step than logged may launch.
class LoggedExecutor final : public Executor {
 public:
  LoggedExecutor(Iterations iterations, ModelRunner runner)
      : iterations_(iterations), runner_(runner) {}

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    const auto i = static_cast<std::size_t>(num_launched_);
    StepResult& result = results_[i % kNumResults];
    result.step_index = plan.step_index;
    result.started_at = result.finished_at = std::max(now, device_free_at_);
    ++num_launched_;
    if (i >= iterations_.size()) return;
    const LoggedIteration& logged = iterations_[i];
    result.finished_at += logged.elapsed_ns;
    device_free_at_ = result.finished_at;
    const Composition composition(plan, requests, runner_);
    if (!(composition == logged) && !difference_) difference_ = {logged, composition.text()};
  }
  const StepResult& collect() override {
    return results_[static_cast<std::size_t>(num_collected_++ % kNumResults)];
  }

  std::int64_t num_launched() const { return num_launched_; }
  std::int64_t num_collected() const { return num_collected_; }
  const std::optional<LoggedRun::Difference>& difference() const { return difference_; }

 private:
  Iterations iterations_;
  ModelRunner runner_;
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
  TimeNs device_free_at_ = 0;
  StepResult results_[kNumResults];
  std::optional<LoggedRun::Difference> difference_;
};

// Submits requests when the log needs them.
class Feeder {
 public:
  Feeder(const Workload& workload, Engine& engine, ModelRunner runner)
      : workload_(workload), engine_(engine), runner_(runner) {}

  // Ensures that this many requests can be context requests of the next step. Nobody overtakes a
  // preempted request, which waits in front.
  void provide(std::int32_t num_contexts) {
    forget_ended();
    std::int32_t num_ready = 0;
    for (const RequestId id : active_) num_ready += is_ready(engine_.requests()[id]) ? 1 : 0;
    while (num_ready < num_contexts && next_ < workload_.requests.size()) {
      RequestSpec spec = workload_.requests[next_++];
      spec.arrival = engine_.now();
      const Submission submission = engine_.submit(spec);
      if (!submission.accepted()) continue;
      active_.push_back(submission.id);
      ++num_ready;
    }
  }
  // Whether every request of the workload has ended.
  bool is_done() {
    forget_ended();
    return next_ == workload_.requests.size() && active_.empty();
  }

 private:
  void forget_ended() {
    std::erase_if(active_, [&](RequestId id) { return engine_.requests()[id].has_ended(); });
  }
  // In the middle of its prompt or waiting, and a context request when it goes on.
  bool is_ready(const Request& request) const {
    const bool has_output = request.num_output_tokens() > 0;
    if (request.state == RequestState::Waiting) return !has_output || runner_ == ModelRunner::V2;
    return request.state == RequestState::Prefill && request.num_uncomputed_tokens() > 0 &&
           !has_output;
  }

  const Workload& workload_;
  Engine& engine_;
  ModelRunner runner_;
  std::size_t next_ = 0;
  std::vector<RequestId> active_;
};

void check_log(const IterationLog& log) {
  for (const LoggedIteration& iteration : log.iterations) {
    if (iteration.engine == log.iterations.front().engine) continue;
    throw ConfigError(
        fmt::format("{}:{}: is from another engine than the first iteration; allowed: the "
                    "iterations of one engine",
                    log.path, iteration.line));
  }
}

// The engine of a scenario without hardware. Decisions do not depend on its speed.
EngineSetup setup_without_device(const Scenario& scenario) try {
  const ModelConfig model = simulated_model(scenario);
  const auto fail = [](const std::string& why) {
    throw UnplacedConfigError("hardware", "required key is missing: " + why +
                                              "; allowed: a name of the catalogue, or the path of "
                                              "a YAML file with one entry");
  };
  if (model.has_states()) fail("blocks of " + model.name + " depend on it");
  const KvCapacityFn no_memory = [&fail](std::int64_t) -> std::int64_t {
    fail("kv_cache.num_blocks is not given, and its memory has to say it");
    return 0;
  };
  return make_engine_setup(scenario, model, no_memory);
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

// The scenario's engine and requests, to follow a log from several iterations on.
class Follower {
 public:
  Follower(const Scenario& scenario, const IterationLog& log)
      : iterations_(log.iterations), workload_(make_workload(scenario)), hasher_(&workload_) {
    check_workload(scenario);
    const bool has_device =
        scenario.names_step_times() || find_policy(scenario.scheduler.policy)->predicts_steps;
    if (has_device) simulation_.emplace(prepare_simulation(scenario));
    setup_ = has_device ? simulation_->setup : setup_without_device(scenario);
  }

  // Steps followed so far, and as much for the start of each run.
  std::int64_t work() const { return work_; }
  // From the iteration `first` on, as this runner counts; unknown: as the one that agrees longer.
  LoggedRun follow(std::size_t first, ModelRunner runner) {
    LoggedRun run = follow_with(first, runner);
    const std::int32_t num_contexts = iterations_[first].num_context_requests;
    if (run.num_equal > 0) {
      first_steps_[num_contexts] = composition_text(iterations_[first]);
    } else if (run.first_difference && !run.first_difference->simulated.empty()) {
      first_steps_[num_contexts] = run.first_difference->simulated;
    }
    return run;
  }
  // Whether the first step can be that iteration, by those of earlier calls.
  bool may_begin_with(const LoggedIteration& logged) const {
    if (logged.num_generation_requests > 0) return false;  // the engine is idle before
    const auto known = first_steps_.find(logged.num_context_requests);
    return known == first_steps_.end() || known->second == composition_text(logged);
  }

 private:
  void check_workload(const Scenario& scenario) const;
  LoggedRun follow_with(std::size_t first, ModelRunner runner) {
    if (runner != ModelRunner::Unknown) return follow_as(first, runner);
    LoggedRun run = follow_as(first, ModelRunner::V1);
    if (!run.first_difference || run.record.preemptions.empty()) return run;
    LoggedRun other = follow_as(first, ModelRunner::V2);
    return other.num_equal > run.num_equal ? std::move(other) : std::move(run);
  }
  LoggedRun follow_as(std::size_t first, ModelRunner runner);

  Iterations iterations_;
  Workload workload_;
  PrefixHasher hasher_;
  std::optional<Simulation> simulation_;
  EngineSetup setup_;
  std::int64_t work_ = 0;
  std::map<std::int32_t, std::string> first_steps_;  // by the number of their context requests
};

void Follower::check_workload(const Scenario& scenario) const {
  if (workload_.mode == ArrivalMode::ClosedLoop) {
    fail_config(scenario.location_of("workload.arrivals"), "workload.arrivals",
                "is a closed loop, which does not define the order of requests; allowed: "
                "arrivals at given times");
  }
  if (!workload_.images.empty()) {
    fail_config(scenario.location_of("workload"), "workload",
                "has images, about which the log says nothing; allowed: text alone");
  }
}

LoggedRun Follower::follow_as(std::size_t first, ModelRunner runner) {
  const Iterations iterations = iterations_.subspan(first);
  LoggedExecutor executor(iterations, runner);
  RunRecorder recorder(workload_.requests.size());
  EventSink* sinks[] = {&recorder};
  Engine engine(setup_, executor, sinks, &hasher_);
  Feeder feeder(workload_, engine, runner);

  LoggedRun run;
  run.first = first;
  const auto num_iterations = static_cast<std::int64_t>(iterations.size());
  while (!executor.difference() && executor.num_collected() < num_iterations) {
    const auto next = static_cast<std::size_t>(executor.num_launched());
    const bool is_logged = next < iterations.size();
    if (is_logged) feeder.provide(iterations[next].num_context_requests);
    engine.take_turn(engine.now());
    if (engine.awaits_step()) engine.take_turn(engine.next_time());
    if (!engine.is_idle()) continue;
    METRONOME_CHECK(is_logged, "a step in flight can be collected");
    if (feeder.is_done() && iterations[next].num_generation_requests == 0) {
      run.num_after = num_iterations - static_cast<std::int64_t>(next);
    } else {
      run.first_difference = {iterations[next], ""};
    }
    break;
  }
  if (executor.difference()) run.first_difference = executor.difference();
  run.num_equal =
      std::min(executor.num_launched() - (executor.difference() ? 1 : 0), num_iterations);
  run.record = recorder.finish();
  work_ += executor.num_launched() + 1;
  return run;
}

}  // namespace

std::string composition_text(std::int64_t num_context_requests, std::int64_t num_context_tokens,
                             std::int64_t num_generation_requests,
                             std::int64_t num_generation_tokens) {
  return fmt::format(
      "{} context requests, {} context tokens, {} generation requests, {} generation tokens",
      num_context_requests, num_context_tokens, num_generation_requests, num_generation_tokens);
}

std::string composition_text(const LoggedIteration& logged) {
  return composition_text(logged.num_context_requests, logged.num_context_tokens,
                          logged.num_generation_requests, logged.num_generation_tokens);
}

std::string simulated_text(const LoggedRun::Difference& difference) {
  return difference.simulated.empty() ? "nothing to compute" : difference.simulated;
}

std::string difference_text(const LoggedRun::Difference& difference, const std::string& name) {
  return fmt::format("iteration {} has {}, but {} gives {}", difference.logged.number,
                     composition_text(difference.logged), name, simulated_text(difference));
}

std::string left_out_text(const LoggedRun& run, const IterationLog& log) {
  const auto place = [&log](std::size_t i) {
    return fmt::format("iteration {} (line {})", log.iterations[i].number, log.iterations[i].line);
  };
  std::string text;
  if (run.first > 0) {
    text = "the requests fit from " + place(run.first) + " on, and the " +
           count_text(run.first, "iteration") + " before it are left out";
  }
  if (run.num_after > 0) {
    const std::size_t next = log.iterations.size() - static_cast<std::size_t>(run.num_after);
    text += (text.empty() ? "" : "; ") + std::string("all requests have ended before ") +
            place(next) + ", and the " + count_text(run.num_after, "iteration") +
            " from there on are left out";
  }
  if (run.num_untried > 0) {
    text += (text.empty() ? "" : "; ") + std::string("the requests were not tried from ") +
            grouped_text(run.num_untried) +
            " other iterations on, which would take long: --iterations FIRST:LAST names the right "
            "ones";
  }
  return text;
}

namespace {

bool have_equal_work(const LoggedIteration& a, const LoggedIteration& b) {
  return a.num_context_requests == b.num_context_requests &&
         a.num_context_tokens == b.num_context_tokens &&
         a.num_generation_requests == b.num_generation_requests &&
         a.num_generation_tokens == b.num_generation_tokens;
}

// For each iteration from `first` on, how many from there on have the work of those from `first`
// on: the Z-function of a string.
std::vector<std::size_t> equal_lengths(Iterations iterations, std::size_t first) {
  iterations = iterations.subspan(first);
  std::vector<std::size_t> lengths(iterations.size(), 0);
  std::size_t begin = 0, end = 0;  // the match that reaches farthest
  for (std::size_t i = 1; i < iterations.size(); ++i) {
    std::size_t& length = lengths[i];
    if (i < end) length = std::min(lengths[i - begin], end - i);
    while (i + length < iterations.size() &&
           have_equal_work(iterations[length], iterations[i + length])) {
      ++length;
    }
    if (i + length > end) begin = i, end = i + length;
  }
  return lengths;
}

// Tells starts that cannot match longer than a run did. The steps of a run follow from the numbers
// of context requests: where two starts have the same iterations, they have the same steps.
class LaterStarts {
 public:
  LaterStarts(Iterations iterations, const LoggedRun& best)
      : iterations_(iterations),
        first_(best.first),
        num_equal_(static_cast<std::size_t>(best.num_equal)),
        equal_(equal_lengths(iterations, best.first)) {}

  bool may_match_longer(std::size_t start) const {
    const std::size_t length = equal_[start - first_];
    if (length > num_equal_) return false;  // up to the same difference
    if (length == num_equal_ || start + length >= iterations_.size()) return true;
    // With as many context requests the step is again that of the run, which the log has not.
    return iterations_[start + length].num_context_requests !=
           iterations_[first_ + length].num_context_requests;
  }
  bool is_within(std::size_t start) const { return start < first_ + num_equal_; }

 private:
  Iterations iterations_;
  std::size_t first_;
  std::size_t num_equal_;
  std::vector<std::size_t> equal_;
};

}  // namespace

LoggedRun run_logged(const Scenario& scenario, const IterationLog& log, LogStart start) {
  check_log(log);
  Follower follower(scenario, log);
  LoggedRun best = follower.follow(0, log.runner);
  if (start == LogStart::First || !best.first_difference) return best;
  constexpr std::int64_t kFewestFound = 20;      // iterations; fewer match by chance
  constexpr std::int64_t kMostWork = 4'000'000;  // some seconds
  LaterStarts starts(log.iterations, best);
  std::int64_t num_untried = 0;
  for (std::size_t i = 1; i < log.iterations.size() && best.first_difference; ++i) {
    if (std::ssize(log.iterations) - static_cast<std::int64_t>(i) <= best.num_equal) break;
    if (!follower.may_begin_with(log.iterations[i]) || !starts.may_match_longer(i)) continue;
    // A start within the best run is the least likely one.
    const std::int64_t limit = starts.is_within(i) ? kMostWork / 2 : kMostWork;
    if (follower.work() > limit) {
      ++num_untried;
      continue;
    }
    LoggedRun run = follower.follow(i, log.runner);
    const bool is_chance = run.num_equal < kFewestFound && run.num_after == 0;
    if (run.num_equal <= best.num_equal || is_chance) continue;
    best = std::move(run);
    starts = LaterStarts(log.iterations, best);
  }
  best.num_untried = best.first_difference ? num_untried : 0;
  return best;
}

}  // namespace metronome
