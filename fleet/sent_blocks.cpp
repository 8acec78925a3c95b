// SPDX-License-Identifier: Apache-2.0
#include "fleet/sent_blocks.h"

#include <algorithm>

#include "core/base/rng.h"

namespace metronome {

void hash_blocks(std::span<const ContentRun> prompt, const BlockRule& rule,
                 std::vector<std::uint64_t>& hashes) {
  hashes.clear();
  std::uint64_t hash = 0;
  ContentRun piece;  // of the block, not hashed yet: neighbours in a source are one piece
  const auto close_piece = [&] {
    if (piece.count == 0) return;
    for (const std::uint64_t word : {piece.source, static_cast<std::uint64_t>(piece.first),
                                     static_cast<std::uint64_t>(piece.count)}) {
      hash = mix64(hash ^ mix64(word + 1));
    }
    piece = {};
  };
  std::int64_t num_left = rule.num_tokens;  // of this block
  for (ContentCursor rest(prompt); !rest.at_end();) {
    const ContentRun run = rest.rest();
    const std::int64_t count = std::min(run.count, num_left);
    const bool goes_on =
        piece.count > 0 && piece.source == run.source && piece.first + piece.count == run.first;
    if (goes_on) {
      piece.count += count;
    } else {
      close_piece();
      piece = {run.source, run.first, count};
    }
    rest.advance(count);
    num_left -= count;
    if (num_left > 0) continue;
    close_piece();
    hashes.push_back(hash);
    num_left = rule.num_tokens;
    if (std::ssize(hashes) == rule.max_blocks) return;
  }
  if (num_left == rule.num_tokens || !rule.keeps_last_part) return;
  close_piece();
  hashes.push_back(hash);
}

SentBlocks::SentBlocks(std::size_t num_replicas, const Limits& limits)
    : limits_(limits), by_use_of_(num_replicas) {}

void SentBlocks::match(std::span<const std::uint64_t> blocks, TimeNs now,
                       std::span<std::int64_t> matched) {
  std::fill(matched.begin(), matched.end(), 0);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto found = blocks_.find(blocks[i]);
    if (found == blocks_.end()) return;
    if (limits_.max_age > 0 && now - found->second.used_at > limits_.max_age) return drop(found);
    bool is_any = false;
    for (const Holder& holder : found->second.holders) {
      std::int64_t& own = matched[static_cast<std::size_t>(holder.replica)];
      if (own != static_cast<std::int64_t>(i)) continue;
      ++own;
      is_any = true;
    }
    if (!is_any) return;
    if (limits_.max_blocks > 0) use(found, now);
  }
}

void SentBlocks::use(Blocks::iterator block, TimeNs now) {
  if (limits_.max_blocks > 0) {
    by_use_.erase(block->second.used);
    by_use_[num_uses_] = block->first;
  }
  block->second.used = num_uses_++;
  block->second.used_at = now;
}

void SentBlocks::add(std::span<const std::uint64_t> blocks, ReplicaId replica, TimeNs now) {
  auto& own_uses = by_use_of_[static_cast<std::size_t>(replica)];
  for (const std::uint64_t hash : blocks) {
    const auto block = blocks_.try_emplace(hash).first;
    use(block, now);
    std::vector<Holder>& holders = block->second.holders;
    auto holder = std::find_if(holders.begin(), holders.end(),
                               [replica](const Holder& one) { return one.replica == replica; });
    if (holder == holders.end()) {
      holders.push_back({replica, 0});
      holder = std::prev(holders.end());
    } else {
      own_uses.erase(holder->used);
    }
    holder->used = block->second.used;
    own_uses[holder->used] = hash;
  }
  const std::int64_t most = limits_.max_blocks_per_replica;
  while (most > 0 && std::ssize(own_uses) > most) {
    drop_holder(blocks_.find(own_uses.begin()->second), replica);
  }
  while (limits_.max_blocks > 0 && std::ssize(blocks_) > limits_.max_blocks) {
    drop(blocks_.find(by_use_.begin()->second));
  }
}

void SentBlocks::drop(Blocks::iterator block) {
  for (const Holder& holder : block->second.holders) {
    by_use_of_[static_cast<std::size_t>(holder.replica)].erase(holder.used);
  }
  if (limits_.max_blocks > 0) by_use_.erase(block->second.used);
  blocks_.erase(block);
}

void SentBlocks::drop_holder(Blocks::iterator block, ReplicaId replica) {
  std::vector<Holder>& holders = block->second.holders;
  const auto holder = std::find_if(holders.begin(), holders.end(),
                                   [replica](const Holder& one) { return one.replica == replica; });
  by_use_of_[static_cast<std::size_t>(replica)].erase(holder->used);
  holders.erase(holder);
  if (holders.empty()) drop(block);
}

void SentBlocks::forget(ReplicaId replica) {
  auto& own_uses = by_use_of_[static_cast<std::size_t>(replica)];
  while (!own_uses.empty()) drop_holder(blocks_.find(own_uses.begin()->second), replica);
}

}  // namespace metronome
