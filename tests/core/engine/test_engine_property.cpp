// SPDX-License-Identifier: Apache-2.0
// Random scenarios (policies x caches x limits x failures x aborts x stop tokens), each driven step
// by step while every invariant is checked. A violation prints the seed; setting
// METRONOME_PROPERTY_SEED to it replays that one case.
#include <cstdlib>
#include <iostream>
#include <set>
#include <stdexcept>

#include "core/base/rng.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/digest.h"
#include "core/metrics/run_record.h"
#include "core/workload/workload_arrivals.h"
#include "tests/catch.h"
#include "tests/core/engine/random_case.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"

namespace metronome::testing::TEST_FILE {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Like a model that computes, it says the same of a token however often that is computed.
auto stop_tokens(const RandomCase& random, std::uint64_t seed) {
  return [chance = random.stop_chance, seed](RequestId request, std::int32_t num_positions) {
    const std::uint64_t token = index(request) << 32 | static_cast<std::uint32_t>(num_positions);
    return static_cast<double>(mix64(mix64(seed) ^ token) >> 11) * 0x1p-53 < chance;
  };
}

bool returns_tokens(std::uint64_t seed) { return seed % 2 == 0; }

// Events that the cases reached, so that the test notices when they stop reaching it.
struct Coverage {
  std::map<std::string, std::int64_t> counts;
};

EngineSetup with_items(const RandomCase& random) {
  EngineSetup setup = random.setup;
  if (!random.workload.images.empty()) setup.encoder.items = &random.workload;
  return setup;
}

// The result of a case.
struct Outcome {
  std::uint64_t digest = 0;
  RunRecord record;
  std::vector<std::int32_t> outputs;  // tokens of each request; -1: it did not finish
};

// Whether two runs gave the same tokens in the same steps.
bool same_tokens(const RunRecord& a, const RunRecord& b) {
  if (a.runs != b.runs || a.steps.size() != b.steps.size()) return false;
  for (std::size_t i = 0; i < a.requests.size(); ++i) {
    if (a.requests[i].first_run != b.requests[i].first_run) return false;
  }
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    if (a.steps[i].num_emitted != b.steps[i].num_emitted) return false;
  }
  return true;
}

// Drives one case and checks what must hold at every moment and at the end.
class CaseRun {
 public:
  // With `takes_runs` the executor takes runs of decodes, and returns no tokens.
  CaseRun(const RandomCase& random, std::uint64_t seed, bool takes_runs)
      : random_(random),
        rng_(seed, "events"),
        hasher_(&random.workload),
        oracle_(random.workload, random.setup.kv_cache),
        executor_(takes_runs),
        encoder_(random.workload),
        engine_(with_items(random), executor_, clock_, sinks_, &hasher_) {
    executor_.encoder = &encoder_;
    executor_.returns_tokens = returns_tokens(seed);
    if (random.stop_chance > 0) executor_.stops = stop_tokens(random, seed);
    executor_.block_size = random.setup.kv_cache.block_size;
    // In a run a request does not know all of its blocks.
    if (!takes_runs) executor_.oracle = &oracle_;
    executor_.fails = [this](std::int64_t step) {
      const bool fails = chance(rng_, random_.failure_chance);
      if (fails) failing_steps_.insert(step);
      return fails;
    };
  }

  Outcome run(Coverage& coverage) {
    const std::vector<RequestSpec>& specs = random_.workload.requests;
    for (std::size_t i = 0; i < specs.size(); ++i) {
      for (int gap = 0; gap < random_.gap_before[i]; ++gap) step();
      submit(specs[i]);
    }
    while (engine_.has_work()) step();
    while (!kept_.empty()) release_one();
    check_end();
    for (const Event& event : journal_.events) {
      if (event.kind == EventKind::Preempted) ++coverage.counts["preempted"];
      if (event.kind == EventKind::Ended) ++coverage.counts[std::string(to_string(event.reason))];
    }
    coverage.counts[policy_] += journal_step();
    coverage.counts["steps with runs"] += executor_.num_runs;
    coverage.counts["images encoded"] += encoder_.num_encoded;
    coverage.counts["images split"] += encoder_.num_split;
    coverage.counts["images spoiled"] += num_spoiled_;
    coverage.counts["preempted in a prompt"] += num_preempted_in_prompt_;
    coverage.counts["preempted in an image"] += num_preempted_in_image_;
    coverage.counts[policy_ + " reused"] += oracle_.num_tokens_reused() > 0 ? 1 : 0;
    coverage.counts["computed"] += num_computed();
    coverage.counts["released"] += num_released_;
    for (const RequestSpec& spec : specs) coverage.counts["received"] += spec.num_received_tokens;
    coverage.counts["states reused"] += oracle_.num_states_reused() > 0 ? 1 : 0;
    return {digest_.value(), recorder_.finish(), outputs()};
  }

