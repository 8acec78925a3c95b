// SPDX-License-Identifier: Apache-2.0
// Policy slo: chunks by predicted time, prompts by deadline.
#include <algorithm>
#include <memory>
#include <set>

#include "core/base/rng.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/workload/workload_arrivals.h"
#include "sim/cost_model_predictor.h"
#include "sim/roofline/roofline.h"
#include "sim/sim_executor.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"

namespace metronome::testing::TEST_FILE {
namespace {

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

std::unique_ptr<CostModel> h200_costs() {
  return std::make_unique<RooflineCostModel>(find_model("llama-3.1-8b", {}),
                                             find_hardware("h200", {}), CostModelConfig{});
}

// After `num_fast` steps the device takes `factor` times as long as it was predicted, more or less
// by `scatter`.
class SlowCosts final : public CostModel {
 public:
  explicit SlowCosts(double factor, double scatter = 0, std::int64_t num_fast = 0)
      : factor_(factor), scatter_(scatter), num_fast_(num_fast) {}
  StepCost step_cost(const StepPlan& plan) override {
    StepCost cost = costs_->step_cost(plan);
    if (num_fast_-- > 0) return cost;
    const double noise = 1 + scatter_ * (2 * rng_.uniform() - 1);
    cost.total_ns = static_cast<TimeNs>(static_cast<double>(cost.total_ns) * factor_ * noise);
    return cost;
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return costs_->host_gap_ns({}); }
  std::int64_t kv_capacity_blocks(std::int64_t tokens) const override {
    return costs_->kv_capacity_blocks(tokens);
  }

 private:
  std::unique_ptr<CostModel> costs_ = h200_costs();
  double factor_;
  double scatter_;
  std::int64_t num_fast_;  // steps that take what was predicted, the first
  Rng rng_{5, "scatter"};
};

// A host that needs as long before every step as the step has chunks.
class BusyHostCosts final : public CostModel {
 public:
  explicit BusyHostCosts(TimeNs chunk_ns) : chunk_ns_(chunk_ns) {}
  StepCost step_cost(const StepPlan& plan) override { return costs_->step_cost(plan); }
  TimeNs host_gap_ns(const StepPlan& plan) const override {
    return chunk_ns_ * static_cast<TimeNs>(plan.chunks.size());
  }
  std::int64_t kv_capacity_blocks(std::int64_t tokens) const override {
    return costs_->kv_capacity_blocks(tokens);
  }

 private:
  std::unique_ptr<CostModel> costs_ = h200_costs();
  TimeNs chunk_ns_;
};

// Runs requests on simulated H200 time.
struct TimedRun {
  Journal journal;
  std::string remark;
  std::vector<Request> requests;  // as they ended

  TimedRun(EngineSetup setup, const Workload& workload, CostModel& costs,
           std::unique_ptr<CostModel> predicted = h200_costs()) {
    CostModelPredictor predictor(std::move(predicted));
    setup.predictor = &predictor;
    SimExecutor executor(costs);
    VirtualClock clock;
    EndedRequests ended;
    EventSink* sinks[] = {&journal, &ended};
    BenchEngine engine(setup, executor, clock, sinks);
    WorkloadArrivals arrivals(workload);
    engine.run(arrivals);
    remark = engine.remark();
    requests = std::move(ended.requests);
  }

  TimeNs ttft(std::size_t i) const {
    for (const Event& event : journal.events) {
      if (event.kind == EventKind::FirstToken && index(event.request) == i) {
        return event.time - requests[i].arrival;
      }
    }
    return kNever;
  }
};

struct SloCase {
  EngineSetup setup = make_setup("slo");
  Workload workload;

