// SPDX-License-Identifier: Apache-2.0
// Runs of decodes, and steps taken together, against decodes and steps one by one: random whole
// runs through the simulator, with step times that depend on every chunk. A difference prints the
// seed.
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>

#include "core/base/rng.h"
#include "core/metrics/digest.h"
#include "core/metrics/run_record.h"
#include "core/workload/workload_arrivals.h"
#include "sim/sim_executor.h"
#include "tests/catch.h"
#include "tests/core/engine/random_case.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Arrivals and ends often fall on the same moment.
constexpr TimeNs kMoment = kNsPerMs / 4;

// Times that differ with each position, pass and step.
class HashedCosts final : public CostModel {
 public:
  explicit HashedCosts(std::uint64_t seed) : seed_(seed) {}

  StepCost step_cost(const StepPlan& plan) override {
    const std::uint64_t hash = hash_of(plan);
    StepCost cost;
    cost.total_ns = kMoment * static_cast<TimeNs>(hash % 8);
    cost.decode_only_ns = cost.total_ns / 2;
    cost.is_extrapolated = hash % 3 == 0;
    return cost;
  }
  TimeNs host_gap_ns(const StepPlan& plan) const override {
    return kMoment * (static_cast<TimeNs>(hash_of(plan) >> 32) % 3);
  }
  std::int64_t kv_capacity_blocks(std::int64_t) const override { return 1; }

 private:
  std::uint64_t hash_of(const StepPlan& plan) const {
    std::uint64_t hash = mix64(seed_ ^ static_cast<std::uint64_t>(plan.step_index));
    std::vector<ScheduledChunk> listed;
    for (const ForwardPass& pass : plan.passes) {
      const PassChunks chunks = chunks_of(plan, pass);
      listed.assign(chunks.chunks.begin(), chunks.chunks.end());
      if (chunks.run != nullptr) chunks.run->list(chunks.chunks, chunks.run_place, false, listed);
      for (const ScheduledChunk& chunk : listed) {
        hash = mix64(hash ^ index(chunk.request));
        hash = mix64(hash ^ static_cast<std::uint64_t>(chunk.end_position()));
      }
      hash = mix64(hash + 1);
    }
    return hash;
  }

  std::uint64_t seed_;
};

enum class Form { OneByOne, Runs, RunsOfSteps };

// The simulator's executor in one of these forms. Some of its steps fail.
class FailingExecutor final : public Executor {
 public:
  std::int64_t num_repeats = 0;

  FailingExecutor(CostModel& costs, Form form, std::uint64_t seed, double failure_chance)
      : executor_(costs), form_(form), seed_(seed), failure_chance_(failure_chance) {}

  bool takes_runs() const override { return form_ != Form::OneByOne; }

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    executor_.launch(plan, requests, now);
  }

  std::size_t launch_repeats(const StepPlan& plan, TimeNs now, TimeNs until, TimeNs horizon,
                             std::span<StepTimes> times) override {
    if (form_ != Form::RunsOfSteps || fails(plan.step_index)) return 0;
    std::size_t num_sound = 0;
    while (num_sound < times.size() &&
           !fails(plan.step_index + 1 + static_cast<std::int64_t>(num_sound))) {
      ++num_sound;
    }
    const std::size_t num_steps =
        executor_.launch_repeats(plan, now, until, horizon, times.first(num_sound));
    num_repeats += static_cast<std::int64_t>(num_steps);
    return num_steps;
  }

  TimeNs ready_at() const override { return executor_.ready_at(); }

  const StepResult& collect() override {
    result_ = executor_.collect();
    result_.failed = fails(result_.step_index);
    if (result_.failed) result_.error = "injected";
    return result_;
  }

 private:
  bool fails(std::int64_t step) const {
    const std::uint64_t draw = mix64(mix64(seed_) ^ static_cast<std::uint64_t>(step));
    return static_cast<double>(draw >> 11) * 0x1p-53 < failure_chance_;
  }

  SimExecutor executor_;
  Form form_;
  std::uint64_t seed_;
  double failure_chance_;
  StepResult result_;
};

struct Coverage {
  std::int64_t num_repeats = 0;
  std::int64_t num_failed = 0;
  std::int64_t num_aborted = 0;
  std::int64_t num_preempted = 0;
};

struct Outcome {
  std::uint64_t digest = 0;
  RunRecord record;
};