 private:
  std::int64_t num_computed() const {
    std::int64_t num_tokens = 0;
    for (const auto& [key, stay] : stays_) num_tokens += stay.num_computed;
    return num_tokens;
  }

  std::vector<std::int32_t> outputs() const {
    std::vector<std::int32_t> outputs;
    for (std::size_t i = 0; i < engine_.requests().size(); ++i) {
      const Request& request = engine_.requests()[static_cast<RequestId>(i)];
      const bool has_finished = request.state == RequestState::Finished;
      outputs.push_back(has_finished ? request.num_output_tokens() : -1);
    }
    return outputs;
  }

  void submit(RequestSpec spec) {
    spec.arrival = clock_.now();
    const auto limit = static_cast<std::size_t>(random_.setup.max_waiting_requests);
    const bool must_queue = num_waiting() < limit || limit == 0;
    const std::int64_t tokens = spec.num_prompt_tokens + spec.max_output_tokens;
    const bool fits =
        tokens <= random_.setup.max_model_len &&
        engine_.kv_cache().max_blocks_of(tokens - 1) <= engine_.kv_cache().num_blocks();
    const Submission submission = engine_.submit(spec);
    require(submission.accepted() == submission.message.empty(), "a refusal without a reason");
    // Engines have rules of their own about what never fits. SGLang cuts the output.
    if (!is_seed_policy_ && fits && submission.refusal == EndReason::NeverFits) return;
    if (policy_ == "sglang" && tokens <= random_.setup.max_model_len) {
      require(must_queue || !submission.accepted(), "more wait than may wait");
      return;
    }
    const EndReason expected = !fits         ? EndReason::NeverFits
                               : !must_queue ? EndReason::QueueFull
                                             : EndReason::None;
    require(submission.refusal == expected, "a request was wrongly accepted or refused");
  }

