// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/run/forward_batch.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

BlockTable blocks(const std::vector<std::int32_t>& ids) {
  BlockTable table;
  for (const std::int32_t id : ids) table.push_back(BlockId{id});
  return table;
}

std::vector<RequestId> ids(const std::vector<std::uint32_t>& numbers) {
  std::vector<RequestId> result;
  for (const std::uint32_t number : numbers) result.push_back(RequestId{number});
  return result;
}

using Ints = std::vector<std::int32_t>;

// Blocks of 4 tokens: request 1 computes prompt positions 4 to 9, request 0 decodes position 8, and
// request 2 computes its whole prompt of 3.
struct Step {
  RequestTable requests;
  StepPlan plan;
  ForwardBatch batch;

  Step() {
    for (int i = 0; i < 3; ++i) requests.add(RequestSpec{});
    table(0) = blocks({5, 3, 6});
    table(1) = blocks({7, 0, 9, 20, 21});  // two more than it needs
    table(2) = blocks({1});
    plan.chunks = {
        {RequestId{1}, 4, 6, ChunkKind::Prefill, false},
        {RequestId{0}, 8, 1, ChunkKind::Decode, true},
        {RequestId{2}, 0, 3, ChunkKind::Prefill, true},
    };
  }

  BlockTable& table(std::uint32_t id) { return requests[RequestId{id}].block_table; }
  BlockTable& window_table(std::uint32_t id) {
    requests[RequestId{id}].group_tables.resize(1);
    return requests[RequestId{id}].group_tables[0];
  }

  void flatten(std::int32_t begin, std::int32_t end, std::int32_t block_size = 4) {
    flatten_pass(plan, ForwardPass{begin, end}, requests, block_size, batch);
  }
};

}  // namespace

TEST_CASE("a mixed pass lies flat, in the order of the plan", "[forward_batch]") {
  Step step;
  step.flatten(0, 3);
  const ForwardBatch& batch = step.batch;
  CHECK(batch.num_sequences() == 3);
  CHECK(batch.num_tokens() == 10);
  CHECK(batch.requests == ids({1, 0, 2}));
  CHECK(batch.query_start == Ints{0, 6, 7, 10});
  CHECK(batch.context_lens == Ints{10, 9, 3});
  CHECK(batch.positions == Ints{4, 5, 6, 7, 8, 9, 8, 0, 1, 2});
  // The last token of each sequence that samples; request 1 is in the middle of its prompt.
  CHECK(batch.logit_tokens == Ints{6, 9});
  CHECK(batch.token_ids == std::vector<TokenId>(10, TokenId{0}));
}

TEST_CASE("block tables are cut to the context", "[forward_batch]") {
  Step step;
  step.flatten(0, 3);
  CHECK(step.batch.table_start == Ints{0, 3, 6, 7});
  CHECK(step.batch.block_tables == blocks({7, 0, 9, 5, 3, 6, 1}));
  // A context that fills its blocks needs no further one.
  step.plan.chunks[0].num_tokens = 4;
  step.flatten(0, 1);
  CHECK(step.batch.context_lens == Ints{8});
  CHECK(step.batch.block_tables == blocks({7, 0}));
}

TEST_CASE("a slot is a block of the whole sequence", "[forward_batch]") {
  Step step;
  for (std::uint32_t id = 0; id < 3; ++id) {
    step.table(id) = blocks({static_cast<std::int32_t>(id) + 40});
  }
  step.flatten(0, 3, 64);
  CHECK(step.batch.table_start == Ints{0, 1, 2, 3});
  CHECK(step.batch.block_tables == blocks({41, 40, 42}));
}

TEST_CASE("each pass of a plan holds its own chunks only", "[forward_batch]") {
  Step step;
  step.flatten(1, 2);
  CHECK(step.batch.requests == ids({0}));
  CHECK(step.batch.query_start == Ints{0, 1});
  CHECK(step.batch.positions == Ints{8});
  CHECK(step.batch.block_tables == blocks({5, 3, 6}));
  CHECK(step.batch.logit_tokens == Ints{0});

  step.flatten(2, 3);
  CHECK(step.batch.requests == ids({2}));
  CHECK(step.batch.positions == Ints{0, 1, 2});
  CHECK(step.batch.logit_tokens == Ints{2});

  step.flatten(3, 3);
  CHECK(step.batch.num_sequences() == 0);
  CHECK(step.batch.num_tokens() == 0);
  CHECK(step.batch.query_start == Ints{0});
  CHECK(step.batch.table_start == Ints{0});
}

TEST_CASE("nothing of the pass before stays in a batch", "[forward_batch]") {
  Step step;
  for (std::uint32_t id = 0; id < 3; ++id) step.window_table(id) = blocks({2, 4, 8});
  step.flatten(0, 3);
  for (TokenId& token : step.batch.token_ids) token = TokenId{99};
  for (std::uint32_t id = 0; id < 3; ++id) step.requests[RequestId{id}].group_tables.clear();
  step.flatten(1, 3);
  const ForwardBatch& batch = step.batch;
  CHECK(batch.requests == ids({0, 2}));
  CHECK(batch.query_start == Ints{0, 1, 4});
  CHECK(batch.context_lens == Ints{9, 3});
  CHECK(batch.table_start == Ints{0, 3, 4});
  CHECK(batch.block_tables == blocks({5, 3, 6, 1}));
  CHECK(batch.window_block_tables.empty());
  CHECK(batch.positions == Ints{8, 0, 1, 2});
  CHECK(batch.token_ids == std::vector<TokenId>(4, TokenId{0}));
  CHECK(batch.logit_tokens == Ints{0, 3});
}

TEST_CASE("window layers with blocks of their own have tables of their own", "[forward_batch]") {
  Step step;
  const std::int32_t null = -1;  // behind the window
  step.window_table(0) = blocks({null, null, 12, 13});
  step.window_table(1) = blocks({null, 10, 11});
  step.window_table(2) = blocks({14});
  step.flatten(0, 3);
  CHECK(step.batch.window_table_start == Ints{0, 3, 6, 7});
  CHECK(step.batch.window_block_tables == blocks({null, 10, 11, null, null, 12, 14}));
  CHECK(step.batch.table_start == Ints{0, 3, 6, 7});
  CHECK(step.batch.block_tables == blocks({7, 0, 9, 5, 3, 6, 1}));
}

TEST_CASE("a chunk without room in its blocks breaks an invariant", "[forward_batch]") {
  Step step;
  step.table(1) = blocks({7, 0});  // 8 of 10 positions
  CHECK_THROWS_AS(step.flatten(0, 3), InvariantError);
  CHECK_NOTHROW(step.flatten(1, 3));

  Step hybrid;
  hybrid.window_table(1) = blocks({10, 11});
  CHECK_THROWS_AS(hybrid.flatten(0, 1), InvariantError);
}

TEST_CASE("all requests of a pass have window tables, or none", "[forward_batch]") {
  Step step;
  step.window_table(0) = blocks({10, 11, 12});
  CHECK_THROWS_AS(step.flatten(0, 2), InvariantError);
  CHECK_THROWS_AS(step.flatten(1, 3), InvariantError);
  CHECK_NOTHROW(step.flatten(1, 2));
}

}  // namespace TEST_FILE
