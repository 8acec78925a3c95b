// One forward pass as flat arrays: what a scheduled pass looks like to an executor that computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/request.h"
#include "core/engine/step_plan.h"

namespace metronome {

// Sequence s owns tokens [query_start[s], query_start[s + 1]) at consecutive positions that end at
// context_lens[s], and the block ids [table_start[s], table_start[s + 1]) of block_tables.
struct ForwardBatch {
  std::vector<RequestId> requests;         // [num_sequences]
  std::vector<std::int32_t> query_start;   // [num_sequences + 1], vLLM's cu_seqlens_q
  std::vector<std::int32_t> context_lens;  // [num_sequences] positions cached after the pass
  std::vector<std::int32_t> table_start;   // [num_sequences + 1]
  std::vector<BlockId> block_tables;       // [table_start.back()]
  // Blocks of the sliding-window layers where they have their own, with the same indexing; else
  // window_block_tables is empty.
  std::vector<std::int32_t> window_table_start;
  std::vector<BlockId> window_block_tables;
  std::vector<TokenId> token_ids;          // [num_tokens]
  std::vector<std::int32_t> positions;     // [num_tokens]
  std::vector<std::int32_t> logit_tokens;  // tokens whose logits are needed, ascending

  std::int32_t num_sequences() const { return static_cast<std::int32_t>(requests.size()); }
  std::int32_t num_tokens() const { return static_cast<std::int32_t>(positions.size()); }
  // The sequence that a token of the batch belongs to.
  std::int32_t sequence_of(std::int32_t token) const;

  void clear();
  // Appends a sequence, whose tokens at positions [begin, end) get id 0. `blocks` are those of
  // `end` positions; `window_blocks` as many, or none. Requires clear() before the first.
  void append(RequestId request, std::int32_t begin, std::int32_t end,
              std::span<const BlockId> blocks, std::span<const BlockId> window_blocks,
              bool needs_logits);
};

// Flattens one pass of a plan; of the block tables as many entries as the context needs. Token ids
// are left 0: they may not be known yet. `batch` is cleared first and keeps its memory.
void flatten_pass(const StepPlan& plan, const ForwardPass& pass, const RequestTable& requests,
                  std::int32_t block_size, ForwardBatch& batch);

}  // namespace metronome
