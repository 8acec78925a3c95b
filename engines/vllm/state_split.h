// SPDX-License-Identifier: Apache-2.0
// Where vLLM ends the prompt chunks of a model with recurrent states. Chunks end at the states that
// later requests need. Source: vllm 0.33.0, vllm/v1/core/sched/scheduler.py,
// _mamba_block_aligned_split.
#pragma once

#include <cstdint>

#include "core/engine/kv/state_groups.h"

namespace metronome {

struct StateSplit {
  StateLayout layout;
  std::int32_t block_size;
  std::int32_t num_hash_lookahead;
  std::int32_t max_chunk_tokens;  // of a request in any step

  // How many of the `num_tokens` tokens from `begin` on the next chunk takes; 0 = none in this
  // step. `num_known` is the request's tokens, `shared_prefix_end` that of its prefix hit.
  std::int32_t tokens_of_chunk(std::int32_t begin, std::int32_t num_tokens,
                               std::int32_t num_prompt_tokens, std::int32_t num_known,
                               std::int32_t shared_prefix_end) const;
};

}  // namespace metronome
