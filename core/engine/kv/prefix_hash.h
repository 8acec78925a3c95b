// The chained hashes of a request's full blocks: equal hashes mean equal tokens up to and including
// the block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/kv/prefix_index.h"
#include "core/engine/prompt.h"
#include "core/engine/request.h"

namespace metronome {

// The hash of full block i of a request, at index i.
using HashChain = std::vector<BlockHash>;

// Knows what the tokens of requests are, as far as equality goes.
//
// A prompt's tokens are those of the source: ids where it has them, else the content of its
// segments, else unique to the request. An output token is its id where the executor returned one,
// else unique to (request, position): requests never share output, but a preempted one finds its
// own again.
class PrefixHasher {
 public:
  // `prompts` outlives the hasher; nullptr: every prompt is unique.
  explicit PrefixHasher(const PromptSource* prompts = nullptr) : prompts_(prompts) {}

  // Appends to `chain`, which holds the hashes of blocks [0, chain.size()), those of the blocks up
  // to `num_blocks`. Requires num_blocks * block_size <= request.num_tokens().
  // Cost: O(new blocks + segments) for segments, O(new tokens) for ids.
  void extend(const Request& request, std::int32_t block_size, std::int64_t num_blocks,
              HashChain& chain) const;

 private:
  void add_prompt(const Request& request, std::int64_t begin, std::int64_t end,
                  class ChainWriter& writer) const;

  const PromptSource* prompts_;
};

}  // namespace metronome
