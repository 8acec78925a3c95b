// SPDX-License-Identifier: Apache-2.0
// An engine on a bench: a clock that jumps, an executor that checks what it is asked to compute,
// and a record of everything the engine says.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/engine/drive.h"
#include "core/engine/due_arrivals.h"
#include "core/engine/engine.h"
#include "core/engine/engine_config.h"
#include "core/engine/policies/registry.h"
#include "tests/core/engine/kv/kv_oracle.h"
#include "tests/encoder_oracle.h"

namespace metronome::testing {

class TestClock final : public Clock {
 public:
  TimeNs now() const override { return now_; }
  void wait_until(TimeNs t) override { now_ = std::max(now_, t); }

 private:
  TimeNs now_ = 0;
};

// Every step takes `step_time`. Tracks by itself how many tokens of each request are cached, and
// checks every chunk against that, against the block tables, and against the other chunks.
class CheckingExecutor final : public Executor {
 public:
  std::int32_t block_size = 16;
  TimeNs step_time = kNsPerMs;
  std::function<bool(std::int64_t step)> fails = [](std::int64_t) { return false; };
  bool returns_tokens = false;
  // Whether the token that follows `num_positions` of a request is a stop token; those returned
  // only.
  std::function<bool(RequestId, std::int32_t num_positions)> stops;
  explicit CheckingExecutor(bool takes_runs = false) : takes_runs_(takes_runs) {}

  EncoderOracle* encoder = nullptr;  // checks the encoding of images, where given
  // Of images that a failed step should have encoded: requests that used them, by generation.
  std::vector<std::pair<RequestId, std::uint8_t>> spoiled;
  KvOracle* oracle = nullptr;   // checks the contents of blocks, where given
  std::vector<StepPlan> plans;  // every plan launched, with every chunk
  std::int64_t num_runs = 0;    // plans with a run of decodes

  bool takes_runs() const override { return takes_runs_; }

  void launch(const StepPlan& planned, const RequestTable& requests, TimeNs now) override {
    StepPlan plan = planned;
    if (plan.run.num_decodes > 0) {
      METRONOME_CHECK(takes_runs_ && !returns_tokens, "runs have lengths only");
      ++num_runs;
      plan.run.members->list(planned.chunks, static_cast<std::size_t>(planned.run.place), false,
                             plan.chunks);
    }
    check_plan(plan, requests);
    if (oracle != nullptr) oracle->compute(plan, requests);
    if (encoder != nullptr) encoder->launch(plan);
    plans.push_back(plan);
    StepResult result;
    result.step_index = plan.step_index;
    result.started_at = std::max(now, free_at_);
    result.finished_at = result.started_at + step_time;
    result.failed = fails(plan.step_index);
    if (result.failed) result.error = "injected failure of step " + std::to_string(plan.step_index);
    free_at_ = result.finished_at;
    if (returns_tokens && !result.failed) {
      for (const ScheduledChunk& chunk : plan.chunks) {
        if (!chunk.samples_token) continue;
        result.sampled_tokens.push_back(token_after(chunk.request, chunk.end_position()));
        if (stops)
          result.ends_request.push_back(stops(chunk.request, chunk.end_position()) ? 1 : 0);
      }
    }
    in_flight_.push_back(std::move(result));
  }

  const StepResult& collect() override {
    METRONOME_CHECK(!in_flight_.empty(), "collect without a step in flight");
    last_ = std::move(in_flight_.front());
    in_flight_.pop_front();
    if (oracle != nullptr && last_.failed) oracle->spoil(last_.step_index);
    spoiled.clear();
    if (encoder != nullptr && last_.failed) spoiled = encoder->spoil(last_.step_index);
    return last_;
  }

  // The token this executor samples for a request whose KV covers `num_positions`.
  static TokenId token_after(RequestId request, std::int32_t num_positions) {
    return static_cast<TokenId>(static_cast<std::int32_t>(index(request)) * 100'000 +
                                num_positions);
  }

