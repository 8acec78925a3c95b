// SPDX-License-Identifier: Apache-2.0
#include "core/run/forward_batch.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {
namespace {

std::span<const BlockId> first_blocks(const BlockTable& table, std::int64_t num_blocks) {
  METRONOME_CHECK(static_cast<std::int64_t>(table.size()) >= num_blocks,
                  "a chunk has no room in its blocks");
  return {table.data(), static_cast<std::size_t>(num_blocks)};
}

void append_table(std::span<const BlockId> blocks, std::vector<BlockId>& ids,
                  std::vector<std::int32_t>& starts) {
  ids.insert(ids.end(), blocks.begin(), blocks.end());
  starts.push_back(static_cast<std::int32_t>(ids.size()));
}

}  // namespace

std::int32_t ForwardBatch::sequence_of(std::int32_t token) const {
  const auto next = std::upper_bound(query_start.begin(), query_start.end(), token);
  return static_cast<std::int32_t>(next - query_start.begin()) - 1;
}

void ForwardBatch::clear() {
  requests.clear();
  query_start.assign(1, 0);
  context_lens.clear();
  table_start.assign(1, 0);
  block_tables.clear();
  window_table_start.assign(1, 0);
  window_block_tables.clear();
  num_state_groups = 0;
  state_sources.clear();
  state_targets.clear();
  token_ids.clear();
  positions.clear();
  logit_tokens.clear();
  rope_positions.clear();
  image_tokens.clear();
}

void ForwardBatch::append(RequestId request, std::int32_t begin, std::int32_t end,
                          std::span<const BlockId> blocks, std::span<const BlockId> window_blocks,
                          std::int32_t num_logits) {
  requests.push_back(request);
  context_lens.push_back(end);
  append_table(blocks, block_tables, table_start);
  if (!window_blocks.empty()) append_table(window_blocks, window_block_tables, window_table_start);
  for (std::int32_t p = begin; p < end; ++p) positions.push_back(p);
  token_ids.resize(positions.size(), TokenId{});
  query_start.push_back(num_tokens());
  for (std::int32_t i = num_logits; i > 0; --i) logit_tokens.push_back(num_tokens() - i);
}

namespace {

// Where cached states are placed: the state at the end of a step is in the block of its last
// position (StateGroups). Otherwise a request has one.
void append_states(const Request& request, const ScheduledChunk& chunk, std::int32_t block_size,
                   const StateLayout& states, ForwardBatch& batch) {
  METRONOME_CHECK(states.num_drafts == 0 && states.checkpoint_alignment == 0,
                  "executors keep one state at the end of a step");
  METRONOME_CHECK(!states.caches_states || states.hash_unit == block_size,
                  "executors copy no states");
  METRONOME_CHECK(request.group_tables.size() == static_cast<std::size_t>(states.num_groups),
                  "executors know no windows beside states");
  batch.num_state_groups = states.num_groups;
  for (const BlockTable& table : request.group_tables) {
    const auto block_at = [&](std::int32_t end) {
      const auto at = static_cast<std::size_t>(states.caches_states ? (end - 1) / block_size : 0);
      METRONOME_CHECK(at < table.size() && table[at] != kNullBlock, "a state has a block");
      return table[at];
    };
    batch.state_sources.push_back(chunk.first_position == 0 ? kNoBlock
                                                            : block_at(chunk.first_position));
    batch.state_targets.push_back(block_at(chunk.end_position()));
  }
}

}  // namespace

void flatten_pass(const StepPlan& plan, const ForwardPass& pass, const RequestTable& requests,
                  std::int32_t block_size, ForwardBatch& batch, std::int32_t num_lookahead_tokens,
                  const StateLayout& states) {
  batch.clear();
  for (std::int32_t i = pass.begin; i < pass.end; ++i) {
    const ScheduledChunk& chunk = plan.chunks[static_cast<std::size_t>(i)];
    const Request& request = requests[chunk.request];
    const std::int64_t num_blocks =
        std::max(ceil_div(chunk.end_position(), block_size),
                 std::min(ceil_div(chunk.end_position() + num_lookahead_tokens, block_size),
                          static_cast<std::int64_t>(request.block_table.size())));
    std::span<const BlockId> window_blocks;
    const bool has_states = states.num_groups > 0;
    METRONOME_CHECK(has_states || request.group_tables.size() <= 1,
                    "executors know one group of windows");
    if (has_states) {
      append_states(request, chunk, block_size, states, batch);
    } else if (!request.group_tables.empty()) {
      window_blocks = first_blocks(request.group_tables.front(), num_blocks);
    }
    batch.append(chunk.request, chunk.first_position, chunk.end_position(),
                 first_blocks(request.block_table, num_blocks), window_blocks,
                 chunk.samples_token ? 1 : 0);
  }
  METRONOME_CHECK(batch.window_block_tables.empty() ||
                      batch.window_table_start.size() == batch.table_start.size(),
                  "all requests of a hybrid model have a window table");
}

}  // namespace metronome
