// SPDX-License-Identifier: Apache-2.0
#include "engines/vllm/state_split.h"

#include <algorithm>

namespace metronome {

std::int32_t StateSplit::tokens_of_chunk(std::int32_t begin, std::int32_t num_tokens,
                                         std::int32_t num_prompt_tokens, std::int32_t num_known,
                                         std::int32_t shared_prefix_end) const {
  const std::int32_t prefill_end = prefill_end_of(num_prompt_tokens, num_known);
  if (begin >= prefill_end) return num_tokens;
  std::int32_t end = begin + num_tokens;

  const bool has_partial_hits = layout.hash_unit < block_size;
  const bool exports_state =
      end >= prefill_end &&
      can_export_state(layout, block_size, begin, end,
                       last_state_position(prefill_end, layout.hash_unit, num_hash_lookahead));
  const std::int32_t last_boundary =
      exports_state ? 0 : last_state_position(num_known, block_size, num_hash_lookahead);

  if (end < prefill_end) {
    // Only a block that no chunk can fill is computed in parts.
    const std::int32_t whole_blocks_end = end / block_size * block_size;
    if (whole_blocks_end > begin || block_size <= max_chunk_tokens) end = whole_blocks_end;
  }
  const std::int32_t limit = end;
  const auto stop_at = [begin, limit, &end](std::int32_t position) {
    if (begin < position && position < limit) end = std::min(end, position);
  };
  if (begin % block_size != 0 && !exports_state) stop_at((begin / block_size + 1) * block_size);
  stop_at(last_boundary);
  if (has_partial_hits && !exports_state) {
    const std::int32_t prompt_end =
        last_state_position(num_prompt_tokens, layout.hash_unit, num_hash_lookahead);
    if (last_boundary < prompt_end && prompt_end < num_prompt_tokens) stop_at(prompt_end);
  }
  if (begin < shared_prefix_end && shared_prefix_end < limit) {
    stop_at(begin + (shared_prefix_end - begin) / block_size * block_size);
  }
  return std::max(0, end - begin);
}

}  // namespace metronome