 private:
  void check_plan(const StepPlan& plan, const RequestTable& requests) {
    std::int32_t expected_begin = 0;
    for (const ForwardPass& pass : plan.passes) {
      METRONOME_CHECK(pass.begin == expected_begin && pass.end > pass.begin, "passes have a gap");
      expected_begin = pass.end;
      std::map<RequestId, int> seen;
      for (std::int32_t i = pass.begin; i < pass.end; ++i) {
        const ScheduledChunk& chunk = plan.chunks[static_cast<std::size_t>(i)];
        METRONOME_CHECK(++seen[chunk.request] == 1, "a request twice in one forward pass");
        check_chunk(chunk, requests[chunk.request]);
      }
    }
    METRONOME_CHECK(expected_begin == static_cast<std::int32_t>(plan.chunks.size()),
                    "passes do not cover the plan");
  }

  void check_chunk(const ScheduledChunk& chunk, const Request& request) {
    METRONOME_CHECK(!request.has_ended(), "an ended request is computed");
    std::int32_t& cached = cached_[chunk.request];
    std::uint8_t& generation = generations_[chunk.request];
    if (cached == 0 || chunk.generation != generation) {  // new, or resumed after a preemption
      generation = chunk.generation;
      cached = chunk.first_position;  // a cached prefix counts as computed
    }
    METRONOME_CHECK(chunk.first_position == cached, "a chunk leaves a gap in the KV cache");
    cached += chunk.num_tokens;
    METRONOME_CHECK(chunk.num_emitted == 0, "no plan knows its outcome");
    METRONOME_CHECK(request.has_blocks_in_reserve ||
                        cached <=
                            static_cast<std::int64_t>(request.block_table.size()) * block_size,
                    "a chunk has no room in its blocks");
    if (chunk.kind == ChunkKind::Decode) METRONOME_CHECK(chunk.num_tokens == 1, "one token");
  }

  const bool takes_runs_;
  std::map<RequestId, std::int32_t> cached_;
  std::map<RequestId, std::uint8_t> generations_;
  std::deque<StepResult> in_flight_;
  StepResult last_;
  TimeNs free_at_ = 0;
};

// Everything the engine says, kept as it was said.
class Journal final : public EventSink {
 public:
  struct Step {
    StepRecord record;
    std::vector<ScheduledChunk> chunks;

    std::vector<bool> emitted() const {  // per chunk
      std::vector<bool> flags;
      for (const ScheduledChunk& chunk : chunks) flags.push_back(chunk.num_emitted > 0);
      return flags;
    }
  };
  std::vector<Event> events;
  std::vector<Step> steps;
  std::map<RequestId, std::int64_t> end_step;  // the step whose commit ended it; -1 before any
  std::map<RequestId, int> num_emitted;

  void on_event(const Event& event, const Request&) override {
    check_order(event.sequence, event.time);
    check_residence(event);
    events.push_back(event);
    if (event.kind == EventKind::Ended) {
      end_step[event.request] = steps.empty() ? -1 : steps.back().record.step_index;
    }
  }

  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable&) override {
    check_order(step.sequence, step.finished_at);
    steps.push_back({step, {chunks.begin(), chunks.end()}});
    for (const ScheduledChunk& chunk : chunks) {
      METRONOME_CHECK(chunk.num_emitted == 0 || chunk.samples_token, "a token without a sample");
      num_emitted[chunk.request] += chunk.num_emitted;
    }
  }

  // Tokens computed in each step.
  std::vector<int> tokens_per_step() const {
    std::vector<int> tokens;
    for (const Step& step : steps) {
      tokens.push_back(step.record.num_prefill_tokens + step.record.num_decode_tokens);
    }
    return tokens;
  }

  // The sizes of the prefill chunks of one request, in order.
  std::vector<int> prefill_chunks(RequestId request) const {
    std::vector<int> sizes;
    for (const Step& step : steps) {
      for (const ScheduledChunk& chunk : step.chunks) {
        if (chunk.request == request && chunk.kind == ChunkKind::Prefill) {
          sizes.push_back(chunk.num_tokens);
        }
      }
    }
    return sizes;
  }

  std::vector<RequestId> admissions() const {
    std::vector<RequestId> ids;
    for (const Event& event : events) {
      if (event.kind == EventKind::Admitted) ids.push_back(event.request);
    }
    return ids;
  }

