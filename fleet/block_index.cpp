// SPDX-License-Identifier: Apache-2.0
#include "fleet/block_index.h"

#include <algorithm>

namespace metronome {

void BlockIndex::stored(ReplicaId replica, std::span<const std::uint64_t> blocks,
                        std::size_t first) {
  for (std::size_t i = first; i < blocks.size(); ++i) {
    const auto [found, is_new] = blocks_.try_emplace(blocks[i]);
    if (is_new && i > 0) blocks_[blocks[i - 1]].next.push_back(blocks[i]);
    std::vector<ReplicaId>& holders = blocks_[blocks[i]].holders;
    if (std::find(holders.begin(), holders.end(), replica) == holders.end()) {
      holders.push_back(replica);
    }
  }
}

void BlockIndex::removed(ReplicaId replica, std::uint64_t block) {
  std::vector<std::uint64_t> gone = {block};
  for (std::size_t i = 0; i < gone.size(); ++i) {
    const auto found = blocks_.find(gone[i]);
    if (found == blocks_.end() || std::erase(found->second.holders, replica) == 0) continue;
    gone.insert(gone.end(), found->second.next.begin(), found->second.next.end());
  }
}

void BlockIndex::forget(ReplicaId replica) {
  for (auto& [hash, block] : blocks_) std::erase(block.holders, replica);
}

void BlockIndex::count_overlaps(std::span<const std::uint64_t> blocks,
                                std::span<std::int64_t> overlaps) const {
  std::fill(overlaps.begin(), overlaps.end(), 0);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto found = blocks_.find(blocks[i]);
    if (found == blocks_.end()) return;
    bool is_any = false;
    for (const ReplicaId holder : found->second.holders) {
      std::int64_t& overlap = overlaps[static_cast<std::size_t>(holder)];
      if (overlap != static_cast<std::int64_t>(i)) continue;
      ++overlap;
      is_any = true;
    }
    if (!is_any) return;
  }
}

}  // namespace metronome