  std::size_t num_waiting() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < engine_.requests().size(); ++i) {
      count += engine_.requests()[static_cast<RequestId>(i)].state == RequestState::Waiting ? 1 : 0;
    }
    return count;
  }

  void step() {
    if (chance(rng_, random_.abort_chance) && engine_.requests().size() > 0) {
      const auto last = static_cast<std::int64_t>(engine_.requests().size()) - 1;
      const auto id = static_cast<RequestId>(rng_.uniform_int(0, last));
      const bool had_ended = engine_.requests()[id].has_ended();
      require(engine_.abort(id) != had_ended, "abort of a live request, and only that, succeeds");
      require(had_ended || engine_.requests()[id].block_table.empty(),
              "an aborted request keeps blocks");
    }
    if (!kept_.empty() && chance(rng_, 0.3)) release_one();
    const std::size_t num_plans = executor_.plans.size();
    const std::size_t num_events = journal_.events.size();
    const bool worked = engine_.step();
    for (std::size_t i = num_events; i < journal_.events.size(); ++i) {
      const Event& event = journal_.events[i];
      if (event.kind == EventKind::Preempted) note_preempted(event);
      if (event.reason == EndReason::HandedOver) kept_.push_back(event.request);
    }
    if (executor_.plans.size() > num_plans) check_plan(executor_.plans.back());
    engine_.check_integrity();
    check_spoiled();
    if (!worked) wait();
    if (++num_steps_ > 20'000) throw std::runtime_error("the requests never end");
  }

  // Where the request's last chunk ended.
  void note_preempted(const Event& event) {
    const std::int32_t end = chunk_ends_[event.request];
    const Request& request = engine_.requests()[event.request];
    num_preempted_in_prompt_ += end > 0 && end < request.num_prompt_tokens ? 1 : 0;
    for (const EncoderItem& item : random_.workload.encoder_items(event.request)) {
      num_preempted_in_image_ += item.begin < end && end < item.end() ? 1 : 0;
    }
  }

  // The blocks of a request that was handed over stay its own until then.
  void release_one() {
    const RequestId id = kept_.front();
    const Request& request = engine_.requests()[id];
    require(request.block_table.empty() == (request.num_cached_tokens() == 0), "kept no blocks");
    engine_.release(id);
    require(engine_.requests()[id].block_table.empty(), "a released request keeps blocks");
    kept_.erase(kept_.begin());
    ++num_released_;
  }

  void wait() {
    const TimeNs wake = engine_.wake_time();
    if (wake == kNever && engine_.has_work() && !kept_.empty()) return release_one();
    require(!engine_.has_work() || wake != kNever, "work is left that can never be scheduled");
    if (wake != kNever) clock_.wait_until(wake);
  }

  // Requests that used an image of a failed step fail with it, unless they lost their KV.
  void check_spoiled() {
    for (const auto& [id, generation] : executor_.spoiled) {
      const Request& request = engine_.requests()[id];
      require(request.has_ended() || request.generation != generation,
              "a request goes on with an image that was not encoded");
      ++num_spoiled_;
    }
    executor_.spoiled.clear();
  }

  void check_plan(const StepPlan& plan) {
    const SchedulerConfig& config = random_.setup.scheduler;
    const bool has_budget = config.policy == "token_budget" || config.policy == "single_prefill";
    const std::int32_t joins = config.policy == "single_prefill" ? 1 : 0;
    require(!has_budget || plan.num_tokens() <= *config.max_num_batched_tokens + joins,
            "a step exceeds its token budget");
    std::int32_t prefill_tokens = 0;
    std::int32_t num_prefills = 0;
    std::int32_t num_partial = 0;
    std::set<RequestId> prefilling;
    for (const ScheduledChunk& chunk : plan.chunks) {
      chunk_ends_[chunk.request] = chunk.end_position();
      Stay& stay =
          stays_.try_emplace({chunk.request, chunk.generation}, chunk.first_position).first->second;
      stay.num_computed += chunk.num_tokens;
      if (chunk.kind == ChunkKind::Decode) {
        require(joins > 0 || !prefilling.contains(chunk.request), "prefill and decode in one step");
        continue;
      }
      prefilling.insert(chunk.request);
      prefill_tokens += chunk.num_tokens;
      ++num_prefills;
      num_partial += chunk.samples_token ? 0 : 1;
      check_prefill(chunk, config);
    }
    require(prefill_tokens == plan.num_prefill_tokens, "prefill tokens are miscounted");
    check_limits(config, num_prefills, num_partial);
  }

  std::int64_t journal_step() const { return static_cast<std::int64_t>(journal_.steps.size()); }

  void check_prefill(const ScheduledChunk& chunk, const SchedulerConfig& config) {
    const bool whole = config.policy == "static" || config.policy == "continuous";
    require(!whole || (chunk.samples_token && begins(chunk)), "a prompt was split");
    const bool has_chunk = config.policy == "chunked" || config.policy == "token_budget";
    if (has_chunk && config.prefill_chunk_size) {
      require(chunk.num_tokens <= *config.prefill_chunk_size, "a chunk is too long");
    }
    if (config.policy == "token_budget" && !chunk.samples_token) {
      require(chunk.num_tokens >= config.min_chunk_size, "a chunk is too short");
    }
  }

  bool begins(const ScheduledChunk& chunk) const {
    return chunk.first_position == stays_.at({chunk.request, chunk.generation}).begin;
  }

  void check_limits(const SchedulerConfig& config, std::int32_t num_prefills,
                    std::int32_t num_partial) {
    if (config.policy == "chunked" && config.max_prefill_chunks_per_step > 0) {
      require(num_prefills <= config.max_prefill_chunks_per_step, "too many chunks in a step");
    }
    if (config.policy == "token_budget" && config.max_num_partial_prefills > 0) {
      require(num_partial <= config.max_num_partial_prefills, "too many unfinished prompts");
    }
    require(config.policy != "single_prefill" || num_prefills <= 1, "two prompts in one step");
  }

  void check_end() {
    engine_.check_integrity();  // no ended request holds an encoder entry
    require(engine_.kv_cache().num_used_blocks() == 0, "blocks leaked");
    require(engine_.num_ended() == engine_.requests().size(), "a request has not ended");
    for (std::size_t i = 0; i < engine_.requests().size(); ++i) {
      check_request(engine_.requests()[static_cast<RequestId>(i)]);
    }
    check_failures();
    check_fcfs();
  }

  void check_request(const Request& request) {
    require(request.has_ended(), "a request has not ended");
    const int emitted = journal_.num_emitted[request.id];
    require(emitted == request.num_output_tokens(), "tokens emitted and counted differ");
    const auto first = stays_.lower_bound({request.id, 0});
    if (first == stays_.end() || first->first.first != request.id) return;
    require(
        first->second.begin == std::max(request.num_prefix_hit_tokens, request.num_received_tokens),
        "a hit or a received token is computed again");
    if (!is_seed_policy_ || request.state != RequestState::Finished) return;
    // A step in flight may compute more than the token that stopped the request.
    const std::int32_t num_kept = request.num_tokens() - 1 - first->second.begin;
    const std::int32_t num_in_vain = first->second.num_computed - num_kept;
    require(request.num_preemptions > 0 || num_in_vain == 0 ||
                (num_in_vain > 0 && request.end_reason == EndReason::Stop),
            "hit and computed tokens are not those that finished");
    if (request.state != RequestState::Finished) return;
    // A request that finished in the queue was preempted and has nothing cached.
    require(
        request.num_cached_tokens() == request.num_tokens() - 1 || request.num_cached_tokens() == 0,
        "cached length at the end is not prompt + output - 1");
    check_last_token(request);
    if (!executor_.returns_tokens) return;
    for (std::int32_t k = 0; k < request.num_output_tokens(); ++k) {
      require(request.output_token_ids.at(static_cast<std::size_t>(k)) ==
                  CheckingExecutor::token_after(request.id, request.num_prompt_tokens + k),
              "a token went to the wrong request or position");
    }
  }

  // It ends with its first stop token, or else with the last that it asked for.
  void check_last_token(const Request& request) {
    const auto is_stop = [&](std::int32_t k) {
      return executor_.returns_tokens && executor_.stops &&
             executor_.stops(request.id, request.num_prompt_tokens + k);
    };
    for (std::int32_t k = 0; k + 1 < request.num_output_tokens(); ++k) {
      require(!is_stop(k), "a request outlived its stop token");
    }
    const bool was_stopped = is_stop(request.num_output_tokens() - 1);
    const EndReason last = request.hands_over ? EndReason::HandedOver : EndReason::Length;
    require(request.end_reason == (was_stopped ? EndReason::Stop : last),
            "finished for another reason than its last token");
    require(was_stopped || request.num_output_tokens() == request.max_output_tokens,
            "finished with tokens missing");
  }

  // A failed step ends exactly those in its plan that were alive when it came back.
  void check_failures() {
    std::set<RequestId> expected;
    std::set<RequestId> ended_by_failure;
    std::int64_t num_preempted = 0;
    for (const Journal::Step& step : journal_.steps) {
      const std::int64_t position = step.record.step_index;
      num_preempted += step.record.num_preempted;
      require(step.record.failed == failing_steps_.contains(position), "a failure went unnoticed");
      if (!step.record.failed) continue;
      for (const ScheduledChunk& chunk : step.chunks) {
        require(chunk.num_emitted == 0, "a failed step emitted a token");
        require(journal_.end_step.at(chunk.request) <= position, "a request survived its step");
        if (journal_.end_step.at(chunk.request) == position) expected.insert(chunk.request);
      }
    }
    for (const Event& event : journal_.events) {
      if (event.reason == EndReason::StepFailed) ended_by_failure.insert(event.request);
      num_preempted -= event.kind == EventKind::Preempted ? 1 : 0;
      // Aborts between steps count to the step before; they are not failures.
      if (event.reason == EndReason::Aborted) expected.erase(event.request);
    }
    // Who shares blocks that a failed step should have filled fails with it; llama.cpp gives up all
    // its slots when the cache is full.
    const bool may_be_more = random_.setup.kv_cache.enable_prefix_caching ||
                             policy_ == "llama_cpp" || !random_.workload.images.empty();
    require(may_be_more ? std::includes(ended_by_failure.begin(), ended_by_failure.end(),
                                        expected.begin(), expected.end())
                        : ended_by_failure == expected,
            "others failed than those of the failed steps");
    // A plan that could only preempt is counted by the next step. There may be none: whom it
    // preempted can end in the queue, aborted or by the token in flight.
    require(num_preempted <= 0 && -num_preempted <= random_.setup.max_num_seqs,
            "steps and events count different preemptions");
  }

  // Under fcfs nobody overtakes: first admissions are in order of submission.
  void check_fcfs() {
    if (!is_seed_policy_ || random_.setup.scheduler.order != QueueOrder::Fcfs) return;
    std::int64_t last = -1;
    std::set<RequestId> seen;
    for (const RequestId id : journal_.admissions()) {
      if (!seen.insert(id).second) continue;  // came back after a preemption
      require(static_cast<std::int64_t>(index(id)) > last, "a request was overtaken");
      last = static_cast<std::int64_t>(index(id));
    }
  }

  // One admission: where its first chunk began, and how many tokens were computed.
  struct Stay {
    explicit Stay(std::int32_t first_position) : begin(first_position) {}
    std::int32_t begin;
    std::int32_t num_computed = 0;
  };

  const RandomCase& random_;
  const std::string policy_ = random_.setup.scheduler.policy;
  const bool is_seed_policy_ = policy_ == "static" || policy_ == "continuous" ||
                               policy_ == "chunked" || policy_ == "token_budget" ||
                               policy_ == "single_prefill";
  Rng rng_;
  PrefixHasher hasher_;
  KvOracle oracle_;
  TestClock clock_;
  CheckingExecutor executor_;
  EncoderOracle encoder_;
  Journal journal_;
  EventDigest digest_;
  RunRecorder recorder_;
  std::vector<EventSink*> sinks_{&journal_, &digest_, &recorder_};
  BenchEngine engine_;
  std::set<std::int64_t> failing_steps_;
  std::map<RequestId, std::int32_t> chunk_ends_;
  std::map<std::pair<RequestId, std::uint8_t>, Stay> stays_;
  std::int64_t num_preempted_in_prompt_ = 0;
  std::int64_t num_preempted_in_image_ = 0;
  std::int64_t num_steps_ = 0;
  std::int64_t num_spoiled_ = 0;
  std::vector<RequestId> kept_;  // handed over, and not released
  std::int64_t num_released_ = 0;
};

