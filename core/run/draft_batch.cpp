#include "core/run/draft_batch.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/engine/padded_drafts.h"

namespace metronome {
namespace {

std::span<const BlockId> blocks_of(const std::vector<BlockId>& tables,
                                   const std::vector<std::int32_t>& starts, std::size_t sequence) {
  if (tables.empty()) return {};
  const auto begin = static_cast<std::size_t>(starts[sequence]);
  const auto end = static_cast<std::size_t>(starts[sequence + 1]);
  return std::span(tables).subspan(begin, end - begin);
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
                  RequestTexts& texts, ForwardBatch& batch) {
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
    batch.append(planned.requests[s], begin, end,
                 blocks_of(planned.block_tables, planned.table_start, s),
                 blocks_of(planned.window_block_tables, planned.window_table_start, s), num_logits);
  }
}

}  // namespace metronome
