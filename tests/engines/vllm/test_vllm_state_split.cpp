// SPDX-License-Identifier: Apache-2.0
// Where the chunks of a model with recurrent states end, by hand from vLLM's rules.
#include "engines/vllm/state_split.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

StateSplit split_of(std::int32_t block_size, std::int32_t budget, std::int32_t hash_unit = 0,
                    std::int32_t checkpoint_alignment = 0) {
  return {.layout = {.num_groups = 1,
                     .caches_states = true,
                     .hash_unit = hash_unit > 0 ? hash_unit : block_size,
                     .checkpoint_alignment = checkpoint_alignment},
          .block_size = block_size,
          .num_hash_lookahead = 0,
          .max_chunk_tokens = budget};
}

// The chunks of a prompt that has the whole budget in each step.
std::vector<std::int32_t> chunks_of(const StateSplit& split, std::int32_t num_prompt_tokens,
                                    std::int32_t begin = 0, std::int32_t shared_prefix_end = 0) {
  std::vector<std::int32_t> chunks;
  while (begin < num_prompt_tokens && chunks.size() < 20) {
    chunks.push_back(
        split.tokens_of_chunk(begin, std::min(num_prompt_tokens - begin, split.max_chunk_tokens),
                              num_prompt_tokens, num_prompt_tokens, shared_prefix_end));
    begin += chunks.back();
  }
  return chunks;
}

using Chunks = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("chunks end at block boundaries, and the last begins at one", "[core][vllm][states]") {
  CHECK(chunks_of(split_of(4, 16), 10) == Chunks{8, 2});
  CHECK(chunks_of(split_of(4, 16), 8) == Chunks{4, 4});  // a resend hits 7 tokens at most
  CHECK(chunks_of(split_of(4, 16), 3) == Chunks{3});
  CHECK(chunks_of(split_of(4, 6), 17) == Chunks{4, 4, 4, 4, 1});
  CHECK(chunks_of(split_of(4, 16), 10, 6) == Chunks{2, 2});  // after a hit inside a block
}

TEST_CASE("a block that no chunk fills is computed in parts", "[core][vllm][states]") {
  CHECK(chunks_of(split_of(16, 6), 20) == Chunks{6, 6, 4, 4});
  CHECK(split_of(16, 20).tokens_of_chunk(0, 6, 40, 40, 0) == 0);  // a later step can fill it
}

TEST_CASE("a chunk ends where other requests leave a shared prefix", "[core][vllm][states]") {
  CHECK(chunks_of(split_of(4, 32), 30, 0, 12) == Chunks{12, 16, 2});
  CHECK(chunks_of(split_of(4, 32), 30, 0, 14) == Chunks{12, 16, 2});  // in whole blocks
}

TEST_CASE("hits inside blocks need a state at the prompt's last hash", "[core][vllm][states]") {
  CHECK(chunks_of(split_of(4, 16, 2), 11) == Chunks{8, 2, 1});
  CHECK(chunks_of(split_of(4, 16, 2), 9) == Chunks{8, 1});
}

TEST_CASE("kernels that export states need no chunk of their own for them",
          "[core][vllm][states]") {
  CHECK(chunks_of(split_of(4, 16, 0, 1), 10) == Chunks{10});
  CHECK(chunks_of(split_of(4, 16, 0, 3), 10) == Chunks{8, 2});  // not at a multiple of 3
  CHECK(chunks_of(split_of(4, 16, 0, 1), 7) == Chunks{7});
}

TEST_CASE("a decode is not split", "[core][vllm][states]") {
  CHECK(split_of(4, 16).tokens_of_chunk(12, 3, 10, 13, 0) == 3);
  // A request that was preempted computes its output as a prompt.
  CHECK(split_of(4, 16).tokens_of_chunk(0, 13, 4, 13, 0) == 12);
}

}  // namespace metronome::TEST_FILE