  SloCase() {
    setup.scheduler.max_num_batched_tokens = 8192;
    setup.max_model_len = 32'768;
    setup.kv_cache.num_blocks = 40'000;
  }
  void add(double arrival_ms, std::int32_t prompt, std::int32_t output) {
    const auto arrival = static_cast<TimeNs>(arrival_ms * static_cast<double>(kNsPerMs));
    workload.requests.push_back({arrival, prompt, output, 0});
  }
};

SloCase draw_case(std::uint64_t seed) {
  Rng rng(seed, "slo");
  SloCase random;
  EngineSetup& setup = random.setup;
  SloPolicyConfig& config = setup.scheduler.slo;
  config.itl_target_ms = 3 + 40 * rng.uniform() * rng.uniform();
  if (chance(rng, 0.6)) config.ttft_deadline_ms = draw(rng, 50, 2'000);
  if (chance(rng, 0.5)) config.tile_tokens = 1 << draw(rng, 0, 8);
  config.max_held_steps = draw(rng, 0, 20);
  setup.scheduler.max_num_batched_tokens = draw(rng, 256, 8'192);
  setup.async_depth = draw(rng, 1, 2);
  setup.step_shape = chance(rng, 0.3) ? StepShape::Separate : StepShape::Mixed;
  setup.max_num_seqs = draw(rng, 1, 100);
  const double rate = 1 + 20 * rng.uniform();
  const std::int32_t longest = chance(rng, 0.3) ? 16'000 : 3'000;
  double arrival_ms = 0;
  for (int i = 0; i < 60; ++i) {
    arrival_ms += chance(rng, 0.3) ? 0 : 2'000 * rng.uniform() / rate;
    const std::int32_t num_output_tokens = draw(rng, 1, 150);
    random.add(arrival_ms, draw(rng, 1, longest), num_output_tokens);
  }
  return random;
}

// The policy's promises for each step, worked out anew from the cost model.
class StepOracle {
 public:
  explicit StepOracle(const SloCase& random) : setup_(random.setup), costs_(h200_costs()) {}

  void check(const TimedRun& run) {
    TimeNs finished_before = 0;
    std::map<RequestId, std::int32_t> num_left;
    for (const Request& request : run.requests) num_left[request.id] = request.num_prompt_tokens;
    for (const Journal::Step& step : run.journal.steps) {
      for (const ScheduledChunk& chunk : step.chunks) {
        if (chunk.kind == ChunkKind::Prefill) num_left[chunk.request] -= chunk.num_tokens;
      }
      if (step.record.num_prefill_tokens > 0 && step.record.num_decode_tokens > 0) {
        check_step(step, step.record.finished_at - finished_before,
                   num_left[step.chunks.back().request]);
      }
      finished_before = step.record.finished_at;
    }
  }
  int num_full = 0;    // steps that left a prompt unfinished within the target
  int num_forced = 0;  // steps beyond the target

 private:
  TimeNs target() const {
    return std::llround(*setup_.scheduler.slo.itl_target_ms * static_cast<double>(kNsPerMs));
  }

  // The step with its last chunk of another length; 0: without it.
  TimeNs cost_with(const Journal::Step& step, std::int32_t num_tokens, std::int32_t num_left) {
    StepPlan plan;
    plan.chunks = step.chunks;
    const std::int32_t remaining = plan.chunks.back().num_tokens + num_left;
    plan.chunks.back().num_tokens = num_tokens;
    plan.chunks.back().samples_token = num_tokens == remaining;
    if (num_tokens == 0) plan.chunks.pop_back();
    const auto end = static_cast<std::int32_t>(plan.chunks.size());
    const std::int32_t middle =
        setup_.step_shape == StepShape::Separate ? step.record.num_decode_tokens : end;
    if (middle > 0) plan.passes.push_back({0, middle});
    if (middle < end) plan.passes.push_back({middle, end});
    return plan.passes.empty() ? 0 : costs_->step_cost(plan).total_ns;
  }

  // Not even the step's decode of the longest context alone leaves room for a tile.
  bool is_hopeless(const Journal::Step& real) {
    Journal::Step step;
    std::int32_t longest = 0;
    for (const ScheduledChunk& chunk : real.chunks) {
      if (chunk.kind == ChunkKind::Decode) longest = std::max(longest, chunk.first_position);
    }
    const auto decode = [](RequestId id, std::int32_t position) {
      return ScheduledChunk{.request = id,
                            .first_position = position,
                            .num_tokens = 1,
                            .kind = ChunkKind::Decode,
                            .samples_token = true};
    };
    step.chunks = {decode(RequestId{0}, longest), decode(RequestId{1}, 0)};
    step.chunks.back().kind = ChunkKind::Prefill;
    step.record.num_decode_tokens = 1;
    return cost_with(step, setup_.scheduler.slo.tile_tokens, 1'000'000) > target() - host_gap();
  }
  TimeNs host_gap() const { return setup_.async_depth == 1 ? costs_->host_gap_ns({}) : 0; }

  void check_step(const Journal::Step& step, TimeNs gap, std::int32_t num_left) {
    const std::int32_t tile = setup_.scheduler.slo.tile_tokens;
    const ScheduledChunk& last = step.chunks.back();
    require(last.kind == ChunkKind::Prefill, "decodes come first");
    const auto gap_with = [&](std::int32_t num_tokens) {
      return gap + cost_with(step, num_tokens, num_left) -
             cost_with(step, last.num_tokens, num_left);
    };
    const std::int32_t num_tokens =
        setup_.step_shape == StepShape::Separate
            ? step.record.num_prefill_tokens
            : step.record.num_prefill_tokens + step.record.num_decode_tokens;
    const bool has_no_tile = step.record.num_prefill_tokens == last.num_tokens &&
                             step.record.num_prefill_tokens + step.record.num_decode_tokens ==
                                 *setup_.scheduler.max_num_batched_tokens;
    require(num_left == 0 || num_tokens % tile == 0 || has_no_tile, "a chunk ends off the tile");
    const std::int32_t least =
        (num_tokens - last.num_tokens) / tile * tile + tile - (num_tokens - last.num_tokens);
    if (gap > target()) {
      ++num_forced;
      require(step.record.num_prefill_tokens == last.num_tokens || is_hopeless(step),
              "two chunks beyond the target");
      const std::int32_t shortest = 2 * least >= tile ? least : least + tile;
      require(last.num_tokens <= shortest || (is_hopeless(step) && gap <= 2 * gap_with(shortest)),
              "a chunk beyond the target is larger than a tile");
      require(is_hopeless(step) || gap_with(std::min(least, last.num_tokens + num_left)) > target(),
              "a chunk beyond the target, though there is one within");
    } else if (num_left > 0 && !is_hopeless(step)) {
      ++num_full;
      const std::int32_t next = last.num_tokens + std::min(tile, num_left);
      const std::int64_t budget = *setup_.scheduler.max_num_batched_tokens;
      const std::int64_t total = step.record.num_prefill_tokens + step.record.num_decode_tokens;
      require(gap_with(next) > target() || total + next - last.num_tokens > budget,
              "a larger chunk would have kept the target");
    }
  }

  EngineSetup setup_;
  std::unique_ptr<CostModel> costs_;
};

// Steps in a row in which a begun prompt does not advance.
int longest_hold(const TimedRun& run) {
  std::set<RequestId> begun;
  int longest = 0;
  int held = 0;
  for (const Journal::Step& step : run.journal.steps) {
    held = begun.empty() || step.record.num_prefill_tokens > 0 ? 0 : held + 1;
    longest = std::max(longest, held);
    for (const ScheduledChunk& chunk : step.chunks) {
      if (chunk.kind != ChunkKind::Prefill) continue;
      chunk.samples_token ? begun.erase(chunk.request) : begun.insert(chunk.request).second;
    }
  }
  return longest;
}

std::vector<RequestId> first_token_order(const TimedRun& run) {
  std::vector<RequestId> ids;
  for (const Event& event : run.journal.events) {
    if (event.kind == EventKind::FirstToken) ids.push_back(event.request);
  }
  return ids;
}

// The gaps between a request's tokens.
std::map<RequestId, std::vector<TimeNs>> token_times(const TimedRun& run) {
  std::map<RequestId, std::vector<TimeNs>> times;
  for (const Journal::Step& step : run.journal.steps) {
    for (const ScheduledChunk& chunk : step.chunks) {
      if (chunk.num_emitted > 0) times[chunk.request].push_back(step.record.finished_at);
    }
  }
  return times;
}

}  // namespace

TEST_CASE("slo: every step takes the largest chunk within the target", "[core][policies][slo]") {
  int num_full = 0;
  int num_forced = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    const SloCase random = draw_case(seed);
    const std::unique_ptr<CostModel> costs = h200_costs();
    const TimedRun run(random.setup, random.workload, *costs);
    StepOracle oracle(random);
    REQUIRE_NOTHROW(oracle.check(run));
    num_full += oracle.num_full;
    num_forced += oracle.num_forced;
    CHECK(run.remark.empty());  // predictions are exact
    for (const Request& request : run.requests) REQUIRE(request.state == RequestState::Finished);
    REQUIRE(longest_hold(run) <= random.setup.scheduler.slo.max_held_steps);
    if (!random.setup.scheduler.slo.ttft_deadline_ms) {
      const std::vector<RequestId> order = first_token_order(run);
      REQUIRE(std::is_sorted(order.begin(), order.end()));
    }
  }
  CHECK(num_full > 2'000);
  CHECK(num_forced > 500);
}

TEST_CASE("slo: headroom keeps a share of the target free", "[core][policies][slo]") {
  SloCase one;
  one.setup.scheduler.slo.itl_target_ms = 20;
  one.setup.scheduler.slo.headroom = 0.25;
  for (int i = 0; i < 40; ++i) one.add(100 * i, 3'000, 40);
  const std::unique_ptr<CostModel> costs = h200_costs();
  TimeNs longest = 0;
  for (const auto& [id, times] : token_times(TimedRun(one.setup, one.workload, *costs))) {
    for (std::size_t i = 1; i < times.size(); ++i) {
      longest = std::max(longest, times[i] - times[i - 1]);
    }
  }
  CHECK(longest <= 15 * kNsPerMs);
  CHECK(longest > 13 * kNsPerMs);
}

TEST_CASE("slo: what the host takes for each chunk counts", "[core][policies][slo]") {
  SloCase one;
  one.setup.scheduler.slo.itl_target_ms = 20;
  one.add(0, 100, 400);
  for (int i = 0; i < 30; ++i) {
    for (int k = 0; k < 40; ++k) one.add(100 + 150 * i, 60 + 10 * k, 2);
  }
  constexpr TimeNs kChunkNs = 200'000;
  BusyHostCosts costs(kChunkNs);
  const TimedRun run(one.setup, one.workload, costs, std::make_unique<BusyHostCosts>(kChunkNs));
  TimeNs longest = 0;
  for (const auto& [id, times] : token_times(run)) {
    for (std::size_t i = 1; i < times.size(); ++i) {
      longest = std::max(longest, times[i] - times[i - 1]);
    }
  }
  CHECK(longest <= 20 * kNsPerMs);
  CHECK(longest > 18 * kNsPerMs);
  CHECK(run.remark.empty());
}

TEST_CASE("slo: a mean gap may be met with slack that was saved", "[core][policies][slo]") {
  SloCase one;
  one.setup.scheduler.slo.tpot_target_ms = 20;
  one.add(0, 100, 200);
  for (int i = 0; i < 8; ++i) one.add(500 + i, 16'000, 2);  // more than the slack has room for
  const std::unique_ptr<CostModel> costs = h200_costs();
  const TimedRun run(one.setup, one.workload, *costs);
  TimeNs longest = 0;
  for (const auto& [id, times] : token_times(run)) {
    for (std::size_t i = 1; i < times.size(); ++i) {
      const auto num_gaps = static_cast<TimeNs>(i);
      REQUIRE(times[i] - times[0] <= num_gaps * 20 * kNsPerMs);
      longest = std::max(longest, times[i] - times[i - 1]);
    }
  }
  CHECK(longest > 100 * kNsPerMs);

  // With a limit on every gap the same prompt takes many steps.
  one.setup.scheduler.slo.itl_target_ms = 20;
  const TimedRun limited(one.setup, one.workload, *costs);
  for (const auto& [id, times] : token_times(limited)) {
    for (std::size_t i = 1; i < times.size(); ++i) {
      REQUIRE(times[i] - times[i - 1] <= 20 * kNsPerMs);
    }
  }
}

TEST_CASE("slo: who cannot be in time stands back and still gets on", "[core][policies][slo]") {
  const auto flood = [](double late_share) {
    SloCase crowd;
    crowd.setup.scheduler.slo.itl_target_ms = 20;
    crowd.setup.scheduler.slo.ttft_deadline_ms = 300;
    crowd.setup.scheduler.slo.late_share = late_share;
    crowd.add(0, 100, 400);
    crowd.add(1, 30'000, 4);  // takes a second: never in time
    for (int i = 0; i < 1'500; ++i) crowd.add(2 + 45 * i, 2'000, 2);  // more than can be served
    const std::unique_ptr<CostModel> costs = h200_costs();
    return TimedRun(crowd.setup, crowd.workload, *costs);
  };
  const TimedRun run = flood(0.1);
  int num_in_time = 0;
  for (std::size_t i = 2; i < run.requests.size(); ++i) {
    num_in_time += run.ttft(i) <= 300 * kNsPerMs ? 1 : 0;
  }
  CHECK(num_in_time > 1'000);
  // A tenth of the steps, some 700 tokens each, is 60 times as long as alone; less is longer.
  CHECK(run.ttft(1) > 2 * kNsPerSecond);
  CHECK(run.ttft(1) < 15 * kNsPerSecond);
  CHECK(flood(0.5).ttft(1) < run.ttft(1) / 2);
  CHECK(flood(0.02).ttft(1) > run.ttft(1) * 2);
}

TEST_CASE("slo: an overload leaves in time as many as there is time for", "[core][policies][slo]") {
  const auto num_in_time = [](std::optional<double> deadline_ms) {
    SloCase overload;
    overload.setup.scheduler.slo.itl_target_ms = 20;
    overload.setup.scheduler.slo.ttft_deadline_ms = deadline_ms;
    Rng rng(3, "overload");
    for (int i = 0; i < 800; ++i) overload.add(40 * i, draw(rng, 500, 5'000), 20);
    const std::unique_ptr<CostModel> costs = h200_costs();
    const TimedRun run(overload.setup, overload.workload, *costs);
    int count = 0;
    for (std::size_t i = 0; i < run.requests.size(); ++i) {
      count += run.ttft(i) <= 500 * kNsPerMs ? 1 : 0;
    }
    return count;
  };
  CHECK(num_in_time(std::nullopt) < 100);  // first come, first served: all are late in the end
  CHECK(num_in_time(500) > 400);
}

TEST_CASE("slo: a target out of reach does not bring the server down", "[core][policies][slo]") {
  SloCase hopeless;
  hopeless.setup.scheduler.slo.itl_target_ms = 3;  // a decode alone takes 4.6 ms
  for (int i = 0; i < 200; ++i) hopeless.add(100 * i, 2'000, 100);
  const std::unique_ptr<CostModel> costs = h200_costs();
  const TimedRun run(hopeless.setup, hopeless.workload, *costs);
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    REQUIRE(run.ttft(i) < kNsPerSecond);
  }
}

// Sixty prompts of 30,000 tokens, as fast as they can be served.
struct LongContexts {
  TimeNs end = 0;
  TimeNs longest_gap = 0;

  LongContexts(const std::string& policy, std::int64_t budget, double itl_target_ms) {
    SloCase contexts;
    contexts.setup.scheduler = make_setup(policy).scheduler;
    contexts.setup.scheduler.max_num_batched_tokens = budget;
    contexts.setup.scheduler.slo.itl_target_ms = itl_target_ms;
    for (int i = 0; i < 60; ++i) contexts.add(400 * i, 30'000, 200);
    const std::unique_ptr<CostModel> costs = h200_costs();
    const TimedRun run(contexts.setup, contexts.workload, *costs);
    end = run.journal.steps.back().record.finished_at;
    for (const auto& [id, times] : token_times(run)) {
      for (std::size_t i = 1; i < times.size(); ++i) {
        longest_gap = std::max(longest_gap, times[i] - times[i - 1]);
      }
    }
  }
};

TEST_CASE("slo: contexts that leave room for one decode at a time", "[core][policies][slo]") {
  // Each target beside the fixed budget whose longest gap is about as long.
  for (const auto& [target_ms, budget] : {std::pair{8, 128}, {15, 256}, {30, 512}}) {
    CAPTURE(target_ms, budget);
    const LongContexts fixed("token_budget", budget, target_ms);
    const LongContexts slo("slo", 8'192, target_ms);
    CHECK(slo.longest_gap <= target_ms * kNsPerMs);
    CHECK(slo.end < fixed.end + fixed.end / 50);
    CHECK(fixed.longest_gap > target_ms * kNsPerMs * 19 / 20);
  }
}

TEST_CASE("slo: nobody is admitted whose decode there is no time for", "[core][policies][slo]") {
  SloCase crowd;
  crowd.setup.scheduler.slo.itl_target_ms = 12;
  crowd.setup.max_num_seqs = 1'000;
  crowd.setup.kv_cache.num_blocks = 400'000;
  for (int i = 0; i < 500; ++i) crowd.add(0, 100, 2'000);
  const std::unique_ptr<CostModel> costs = h200_costs();
  const TimedRun run(crowd.setup, crowd.workload, *costs);
  // Everybody begun, decoding beside a tile of a prompt.
  std::map<RequestId, std::int32_t> num_tokens;
  const auto step_beside_tile = [&] {
    StepPlan plan;
    for (const auto& [id, length] : num_tokens) {
      plan.chunks.push_back({.request = id,
                             .first_position = length - 1,
                             .num_tokens = 1,
                             .kind = ChunkKind::Decode,
                             .samples_token = true});
    }
    plan.num_decode_tokens = static_cast<std::int32_t>(plan.chunks.size());
    plan.num_prefill_tokens = crowd.setup.scheduler.slo.tile_tokens;
    plan.chunks.push_back({.request = kNoRequest,
                           .first_position = 0,
                           .num_tokens = plan.num_prefill_tokens,
                           .kind = ChunkKind::Prefill,
                           .samples_token = false});
    plan.passes = {{0, plan.num_decode_tokens + 1}};
    return costs->step_cost(plan).total_ns;
  };
  int num_turned_away = 0;  // steps in which one more would have had no time
  for (const Journal::Step& step : run.journal.steps) {
    const std::size_t num_before = num_tokens.size();
    for (const ScheduledChunk& chunk : step.chunks) num_tokens.try_emplace(chunk.request, 100);
    if (num_tokens.size() > num_before && num_before > 0) {
      REQUIRE(step_beside_tile() <= 12 * kNsPerMs);
    } else if (!num_tokens.empty()) {
      num_tokens.try_emplace(kNoRequest, 101);
      num_turned_away += step_beside_tile() > 12 * kNsPerMs ? 1 : 0;
      num_tokens.erase(kNoRequest);
    }
    for (const ScheduledChunk& chunk : step.chunks) {
      if (chunk.num_emitted == 0) continue;
      if (++num_tokens[chunk.request] == 100 + 2'000) num_tokens.erase(chunk.request);
    }
  }
  CHECK(num_turned_away > 100);
}

TEST_CASE("slo: contexts that miss the target alone cost no throughput", "[core][policies][slo]") {
  const LongContexts fixed("token_budget", 512, 1);
  for (const double target_ms : {1.0, 5.0}) {
    CAPTURE(target_ms);
    CHECK(LongContexts("slo", 8'192, target_ms).end < fixed.end + fixed.end / 15);
  }
}

TEST_CASE("slo: what steps really take is learned", "[core][policies][slo]") {
  for (const double factor : {0.5, 1.5, 40.0}) {
    for (const double scatter : {0.0, 0.05}) {
      for (const std::int32_t depth : {1, 2}) {
        CAPTURE(factor, scatter, depth);
        SloCase slow;
        slow.setup.async_depth = depth;
        slow.setup.scheduler.slo.itl_target_ms = 15 * factor;
        for (int i = 0; i < 300; ++i) slow.add(200 * factor * i, 2'000 + 7 * i, 60);
        SlowCosts costs(factor, scatter);
        const TimedRun run(slow.setup, slow.workload, costs);
        const auto target = static_cast<TimeNs>(15 * factor * 1e6);
        int num_full = 0;
        int num_missed = 0;
        double sum = 0;
        TimeNs before = 0;
        for (const Journal::Step& step : run.journal.steps) {
          const TimeNs gap =
              step.record.finished_at - std::exchange(before, step.record.finished_at);
          const ScheduledChunk& last = step.chunks.back();
          const bool is_full = step.record.num_decode_tokens > 0 &&
                               last.kind == ChunkKind::Prefill && !last.samples_token;
          if (!is_full || step.record.step_index < 100) continue;
          ++num_full;
          num_missed += gap > target ? 1 : 0;
          sum += static_cast<double>(gap) / static_cast<double>(target);
        }
        REQUIRE(num_full > 300);
        CHECK(num_missed <= num_full / 50);
        CHECK(sum / num_full > (scatter > 0 ? 0.75 : 0.85));
      }
    }
  }
}

TEST_CASE("slo: a device that becomes slower is noticed and said", "[core][policies][slo]") {
  SloCase one;
  one.setup.scheduler.slo.itl_target_ms = 15;
  for (int i = 0; i < 100; ++i) one.add(200 * i, 2'000, 60);
  SlowCosts costs(2, 0, 300);
  const TimedRun run(one.setup, one.workload, costs);
  CHECK(run.remark.find("steps with prompts and decodes took longer than predicted and missed "
                        "their target, by up to ") != std::string::npos);
}

TEST_CASE("slo: without a prediction steps are bound by their tokens", "[core][policies][slo]") {
  EngineSetup setup = make_setup("slo");
  setup.scheduler.max_num_batched_tokens = 500;
  Bench bench(setup);
  bench.submit(700, 3);
  bench.submit(10, 2);
  bench.engine.drain();
  CHECK(bench.journal.tokens_per_step() == std::vector<int>{448, 262, 2, 1});
}

}  // namespace metronome::testing::TEST_FILE
