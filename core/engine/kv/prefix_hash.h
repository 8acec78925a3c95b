// SPDX-License-Identifier: Apache-2.0
// The chained hashes of a request's full blocks. Equal hashes mean equal tokens up to the end of
// the block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/kv/prefix_index.h"
#include "core/engine/prompt.h"
#include "core/engine/request.h"

namespace metronome {

// The hash of full block (or hash unit) i of a request, at index i.
using HashChain = std::vector<BlockHash>;

// The groups of a hybrid cache share one index, so each group hashes the same content differently.
constexpr std::uint64_t kFullGroup = 0;  // full attention
constexpr std::uint64_t kFirstFurtherGroup = 1;
BlockHash in_further_group(BlockHash hash, std::uint64_t group);
inline BlockHash in_group(BlockHash hash, std::uint64_t group) {
  return group == kFullGroup ? hash : in_further_group(hash, group);
}

// A retention interval: groups with windows or states hash every block.
constexpr std::int64_t kDenseRetention = -1;

// Hashes the tokens of requests, so that equal tokens can be found.
//
// Prompt tokens come from the source: its ids (and the content of images, whose ids are all the
// same), else the content of its segments, else they are
// unique to the request. An output token is its id if the executor returned one, else unique to
// (request, position). Then requests never share output, but a preempted request finds its own
// again.
class PrefixHasher {
 public:
  // `prompts` must outlive the hasher; nullptr: every prompt is unique.
  explicit PrefixHasher(const PromptSource* prompts = nullptr) : prompts_(prompts) {}

  // Extends `chain`, the hashes of blocks [0, chain.size()), up to `num_blocks` blocks. Each hash
  // covers `num_lookahead` tokens behind its block, too; a chain has one such number. Requires
  // num_blocks * block_size + num_lookahead <= request.num_tokens(). Cost: O(new blocks + segments)
  // for segments, O(new tokens) for ids.
  void extend(const Request& request, std::int32_t block_size, std::int64_t num_blocks,
              HashChain& chain, std::int32_t num_lookahead = 0) const;

  OutputReuse output_reuse() const {
    return prompts_ == nullptr ? OutputReuse::Never : prompts_->output_reuse();
  }

 private:
  void add_prompt(const Request& request, std::int64_t begin, std::int64_t end,
                  class ChainWriter& writer) const;

  std::uint64_t number_of(const Request& request) const {
    return prompts_ != nullptr ? prompts_->number_of(request.id) : index(request.id);
  }

  const PromptSource* prompts_;
};

}  // namespace metronome