// Without tokens, a run of decodes gives the same events and steps as decodes one by one.
std::uint64_t run_case(RandomCase (*draw)(std::uint64_t seed), std::uint64_t seed,
                       Coverage& coverage) {
  const RandomCase random = draw(seed);
  const Outcome one_by_one = CaseRun(random, seed, false).run(coverage);
  if (!returns_tokens(seed)) {
    Coverage of_runs;
    const Outcome as_run = CaseRun(random, seed, true).run(of_runs);
    require(as_run.digest == one_by_one.digest, "runs of decodes differ");
    require(same_tokens(as_run.record, one_by_one.record), "recorded tokens differ");
    coverage.counts["steps with runs"] += of_runs.counts["steps with runs"];
  }
  return one_by_one.digest;
}

using DrawFn = RandomCase (*)(std::uint64_t seed);

// The seeds of cases.
struct Seeds {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::int64_t count() const { return static_cast<std::int64_t>(end - begin); }
};

// Runs the cases, every tenth twice.
void check_cases(DrawFn draw, Seeds seeds, Coverage& coverage) {
  for (std::uint64_t seed = seeds.begin; seed < seeds.end; ++seed) {
    try {
      const std::uint64_t digest = run_case(draw, seed, coverage);
      if (seed % 10 == 0 && run_case(draw, seed, coverage) != digest)
        throw std::runtime_error("not repeatable");
    } catch (const std::exception& error) {
      FAIL("METRONOME_PROPERTY_SEED=" << seed << ": " << error.what());
    }
  }
}

