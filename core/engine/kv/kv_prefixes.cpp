// SPDX-License-Identifier: Apache-2.0
// The part of KvCacheManager that finds prefixes by their hashes, and hashes what is computed.
#include <algorithm>
#include <span>
#include <utility>

#include "core/base/error.h"
#include "core/engine/kv/kv_cache.h"

namespace metronome {

const HashChain& KvCacheManager::chain_of(const Request& request, std::int64_t num_units) {
  HashChain& chain = state_of(request).chain;
  if (static_cast<std::int64_t>(chain.size()) < num_units) {
    if (chain.capacity() == 0 && !spare_chains_.empty()) {
      chain = std::move(spare_chains_.back());
      spare_chains_.pop_back();
    }
    hasher_->extend(request, hash_unit_, num_units, chain, num_hash_lookahead_tokens());
  }
  return chain;
}

void KvCacheManager::hash_blocks(Request& request, std::int32_t num_tokens) {
  const std::int64_t num_units = num_hashable_units(request, num_tokens);
  const std::int64_t num_blocks = num_units / units_per_block_;
  PrefixState& state = state_of(request);
  if (num_blocks <= state.num_hashed && !states_) return;
  const HashChain& chain = chain_of(request, num_units);
  if (states_) {
    hash_with_positions(request, chain, state.num_hashed, num_blocks);
    hash_prompt_end(request, num_tokens, chain);
    states_->cache(request, num_tokens, chain, state.shared_prefix_end);
  } else {
    hash_full(request, chain, state.num_hashed, num_blocks);
  }
  if (windows_) {
    windows_->cache(request, chain, state.num_hashed, num_blocks, state.shared_prefix_end);
  }
  state.num_hashed = std::max(state.num_hashed, static_cast<std::int32_t>(num_blocks));
}

// Every block of full attention has a hash of its own, and all are kept.
void KvCacheManager::hash_full(const Request& request, const HashChain& chain,
                               std::int64_t num_hashed, std::int64_t num_blocks) {
  PrefixIndex& contents = pool_.contents();
  const BlockTable& table = request.block_table;
  const auto begin = static_cast<std::size_t>(num_hashed);
  const auto end = static_cast<std::size_t>(num_blocks);
  for (std::size_t i = begin; i < end; ++i) {
    contents.prefetch(chain[i]);
    contents.prefetch(table[i]);
  }
  for (std::size_t i = begin; i < end; ++i) contents.insert(table[i], chain[i]);
}

void KvCacheManager::hash_with_positions(const Request& request, const HashChain& chain,
                                         std::int64_t num_hashed, std::int64_t num_blocks) {
  PrefixIndex& contents = pool_.contents();
  for (std::int64_t i = num_hashed; i < num_blocks; ++i) {
    contents.prefetch(hash_of_block(chain, i));
  }
  for (std::int64_t i = num_hashed; i < num_blocks; ++i) {
    const BlockId block = request.block_table[static_cast<std::size_t>(i)];
    contents.erase(block);  // the hash of a prompt's end inside the block, if any
    contents.insert(block, hash_of_block(chain, i), (i + 1) * units_per_block_);
  }
}

// Where a prompt ends inside a block, its last position that can be hit gets a hash, too.
void KvCacheManager::hash_prompt_end(const Request& request, std::int32_t num_tokens,
                                     const HashChain& chain) {
  if (windows_) return mark_prompt_end(request, num_tokens, chain);
  const std::int64_t num_units =
      std::min<std::int64_t>((request.num_prompt_tokens - 1) / hash_unit_,
                             num_hashable_units(request, request.num_tokens()));
  const std::int64_t end = num_units * hash_unit_;
  if (end == 0 || end > num_tokens || end % layout_.block_size == 0) return;
  const auto at = static_cast<std::size_t>(end / layout_.block_size);
  if (at >= request.block_table.size()) return;
  pool_.contents().insert_inside(request.block_table[at],
                                 chain[static_cast<std::size_t>(num_units - 1)], num_units);
}

// With windows no hit ends inside a block. vLLM hashes the end of a prompt all the same
// (FullAttentionManager.cache_blocks in single_type_kv_cache_manager.py). Nobody finds that hash,
// but a block that has one is not reused first.
void KvCacheManager::mark_prompt_end(const Request& request, std::int32_t num_tokens,
                                     const HashChain& chain) {
  const std::int32_t unit = states_->options().layout.export_unit;
  if (unit <= 0 || unit >= layout_.block_size) return;
  const std::int32_t end =
      std::min(request.num_prompt_tokens - 1, request.num_tokens() - num_hash_lookahead_tokens()) /
      unit * unit;
  if (end <= 0 || end > num_tokens / layout_.block_size * layout_.block_size ||
      end % layout_.block_size == 0)
    return;
  const auto at = static_cast<std::size_t>(end / layout_.block_size);
  if (at >= request.block_table.size()) return;
  PrefixIndex& contents = pool_.contents();
  const BlockId block = request.block_table[at];
  if (contents.hash_of(block) != kNoHash) return;
  // Any hash of this group will do.
  const BlockHash before = at == 0 ? BlockHash{1} : chain[at - 1];
  contents.insert(block, in_group(before, kFirstFurtherGroup + groups_.size()),
                  static_cast<std::int64_t>(at) + 1);
}

void KvCacheManager::commit(Request& request, bool has_token) {
  if (states_ && !has_token) return;  // vLLM caches states when a chunk gave a token
  hash_blocks(request, request.num_cached_tokens());
}

// Puts the leading cached blocks of the chain into hit_.blocks. Returns their number. A request
// that waits for room asks with every plan and mostly finds what it found: those blocks are still
// in hit_.blocks and need no lookup.
std::int64_t KvCacheManager::find_full(const HashChain& chain, std::int64_t num_blocks) {
  constexpr std::int64_t kLookahead = 24;
  const PrefixIndex& contents = pool_.contents();
  const std::int64_t num_before = std::min<std::int64_t>(std::ssize(hit_.blocks), num_blocks);
  std::int64_t i = 0;
  while (i < num_before &&
         contents.finds(hash_of_block(chain, i), hit_.blocks[static_cast<std::size_t>(i)])) {
    ++i;
  }
  hit_.blocks.resize(static_cast<std::size_t>(i));
  for (; i < num_blocks; ++i) {
    if (i + kLookahead < num_blocks) contents.prefetch(hash_of_block(chain, i + kLookahead));
    const BlockId id = contents.find(hash_of_block(chain, i));
    if (id == kNoBlock) return i;
    hit_.blocks.push_back(id);
  }
  return num_blocks;
}

std::int64_t KvCacheManager::count_cached(const HashChain& chain) const {
  if (tree_) return tree_->count_cached(chain);
  const std::int64_t num_blocks = std::ssize(chain) / units_per_block_;
  std::int64_t i = 0;
  while (i < num_blocks && pool_.contents().find(hash_of_block(chain, i)) != kNoBlock) ++i;
  return i;
}

// The longest prefix of at most `max_tokens` tokens that full attention has cached, in hit_.blocks.
// It may end inside a block where states may.
std::int32_t KvCacheManager::find_full_tokens(const HashChain& chain, std::int32_t max_tokens) {
  const std::int64_t num_full =
      find_full(chain, std::min<std::int64_t>(max_tokens / layout_.block_size,
                                              std::ssize(chain) / units_per_block_));
  auto num_tokens = static_cast<std::int32_t>(num_full * layout_.block_size);
  if (states_ && states_->has_partial_hits()) {
    // The longest part of the next block.
    const std::int32_t limit =
        std::min({num_tokens + layout_.block_size - hash_unit_, max_tokens,
                  static_cast<std::int32_t>(std::ssize(chain)) * hash_unit_});
    for (std::int32_t end = limit / hash_unit_ * hash_unit_; end > num_tokens; end -= hash_unit_) {
      const BlockId id =
          pool_.contents().find(chain[static_cast<std::size_t>(end / hash_unit_ - 1)]);
      if (id == kNoBlock) continue;
      hit_.blocks.push_back(id);
      num_tokens = end;
      break;
    }
  }
  return num_tokens;
}

const PrefixHit& KvCacheManager::find_prefix(const Request& request, std::int32_t max_tokens) {
  if (!caches_prefixes() || max_tokens < hash_unit_) return no_hit_;
  for (BlockTable& found : hit_.group_blocks) found.clear();
  const std::int64_t max_units = num_hashable_units(request, max_tokens);
  const std::int64_t max_blocks = max_units / units_per_block_;
  const HashChain& chain = chain_of(request, max_units);
  if (tree_) {
    const RadixTree::Match match = tree_->match(chain, max_blocks);
    hit_.blocks.clear();
    tree_->append_blocks(match.node, hit_.blocks);
    hit_.node = match.node;
    hit_.num_tokens = static_cast<std::int32_t>(match.num_blocks) * layout_.block_size;
    return hit_;
  }
  hit_.shared_prefix_end = 0;
  hit_.group_blocks.resize(groups_.size() - 1);
  // Full attention can use any shorter prefix; windows and states only what they have.
  const std::int32_t num_full = find_full_tokens(chain, max_tokens);
  std::int32_t num_tokens = num_full;
  for (std::int32_t before = -1; before != num_tokens;) {
    before = num_tokens;
    if (windows_) {
      const std::int64_t num_blocks =
          windows_->find(chain, num_tokens / layout_.block_size, hit_.group_blocks);
      num_tokens = static_cast<std::int32_t>(num_blocks) * layout_.block_size;
    }
    if (states_) num_tokens = states_->find(chain, num_tokens, hit_.group_blocks);
    if (!windows_ || !states_) break;  // one kind found what it has
  }
  hit_.num_tokens = num_tokens;
  hit_.blocks.resize(static_cast<std::size_t>(blocks_for(num_tokens)));
  if (num_tokens < num_full) hit_.shared_prefix_end = num_full;
  return hit_;
}

const PrefixHit& KvCacheManager::find_prefix_or_received(const Request& request) {
  const PrefixHit& hit = find_prefix(request, request.num_tokens() - 1);
  const std::int32_t num_received = request.num_received_tokens;
  if (num_received <= hit.num_tokens || request.num_preemptions > 0) return hit;
  received_ = hit;
  received_.num_tokens = num_received;
  return received_;
}

void KvCacheManager::find_prefix_ends(const std::vector<const Request*>& requests,
                                      const std::vector<RadixTree::Known*>& known) {
  METRONOME_CHECK(tree_.has_value(), "only a radix tree has nodes");
  tree_->begin_pass();
  std::vector<const RadixTree::Known*> followed;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = *requests[i];
    if (request.num_tokens() < hash_unit_) continue;
    if (tree_->holds(*known[i])) {
      tree_->follow(*known[i]);
    } else {
      const std::int64_t max_units = num_hashable_units(request, request.num_tokens());
      tree_->follow(chain_of(request, max_units), max_units / units_per_block_, *known[i]);
    }
    followed.push_back(known[i]);
  }
  tree_->end_pass(followed);
}

BlockHash KvCacheManager::name_of_prefix(const Request& request, std::int32_t num_tokens) const {
  if (!caches_prefixes() || request.num_tokens() < num_tokens) return kNoHash;
  HashChain chain;  // one block as long as the prefix
  hasher_->extend(request, num_tokens, 1, chain);
  return chain.front();
}

}  // namespace metronome