Outcome run_form(const RandomCase& random, std::uint64_t seed, Form form, Coverage& coverage) {
  HashedCosts costs(seed);
  FailingExecutor executor(costs, form, seed, random.failure_chance / 4);
  TestClock clock;
  EventDigest digest;
  RunRecorder recorder;
  EventSink* const sinks[] = {&digest, &recorder};
  const PrefixHasher hasher(&random.workload);
  BenchEngine engine(random.setup, executor, clock, sinks, &hasher);
  WorkloadArrivals arrivals(random.workload);
  Rng rng(seed, "aborts");
  const auto abort_some = [&](const RunProgress&) {
    if (engine.requests().size() > 0 && chance(rng, random.abort_chance * 4)) {
      const auto last = static_cast<std::int64_t>(engine.requests().size()) - 1;
      engine.abort(static_cast<RequestId>(rng.uniform_int(0, last)));
    }
    return true;
  };
  engine.run(arrivals, abort_some, 1 + static_cast<std::int64_t>(seed % 40));
  coverage.num_repeats += executor.num_repeats;
  Outcome outcome{digest.value(), recorder.finish()};
  for (const RequestRecord& request : outcome.record.requests) {
    coverage.num_failed += request.reason == EndReason::StepFailed ? 1 : 0;
    coverage.num_aborted += request.reason == EndReason::Aborted ? 1 : 0;
    coverage.num_preempted += request.num_preemptions;
  }
  return outcome;
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// The engine that takes steps together, advanced from one random time to the next.
Outcome run_in_parts(const RandomCase& random, std::uint64_t seed, Coverage& coverage) {
  HashedCosts costs(seed);
  FailingExecutor executor(costs, Form::RunsOfSteps, seed, random.failure_chance / 4);
  EventDigest digest;
  RunRecorder recorder;
  EventSink* const sinks[] = {&digest, &recorder};
  const PrefixHasher hasher(&random.workload);
  Engine engine(random.setup, executor, sinks, &hasher);
  WorkloadArrivals arrivals(random.workload);
  DueArrivals source(arrivals, engine);
  engine.receive_from(source);
  Rng rng(seed, "parts");
  const auto longest = rng.uniform_int(1, 200);
  while (engine.next_time() != kNever) {
    const TimeNs until = engine.next_time() + kMoment * rng.uniform_int(0, longest);
    engine.advance(until);
    require(engine.now() <= until, "time runs ahead");
    require(engine.next_time() >= until, "a turn is left");
    engine.check_integrity();
  }
  coverage.num_repeats += executor.num_repeats;
  return {digest.value(), recorder.finish()};
}

void require_same(const Outcome& plain, const Outcome& fast) {
  require(plain.digest == fast.digest, "digests differ");
  require(plain.record.steps.size() == fast.record.steps.size(), "numbers of steps differ");
  auto step = fast.record.steps.begin();
  for (const StepEntry& expected : plain.record.steps) {
    require(*step == expected, "step " + std::to_string(step.position()) + " differs");
    ++step;
  }
  require(plain.record.runs == fast.record.runs, "tokens differ");
  require(plain.record.requests.size() == fast.record.requests.size(), "requests differ");
  for (std::size_t i = 0; i < plain.record.requests.size(); ++i) {
    const RequestRecord& a = plain.record.requests[i];
    const RequestRecord& b = fast.record.requests[i];
    require(a.first_run == b.first_run && a.ended == b.ended && a.reason == b.reason &&
                a.num_output_tokens == b.num_output_tokens && a.first_token == b.first_token &&
                a.last_token == b.last_token && a.max_itl_ns == b.max_itl_ns &&
                a.num_preemptions == b.num_preemptions,
            "request " + std::to_string(i) + " differs");
  }
}

// A case whose arrivals fall on moments, as the ends of steps do.
RandomCase draw_on_moments(std::uint64_t seed) {
  RandomCase random = draw_run(seed);
  if (random.workload.mode == ArrivalMode::Timed) {
    for (RequestSpec& spec : random.workload.requests) spec.arrival -= spec.arrival % kMoment;
  }
  return random;
}

void compare_cases(std::uint64_t begin, std::uint64_t end) {
  Coverage coverage;
  for (std::uint64_t seed = begin; seed < end; ++seed) {
    const RandomCase random = draw_on_moments(seed);
    try {
      const Outcome plain = run_form(random, seed, Form::OneByOne, coverage);
      require_same(plain, run_form(random, seed, Form::Runs, coverage));
      require_same(plain, run_form(random, seed, Form::RunsOfSteps, coverage));
    } catch (const std::exception& error) {
      FAIL("seed " << seed << ": " << error.what());
    }
  }
  const auto num_cases = static_cast<std::int64_t>(end - begin);
  CHECK(coverage.num_repeats > 10 * num_cases);
  CHECK(coverage.num_failed > num_cases / 20);
  CHECK(coverage.num_aborted > num_cases / 20);
  CHECK(coverage.num_preempted > num_cases / 2);
}

}  // namespace

TEST_CASE("a run of steps takes new blocks on the way", "[sim]") {
  RandomCase steady;
  steady.setup.scheduler.policy = "token_budget";
  steady.setup.kv_cache.num_blocks = 100;
  steady.setup.kv_cache.block_size = 4;
  steady.setup.max_num_seqs = 2;
  steady.setup.max_model_len = 200;
  steady.workload.requests.assign(2, RequestSpec{0, 16, 100, 0});
  constexpr std::uint64_t kSeed = 39;  // it calls for progress every 40 steps
  Coverage coverage;
  const Outcome plain = run_form(steady, kSeed, Form::OneByOne, coverage);
  CHECK(coverage.num_repeats == 0);
  require_same(plain, run_form(steady, kSeed, Form::RunsOfSteps, coverage));
  // Five of 100 steps are planned alone: that of the prompts, the next one, the last one, and one
  // after each of two calls for progress.
  CHECK(plain.record.steps.size() == 100);
  CHECK(coverage.num_repeats == 95);
}

TEST_CASE("an engine may be advanced by any times", "[sim][property]") {
  Coverage coverage;
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    RandomCase random = draw_on_moments(seed);
    random.abort_chance = 0;
    try {
      require_same(run_form(random, seed, Form::RunsOfSteps, coverage),
                   run_in_parts(random, seed, coverage));
    } catch (const std::exception& error) {
      FAIL("seed " << seed << ": " << error.what());
    }
  }
  CHECK(coverage.num_repeats > 30'000);
}

TEST_CASE("steps taken together are those one by one", "[sim][property]") {
  compare_cases(0, 4'000);
}

TEST_CASE("steps taken together are those one by one: 100,000 cases", "[sim][property][slow]") {
  compare_cases(0, 100'000);
}

}  // namespace metronome::testing::TEST_FILE