 private:
  // Admitted and Preempted alternate, and nobody is computed who was not admitted.
  void check_residence(const Event& event) {
    bool& is_running = is_running_[event.request];
    if (event.kind == EventKind::Admitted || event.kind == EventKind::Preempted) {
      METRONOME_CHECK(is_running == (event.kind == EventKind::Preempted), "no residence to change");
      is_running = !is_running;
    }
  }

  void check_order(std::int64_t sequence, TimeNs time) {
    METRONOME_CHECK(sequence == next_sequence_++, "events are numbered without gaps");
    METRONOME_CHECK(time >= last_time_, "time runs backwards");
    last_time_ = time;
  }

  std::map<RequestId, bool> is_running_;
  std::int64_t next_sequence_ = 0;
  TimeNs last_time_ = 0;
};

// A roomy default engine: paged, one step in flight, nothing limited.
inline EngineSetup make_setup(const std::string& policy) {
  EngineSetup setup;
  setup.scheduler.policy = policy;
  setup.kv_cache = {.num_blocks = 10'000, .block_size = 16};
  setup.max_num_seqs = 64;
  setup.max_model_len = 8192;
  setup.step_shape = policy == "single_prefill" ? StepShape::Separate : StepShape::Mixed;
  return setup;
}

// Keeps the cache as the policy's engine does by default, prefix caching included. For after
// num_blocks, block_size, max_model_len and the scheduler's settings are chosen.
inline void arrange_cache(EngineSetup& setup) {
  const PolicyInfo* policy = find_policy(setup.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "the policy exists");
  setup.kv_cache.enable_prefix_caching = caches_prefixes(*policy, {});
  metronome::arrange_cache(*policy, setup);
}

// Requests as they ended. An engine that runs to the end forgets them.
struct EndedRequests final : EventSink {
  std::vector<Request> requests;  // by id
  void on_event(const Event& event, const Request& request) override {
    requests.resize(std::max(requests.size(), index(event.request) + 1));
    if (event.kind == EventKind::Ended) requests[index(event.request)] = request;
  }
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}
};

// An engine with a clock that the caller looks at.
class BenchEngine final : public Engine {
 public:
  BenchEngine(const EngineSetup& setup, Executor& executor, Clock& clock,
              std::span<EventSink* const> sinks, const PrefixHasher* hasher = nullptr)
      : Engine(setup, executor, sinks, hasher), clock_(clock) {}

  // Plans, and commits the oldest step if the next plan has to wait for it. False: it is idle.
  bool step() {
    take_turn(clock_.now());
    if (awaits_step()) {
      clock_.wait_until(next_time());
      take_turn(clock_.now());
    }
    clock_.wait_until(now());
    return !is_idle();
  }
  // Steps until every request has ended.
  void drain() {
    while (has_work()) {
      if (step() || !has_work()) continue;  // an empty plan may end the last requests
      METRONOME_CHECK(wake_time() != kNever, "some requests can never be scheduled");
      clock_.wait_until(wake_time());
    }
    check_integrity();
  }
  bool run(ArrivalSource& arrivals, const ProgressFn& progress = {},
           std::int64_t steps_per_progress = 1024) {
    DueArrivals source(arrivals, *this);
    return drive(*this, source, clock_, progress, steps_per_progress);
  }

 private:
  Clock& clock_;
};

struct Bench {
  // `hasher`: what the prompts are made of, for policies that cache prefixes; all unique if absent.
  explicit Bench(const EngineSetup& setup, const PrefixHasher* hasher = nullptr)
      : engine(setup, executor, clock, sinks, hasher != nullptr ? hasher : &unique_prompts) {
    executor.block_size = setup.kv_cache.block_size;
  }

  RequestId submit(std::int32_t prompt, std::int32_t output, std::int32_t priority = 0) {
    return engine.submit({clock.now(), prompt, output, priority}).id;
  }
  const Request& operator[](RequestId id) const { return engine.requests()[id]; }

  PrefixHasher unique_prompts;
  TestClock clock;
  CheckingExecutor executor;
  Journal journal;
  std::vector<EventSink*> sinks{&journal};
  BenchEngine engine;
};

}  // namespace metronome::testing
