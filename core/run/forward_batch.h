// SPDX-License-Identifier: Apache-2.0
// One forward pass as flat arrays: the input of an executor that computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/kv/state_groups.h"
#include "core/engine/request.h"
#include "core/engine/step_plan.h"
#include "core/model/mrope.h"

namespace metronome {

// Tokens of a batch that stand for consecutive embeddings of an image.
struct ImageTokens {
  std::int32_t first_token = 0;  // of the batch
  std::int32_t num_tokens = 0;
  // [num_tokens, VisionTower::features_per_token(), hidden_dim]: of each the embedding, then what
  // the first layers add.
  const float* features = nullptr;
};

// Sequence s owns tokens [query_start[s], query_start[s + 1]), at consecutive positions that end at
// context_lens[s]. It owns entries [table_start[s], table_start[s + 1]) of block_tables.
struct ForwardBatch {
  std::vector<RequestId> requests;         // [num_sequences]
  std::vector<std::int32_t> query_start;   // [num_sequences + 1], vLLM's cu_seqlens_q
  std::vector<std::int32_t> context_lens;  // [num_sequences] positions cached after the pass
  std::vector<std::int32_t> table_start;   // [num_sequences + 1]
  std::vector<BlockId> block_tables;       // [table_start.back()]
  // KV blocks of the sliding-window layers if they have their own, with the same indexing.
  // Otherwise window_block_tables is empty.
  std::vector<std::int32_t> window_table_start;
  std::vector<BlockId> window_block_tables;
  // Recurrent states: entry s * num_state_groups + g is of sequence s and group g. The block (or
  // the slot, where states are beside the blocks) that has the state before the pass, and the one
  // that gets the state behind it. kNoBlock: the sequence begins with this pass.
  std::int32_t num_state_groups = 0;  // 0 = a model without states
  std::vector<BlockId> state_sources;
  std::vector<BlockId> state_targets;
  std::vector<TokenId> token_ids;          // [num_tokens]
  std::vector<std::int32_t> positions;     // [num_tokens]
  std::vector<std::int32_t> logit_tokens;  // tokens whose logits are needed, ascending
  // Of batches with images: positions for RoPE, [num_tokens], and the tokens of images, ascending.
  // No rope_positions: those of `positions`.
  std::vector<RopePosition> rope_positions;
  std::vector<ImageTokens> image_tokens;

  std::int32_t num_sequences() const { return static_cast<std::int32_t>(requests.size()); }
  std::int32_t num_tokens() const { return static_cast<std::int32_t>(positions.size()); }
  // The sequence that owns a token of the batch.
  std::int32_t sequence_of(std::int32_t token) const;

  void clear();
  // Appends a sequence; its tokens at positions [begin, end) get id 0. `blocks` are the KV blocks
  // of positions [0, end), and may be of more. `window_blocks` has the same size or is empty.
  // Requires clear() before the first append.
  void append(RequestId request, std::int32_t begin, std::int32_t end,
              std::span<const BlockId> blocks, std::span<const BlockId> window_blocks,
              std::int32_t num_logits);  // of its last tokens
};

// Flattens one pass of a plan. Copies only the block table entries that the context needs. Token
// ids stay 0 because they may not be known yet. Clears `batch` first and keeps its memory.
// `num_lookahead_tokens`: positions behind each chunk whose blocks are copied, too, as far as the
// request has them. `states`: the groups of KvCacheLayout.
void flatten_pass(const StepPlan& plan, const ForwardPass& pass, const RequestTable& requests,
                  std::int32_t block_size, ForwardBatch& batch,
                  std::int32_t num_lookahead_tokens = 0, const StateLayout& states = {});

}  // namespace metronome