// Returns whether one case was replayed, which covers little.
bool check_cases_or_replay(DrawFn draw, Seeds seeds, Coverage& coverage) {
  const char* const replay = std::getenv("METRONOME_PROPERTY_SEED");
  if (replay == nullptr) {
    check_cases(draw, seeds, coverage);
    return false;
  }
  CHECK_NOTHROW(run_case(draw, std::strtoull(replay, nullptr, 10), coverage));
  return true;
}

void check_states(Seeds seeds) {
  Coverage coverage;
  if (check_cases_or_replay(draw_state_case, seeds, coverage)) return;
  for (const char* reached :
       {"preempted", "length", "stop", "aborted", "queue_full", "never_fits", "step_failed",
        "states reused", "images encoded", "images split", "preempted in a prompt"}) {
    CAPTURE(reached);
    CHECK(coverage.counts[reached] > seeds.count() / 24);
  }
  CHECK(coverage.counts["images spoiled"] > seeds.count() / 200);
  CHECK(coverage.counts["preempted in an image"] > seeds.count() / 200);
}

void check_invariants(Seeds seeds) {
  Coverage coverage;
  if (check_cases_or_replay(draw_case, seeds, coverage)) return;
  for (const char* reached : {"preempted", "length", "stop", "aborted", "queue_full", "never_fits",
                              "step_failed", "steps with runs", "images encoded", "images split",
                              "preempted in a prompt", "released", "received"}) {
    CAPTURE(reached);
    CHECK(coverage.counts[reached] > seeds.count() / 8);
  }
  CHECK(coverage.counts["images spoiled"] > seeds.count() / 200);
  CHECK(coverage.counts["preempted in an image"] > seeds.count() / 200);
  for (const PolicyInfo& policy : all_policies()) {
    const std::string name(policy.name);
    CAPTURE(name);
    CHECK(coverage.counts[name] > seeds.count() / 8);
    const bool reuses = policy.prefix_caching != PrefixCaching::Never;
    CHECK((coverage.counts[name + " reused"] > seeds.count() / 240) == reuses);
  }
}

