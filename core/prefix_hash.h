// The chained hashes of a request's full blocks: equal hashes mean equal tokens up to and including
// the block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/prefix_index.h"
#include "core/request.h"
#include "core/workload.h"

namespace metronome {

// The hash of full block i of a request, at index i.
using HashChain = std::vector<BlockHash>;

// Prompts of requests that no workload describes.
class PromptSource {
 public:
  virtual ~PromptSource() = default;
  virtual std::span<const TokenId> prompt_ids(RequestId request) const = 0;
};

// Knows what the tokens of requests are, as far as equality goes.
//
// A prompt's tokens are those of the workload: ids where it has them, else the content of its
// segments, else unique to the request. An output token is its id where the executor returned one,
// else unique to (request, position): requests never share output, but a preempted one finds its
// own again.
class PrefixHasher {
 public:
  // `workload` outlives the hasher and describes request i as its request i; nullptr, and requests
  // beyond its last: prompts are unique.
  explicit PrefixHasher(const Workload* workload = nullptr);
  // Every prompt is given token by token. `prompts` outlives the hasher.
  explicit PrefixHasher(const PromptSource& prompts) : prompts_(&prompts) {}

  // Appends to `chain`, which holds the hashes of blocks [0, chain.size()), those of the blocks up
  // to `num_blocks`. Requires num_blocks * block_size <= request.num_tokens().
  // Cost: O(new blocks + segments) for segments, O(new tokens) for ids.
  void extend(const Request& request, std::int32_t block_size, std::int64_t num_blocks,
              HashChain& chain) const;

 private:
  void add_prompt(const Request& request, std::int64_t begin, std::int64_t end,
                  class ChainWriter& writer) const;

  const Workload* workload_ = nullptr;
  const PromptSource* prompts_ = nullptr;
};

}  // namespace metronome
