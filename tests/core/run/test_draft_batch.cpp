// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "core/base/error.h"
#include "core/run/draft_batch.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

using Ints = std::vector<std::int32_t>;

// Every prompt is the tokens 10, 11, ...
class CountingInput final : public RequestInput {
 public:
  void prompt(RequestId, std::vector<TokenId>& out) const override {
    for (int i = 0; i < 6; ++i) out.push_back(TokenId{10 + i});
  }
  SamplingParams sampling(RequestId) const override { return {}; }
};

// Blocks of 4 tokens. Request 0 decodes with three drafts, planned at position 8; request 1 is in
// the middle of its prompt, request 2 at the end of it, and request 3 is admitted with padding.
struct Step {
  RequestTable requests;
  StepPlan plan;
  CountingInput input;
  RequestTexts texts{input, {}};
  ForwardBatch planned;
  ForwardBatch batch;
  std::vector<DraftChunk> chunks;

  Step() {
    for (int i = 0; i < 4; ++i) {
      Request& request = requests.add(RequestSpec{});
      for (int b = 0; b < 4; ++b) request.block_table.push_back(BlockId{4 * i + b});
      request.num_draft_tokens = 3;
    }
    plan.chunks = {{RequestId{0}, 8, 4, ChunkKind::Decode, true},
                   {RequestId{1}, 2, 3, ChunkKind::Prefill, false},
                   {RequestId{2}, 0, 6, ChunkKind::Prefill, true},
                   {RequestId{3}, 5, 4, ChunkKind::Decode, true}};
    plan.admitted = {RequestId{1}, RequestId{3}};
  }

  void place(std::int32_t num_lookahead = 0) {
    const ForwardPass pass = {0, 4};
    flatten_pass(plan, pass, requests, 4, planned, num_lookahead);
    note_drafts(plan, pass, requests, chunks);
    place_drafts(planned, chunks, texts, batch);
  }
};

}  // namespace

TEST_CASE("a decode begins at the last known token, with the drafts that there are",
          "[draft_batch]") {
  Step step;
  step.texts[RequestId{0}].drafts = {TokenId{1}, TokenId{2}};
  step.texts[RequestId{3}].drafts = {TokenId{3}};  // of a time before its preemption
  step.place();
  CHECK(step.batch.positions == Ints{5, 6, 7, 2, 3, 4, 0, 1, 2, 3, 4, 5, 5});
  CHECK(step.batch.query_start == Ints{0, 3, 6, 12, 13});
  CHECK(step.batch.context_lens == Ints{8, 5, 6, 6});
  // All tokens of a decode, the last one of a prompt.
  CHECK(step.batch.logit_tokens == Ints{0, 1, 2, 11, 12});
  CHECK(step.chunks[0].num_next == 3);
  CHECK(step.chunks[1].num_next == 0);
  CHECK(step.chunks[3].num_drafts == 0);

  step.texts[RequestId{0}].drafts.assign(9, TokenId{1});
  step.place();
  CHECK(step.batch.context_lens[0] == 9);  // no more than the plan has room for
  step.texts[RequestId{0}].drafts.clear();
  step.place();
  CHECK(step.batch.context_lens[0] == 6);
  CHECK(step.batch.logit_tokens.size() == 3);

  step.texts[RequestId{0}].token_ids.resize(20);
  CHECK_THROWS_AS(step.place(), InvariantError);
}

TEST_CASE("a batch has the blocks of its lookahead, as far as there are any", "[draft_batch]") {
  Step step;
  step.place();
  CHECK(step.batch.table_start == Ints{0, 3, 5, 7, 10});
  step.place(4);
  CHECK(step.batch.table_start == Ints{0, 4, 7, 10, 14});
  CHECK(step.batch.block_tables[6] == BlockId{6});
  step.place(100);
  CHECK(step.batch.table_start == Ints{0, 4, 8, 12, 16});
}

}  // namespace TEST_FILE