constexpr Seeds kSomeSeeds = {0, 4'000};
// Ten thousand of them have states and failing steps, or images and failing steps.
constexpr Seeds kMoreStates = {kSomeSeeds.end, 30'000};
constexpr Seeds kMoreSeeds = {kSomeSeeds.end, 56'000};

}  // namespace

TEST_CASE("states neither leak nor mix over random scenarios", "[core][engine][property][states]") {
  check_states(kSomeSeeds);
}

TEST_CASE("states neither leak nor mix over more random scenarios",
          "[core][engine][property][states][slow]") {
  check_states(kMoreStates);
}

TEST_CASE("invariants hold over random scenarios", "[core][engine][property]") {
  check_invariants(kSomeSeeds);
}

TEST_CASE("invariants hold over more random scenarios", "[core][engine][property][slow]") {
  check_invariants(kMoreSeeds);
}

TEST_CASE("cached prefixes save tokens of our own policies and change no output",
          "[core][engine][property]") {
  Coverage with;
  Coverage without;
  for (std::uint64_t seed = 0; seed < 4'000; ++seed) {
    RandomCase random = draw_case(seed);
    KvCacheLayout& cache = random.setup.kv_cache;
    const PolicyInfo& policy = *find_policy(random.setup.scheduler.policy);
    if (policy.prefix_caching != PrefixCaching::OptionalOff || !cache.enable_prefix_caching)
      continue;
    random.abort_chance = random.failure_chance = 0;
    random.setup.max_waiting_requests = 0;
    try {
      const Outcome cached = CaseRun(random, seed, false).run(with);
      cache.enable_prefix_caching = false;
      require(cached.outputs == CaseRun(random, seed, false).run(without).outputs,
              "outputs differ");
    } catch (const std::exception& error) {
      FAIL("seed " << seed << ": " << error.what());
    }
  }
  CHECK(with.counts["computed"] < without.counts["computed"] * 9 / 10);
}

// Whole runs as the simulator makes them: arrivals by time, by step and in a closed loop, through
// Engine::run. The journal and the executor check every event and step.
TEST_CASE("invariants hold over random runs", "[core][engine][property]") {
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    const RandomCase random = draw_run(seed);
    const Workload& workload = random.workload;
    try {
      const PrefixHasher hasher(&workload);
      KvOracle oracle(workload, random.setup.kv_cache);
      EncoderOracle encoder(workload);
      Bench bench(with_items(random), &hasher);
      bench.executor.encoder = &encoder;
      bench.executor.oracle = &oracle;
      bench.executor.returns_tokens = random.stop_chance > 0;
      bench.executor.stops = stop_tokens(random, seed);
      WorkloadArrivals arrivals(workload);
      require(bench.engine.run(arrivals), "the run ended early");
      require(bench.engine.num_ended() == workload.requests.size(), "a request is missing");
      require(bench.engine.kv_cache().num_used_blocks() == 0, "blocks leaked");
      for (std::size_t i = 0; i < workload.requests.size(); ++i) {
        const Request& request = bench[static_cast<RequestId>(i)];
        const EndReason reason = request.end_reason;
        const bool gives_up = random.setup.scheduler.policy == "llama_cpp";
        require(reason == EndReason::Length || reason == EndReason::Stop ||
                    reason == EndReason::NeverFits || reason == EndReason::QueueFull ||
                    (gives_up && reason == EndReason::StepFailed),
                "a request ended without a cause");
        require(
            workload.mode != ArrivalMode::Timed || request.arrival == workload.requests[i].arrival,
            "an arrival moved");
      }
    } catch (const std::exception& error) {
      FAIL("seed " << seed << ": " << error.what());
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
