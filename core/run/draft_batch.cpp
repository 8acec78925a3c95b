// SPDX-License-Identifier: Apache-2.0
#include "core/run/draft_batch.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/engine/padded_drafts.h"

namespace metronome {
namespace {

// At most `most` of them.
std::span<const BlockId> blocks_of(const std::vector<BlockId>& tables,
                                   const std::vector<std::int32_t>& starts, std::size_t sequence,
                                   std::size_t most) {
  if (tables.empty()) return {};
  const auto begin = static_cast<std::size_t>(starts[sequence]);
  const auto end = static_cast<std::size_t>(starts[sequence + 1]);
  return std::span(tables).subspan(begin, std::min(end - begin, most));
}

// None for a request that has all its tokens. No draft lies behind max_model_len.
std::int32_t num_wanted_drafts(const DraftChunk& chunk, const Request& request,
                               const RequestTexts::Text& text, std::int32_t max_model_len) {
  if (chunk.num_next == 0 || request.has_ended()) return 0;
  const auto num_known = static_cast<std::int32_t>(text.token_ids.size());
  if (num_known >= request.num_prompt_tokens + request.max_output_tokens) return 0;
  return std::clamp(max_model_len - num_known, 0, chunk.num_next);
}

}  // namespace

void note_drafts(const StepPlan& plan, const ForwardPass& pass, const RequestTable& requests,
                 std::vector<DraftChunk>& chunks) {
  chunks.clear();
  for (std::int32_t i = pass.begin; i < pass.end; ++i) {
    const ScheduledChunk& chunk = plan.chunks[static_cast<std::size_t>(i)];
    DraftChunk& noted = chunks.emplace_back();
    noted.is_decode = chunk.kind == ChunkKind::Decode;
    noted.samples_token = chunk.samples_token;
    noted.num_next = chunk.samples_token ? requests[chunk.request].num_draft_tokens : 0;
    noted.num_drafts = num_verified_drafts(plan, chunk);
  }
}

void place_drafts(const ForwardBatch& planned, std::span<const DraftChunk> chunks,
                  RequestTexts& texts, ForwardBatch& batch, std::int32_t block_size) {
  batch.clear();
  for (std::size_t s = 0; s < chunks.size(); ++s) {
    std::int32_t begin = planned.positions[static_cast<std::size_t>(planned.query_start[s])];
    std::int32_t end = planned.context_lens[s];
    std::int32_t num_logits = chunks[s].samples_token ? 1 : 0;
    if (chunks[s].is_decode) {
      const RequestTexts::Text& text = texts[planned.requests[s]];
      begin = static_cast<std::int32_t>(text.token_ids.size()) - 1;
      num_logits =
          1 + std::min(chunks[s].num_drafts, static_cast<std::int32_t>(text.drafts.size()));
      end = begin + num_logits;
    }
    METRONOME_CHECK(end <= planned.context_lens[s], "a decode ends no later than planned");
    const std::size_t most =
        block_size == 0 ? SIZE_MAX : static_cast<std::size_t>(ceil_div(end, block_size));
    batch.append(planned.requests[s], begin, end,
                 blocks_of(planned.block_tables, planned.table_start, s, most),
                 blocks_of(planned.window_block_tables, planned.window_table_start, s, most),
                 num_logits);
  }
}

void accept_tokens(const ForwardBatch& batch, const RequestTable& requests, bool has_drafts,
                   const AcceptRow& accept, StepResult& result) {
  const std::vector<std::int32_t>& rows = batch.logit_tokens;
  for (std::size_t row = 0; row < rows.size();) {
    const auto sequence = static_cast<std::size_t>(batch.sequence_of(rows[row]));
    std::size_t end = row + 1;
    while (end < rows.size() && rows[end] < batch.query_start[sequence + 1]) ++end;
    const bool has_ended = requests[batch.requests[sequence]].has_ended();
    std::int32_t num_taken = 0;
    for (bool goes_on = true; goes_on; ++num_taken) {
      const std::size_t at = row + static_cast<std::size_t>(num_taken);
      const TokenId taken = accept(sequence, at);
      if (result.failed) return;
      goes_on = at + 1 < end && !has_ended &&
                batch.token_ids[static_cast<std::size_t>(rows[at]) + 1] == taken;
    }
    if (has_drafts) {
      result.num_accepted.push_back(num_taken - 1);
      result.num_verified.push_back(has_ended ? 0 : static_cast<std::int32_t>(end - row) - 1);
    }
    row = end;
  }
}

void propose_drafts(const DraftSource& source, const ForwardBatch& batch,
                    std::span<const DraftChunk> chunks, const RequestTable& requests,
                    RequestTexts& texts, StepResult& result, const Drafter::PollFn& poll) {
  std::vector<std::int32_t> num_wanted;
  for (std::size_t s = 0; s < batch.requests.size(); ++s) {
    const RequestId id = batch.requests[s];
    RequestTexts::Text& text = texts[id];
    text.drafts.clear();
    num_wanted.push_back(num_wanted_drafts(chunks[s], requests[id], text, source.max_model_len));
  }
  source.drafter->propose(batch, num_wanted, texts, poll);
  if (!source.drafter->may_find_fewer()) return;
  for (std::size_t s = 0; s < batch.requests.size(); ++s) {
    if (!chunks[s].samples_token) continue;
    const std::vector<TokenId>& drafts = texts[batch.requests[s]].drafts;
    result.num_proposed.push_back(static_cast<std::int32_t>(drafts.size()));
  }
}

}  // namespace metronome
