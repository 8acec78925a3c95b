// SPDX-License-Identifier: Apache-2.0
// The replicas whose KV caches hold a block, as a router hears of it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fleet/router.h"

namespace metronome {

class BlockIndex {
 public:
  // See Router.
  void stored(ReplicaId replica, std::span<const std::uint64_t> blocks, std::size_t first);
  void removed(ReplicaId replica, std::uint64_t block);
  void forget(ReplicaId replica);

  // For each replica how many of the first blocks it holds without a gap. `overlaps` has a place
  // for each replica.
  void count_overlaps(std::span<const std::uint64_t> blocks,
                      std::span<std::int64_t> overlaps) const;

 private:
  struct Block {
    std::vector<ReplicaId> holders;
    std::vector<std::uint64_t> next;  // blocks that continue it
  };
  std::map<std::uint64_t, Block> blocks_;
};

}  // namespace metronome
