#include "study/recorded/logged_run.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"

namespace metronome {
namespace {

// Steps take the logged times. With two steps in flight, one more step than logged may launch.
class LoggedExecutor final : public Executor {
 public:
  explicit LoggedExecutor(const IterationLog& log) : log_(log) {}

  void launch(const StepPlan& plan, const RequestTable&, TimeNs now) override {
    const auto i = static_cast<std::size_t>(num_launched_);
    StepResult& result = results_[i % kNumResults];
    result.step_index = plan.step_index;
    result.started_at = result.finished_at = std::max(now, device_free_at_);
    ++num_launched_;
    if (i >= log_.iterations.size()) return;
    const LoggedIteration& logged = log_.iterations[i];
    result.finished_at += logged.elapsed_ns;
    device_free_at_ = result.finished_at;
    std::int32_t num_contexts = 0;
    for (const ScheduledChunk& chunk : plan.chunks) {
      num_contexts += chunk.kind == ChunkKind::Prefill ? 1 : 0;
    }
    const bool is_equal = num_contexts == logged.num_context_requests &&
                          plan.num_prefill_tokens == logged.num_context_tokens &&
                          plan.num_decode_tokens == logged.num_generation_requests &&
                          plan.num_decode_tokens == logged.num_generation_tokens;
    if (!is_equal && !difference_) {
      difference_ = {logged, composition_text(num_contexts, plan.num_prefill_tokens,
                                              plan.num_decode_tokens, plan.num_decode_tokens)};
    }
  }
  const StepResult& collect() override {
    return results_[static_cast<std::size_t>(num_collected_++ % kNumResults)];
  }

  std::int64_t num_launched() const { return num_launched_; }
  std::int64_t num_collected() const { return num_collected_; }
  const std::optional<LoggedRun::Difference>& difference() const { return difference_; }

 private:
  const IterationLog& log_;
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
  TimeNs device_free_at_ = 0;
  StepResult results_[kNumResults];
  std::optional<LoggedRun::Difference> difference_;
};

// Submits requests when the log needs them.
class Feeder {
 public:
  Feeder(const Workload& workload, Engine& engine, Clock& clock)
      : workload_(workload), engine_(engine), clock_(clock) {}

  // Ensures that this many requests with prompt tokens left can be in the next step.
  void provide(std::int32_t num_contexts) {
    std::erase_if(active_, [&](RequestId id) { return engine_.requests()[id].has_ended(); });
    std::int32_t num_ready = 0;  // in the middle of their prompts, or waiting
    for (const RequestId id : active_) {
      const Request& request = engine_.requests()[id];
      const bool waits = request.state == RequestState::Waiting;
      const bool goes_on =
          request.state == RequestState::Prefill && request.num_uncomputed_tokens() > 0;
      num_ready += waits || goes_on ? 1 : 0;
    }
    while (num_ready < num_contexts && next_ < workload_.requests.size()) {
      RequestSpec spec = workload_.requests[next_++];
      spec.arrival = clock_.now();
      const Submission submission = engine_.submit(spec);
      if (!submission.accepted()) continue;
      active_.push_back(submission.id);
      ++num_ready;
    }
  }

 private:
  const Workload& workload_;
  Engine& engine_;
  Clock& clock_;
  std::size_t next_ = 0;
  std::vector<RequestId> active_;
};

void check_log(const IterationLog& log) {
  for (const LoggedIteration& iteration : log.iterations) {
    if (iteration.engine == log.iterations.front().engine) continue;
    throw ConfigError(
        log.path + ":" + std::to_string(iteration.line) +
        ": is from another engine than the first iteration; allowed: the iterations of "
        "one engine");
  }
}

}  // namespace

std::string composition_text(std::int64_t num_context_requests, std::int64_t num_context_tokens,
                             std::int64_t num_generation_requests,
                             std::int64_t num_generation_tokens) {
  return std::to_string(num_context_requests) + " context requests, " +
         std::to_string(num_context_tokens) + " context tokens, " +
         std::to_string(num_generation_requests) + " generation requests, " +
         std::to_string(num_generation_tokens) + " generation tokens";
}

LoggedRun run_logged(const Scenario& scenario, const IterationLog& log) {
  check_log(log);
  const Workload workload = make_workload(scenario);
  if (workload.mode == ArrivalMode::ClosedLoop) {
    fail_config(scenario.location_of("workload.arrivals"), "workload.arrivals",
                "is a closed loop, which does not define the order of requests; allowed: "
                "arrivals at given times");
  }
  if (!workload.images.empty()) {
    fail_config(scenario.location_of("workload"), "workload",
                "has images, about which the log says nothing; allowed: text alone");
  }
  const Simulation simulation = prepare_simulation(scenario);
  const PrefixHasher hasher(&workload);
  LoggedExecutor executor(log);
  RunRecorder recorder(workload.requests.size());
  EventSink* sinks[] = {&recorder};
  VirtualClock clock;
  Engine engine(simulation.setup, executor, clock, sinks, &hasher);
  Feeder feeder(workload, engine, clock);

  LoggedRun run;
  const auto num_iterations = static_cast<std::int64_t>(log.iterations.size());
  while (!executor.difference() && executor.num_collected() < num_iterations) {
    const auto next = static_cast<std::size_t>(executor.num_launched());
    const bool is_logged = next < log.iterations.size();
    if (is_logged) feeder.provide(log.iterations[next].num_context_requests);
    if (engine.step()) continue;
    METRONOME_CHECK(is_logged, "a step in flight can be collected");
    run.first_difference = {log.iterations[next], ""};
    break;
  }
  if (executor.difference()) run.first_difference = executor.difference();
  run.num_equal =
      std::min(executor.num_launched() - (executor.difference() ? 1 : 0), num_iterations);
  run.record = recorder.finish();
  return run;
}

}  // namespace metronome
