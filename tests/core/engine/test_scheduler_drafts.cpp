// SPDX-License-Identifier: Apache-2.0
// Steps with drafts, planned and committed by hand: what counts of a result.
#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/policies/registry.h"
#include "core/engine/scheduler.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

// One request of 8 prompt tokens under policy vllm with three drafts a decode.
struct DraftBench {
  explicit DraftBench(std::int32_t max_output) {
    setup.scheduler.policy = "vllm";
    setup.scheduler.max_num_batched_tokens = 32;
    setup.scheduler.drafts.num_tokens = 3;
    setup.max_num_seqs = 4;
    setup.max_model_len = 64;
    setup.step_shape = StepShape::Mixed;
    setup.kv_cache = {.num_blocks = 40, .block_size = 4};
    const PolicyInfo& policy = *find_policy("vllm");
    arrange_cache(policy, setup);
    kv.emplace(setup.kv_cache, &hasher);
    const PolicyContext context{.config = setup.scheduler,
                                .max_num_seqs = setup.max_num_seqs,
                                .max_model_len = setup.max_model_len,
                                .step_shape = setup.step_shape,
                                .kv_cache = *kv};
    scheduler.emplace(BooksSetup{.kv_cache = *kv, .requests = requests}, context,
                      policy.make(context));
    scheduler->enqueue(requests.add({0, 8, max_output, 0}));
    step({}, {});
  }
  const Request& request() const { return requests[RequestId{0}]; }

  // Plans a step, and commits these accepted drafts and, behind them, one token more. `stop` marks
  // the token that ends the request.
  void step(std::vector<std::int32_t> accepted, std::vector<std::uint8_t> stops) {
    scheduler->plan(plan, next++, 0);
    StepResult result;
    result.num_accepted = accepted.empty() ? std::vector<std::int32_t>{0} : accepted;
    for (std::int32_t i = 0; i <= result.num_accepted[0]; ++i) {
      result.sampled_tokens.push_back(TokenId{request().num_output_tokens() + i});
    }
    result.ends_request = std::move(stops);
    scheduler->commit(plan, result, report);
    kv->check_integrity(requests);
  }

  EngineSetup setup;
  PrefixHasher hasher;
  std::optional<KvCacheManager> kv;
  RequestTable requests;
  std::optional<Scheduler> scheduler;
  StepPlan plan;
  CommitReport report;
  std::int64_t next = 0;
};

}  // namespace

TEST_CASE("rejected drafts give their positions back", "[core][drafts]") {
  DraftBench bench(20);
  CHECK(bench.request().num_output_tokens() == 1);
  CHECK(bench.request().num_computed_tokens() == 8);
  bench.step({1}, {});
  CHECK(bench.plan.chunks.at(0).num_tokens == 4);  // a token and three drafts
  CHECK(bench.request().num_output_tokens() == 3);
  CHECK(bench.request().num_computed_tokens() == 10);
  CHECK(bench.request().num_cached_tokens() == 10);
  bench.step({3}, {});
  CHECK(bench.request().num_output_tokens() == 7);
  CHECK(bench.request().num_computed_tokens() == 14);
}

TEST_CASE("tokens behind a stop token are dropped", "[core][drafts]") {
  DraftBench bench(20);
  bench.step({3}, {0, 1, 0, 0});
  CHECK(bench.request().end_reason == EndReason::Stop);
  CHECK(bench.request().num_output_tokens() == 3);
  CHECK(bench.request().output_token_ids.size() == 3);
  CHECK(bench.request().num_cached_tokens() == 10);
  CHECK(bench.report.ended.size() == 1);
  CHECK(bench.kv->num_used_blocks() == 0);
}

TEST_CASE("tokens behind the last one that was asked for are dropped", "[core][drafts]") {
  DraftBench bench(3);
  bench.step({3}, {});
  CHECK(bench.request().end_reason == EndReason::Length);
  CHECK(bench.request().num_output_tokens() == 3);
  CHECK(bench.kv->num_used_blocks() == 0);
}

TEST_CASE("no drafts are proposed behind a request's last token", "[core][drafts]") {
  DraftBench bench(3);
  CHECK(bench.plan.num_next_drafts == 3);  // of the prompt's step
  bench.step({0}, {});
  CHECK(bench.plan.num_next_drafts == 3);
  bench.step({0}, {});  // samples the last token
  CHECK(bench.plan.num_next_drafts == 0);
  CHECK(bench.request().has_ended());

  DraftBench in_flight(3);
  in_flight.scheduler->plan(in_flight.plan, in_flight.next++, 0);
  CHECK(in_flight.plan.num_next_drafts == 3);
  StepPlan ahead;  // while the second of three tokens is in flight, at least
  in_flight.scheduler->plan(ahead, in_flight.next++, 0);
  CHECK(ahead.num_next_drafts == 0);
}

TEST_CASE("a result that does not fit its step is a bug", "[core][drafts]") {
  CHECK_THROWS_AS(DraftBench(20).step({4}, {}), InvariantError);     // more than were verified
  CHECK_THROWS_AS(DraftBench(20).step({1, 0}, {}), InvariantError);  // of two requests
  CHECK_THROWS_AS(DraftBench(20).step({1}, {0}), InvariantError);    // one mark for two tokens
}

}  // namespace metronome::TEST_FILE
