// SPDX-License-Identifier: Apache-2.0
// The blocks of prompts that a router sent, by replica: a table of hashes that forgets the blocks
// which were used longest ago.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/base/types.h"
#include "fleet/content_run.h"
#include "fleet/router.h"

namespace metronome {

struct BlockRule {
  std::int64_t num_tokens = 16;  // of a block
  std::int64_t max_blocks = 0;   // of a prompt; 0: all
  bool keeps_last_part = true;   // a last block with fewer tokens counts
};

// A hash for each block of a prompt, of all tokens up to its end.
void hash_blocks(std::span<const ContentRun> prompt, const BlockRule& rule,
                 std::vector<std::uint64_t>& hashes);

class SentBlocks {
 public:
  struct Limits {
    std::int64_t max_blocks = 0;  // of all; 0: no limit, also below
    std::int64_t max_blocks_per_replica = 0;
    TimeNs max_age = 0;  // since it was last used
  };
  SentBlocks(std::size_t num_replicas, const Limits& limits);

  // For each replica how many of the first blocks were sent to it without a gap. `matched` has a
  // place for each replica.
  void match(std::span<const std::uint64_t> blocks, TimeNs now, std::span<std::int64_t> matched);
  void add(std::span<const std::uint64_t> blocks, ReplicaId replica, TimeNs now);
  void forget(ReplicaId replica);

 private:
  struct Holder {
    ReplicaId replica = 0;
    std::uint64_t used = 0;  // number of the use
  };
  struct Block {
    std::vector<Holder> holders;
    std::uint64_t used = 0;
    TimeNs used_at = 0;
  };
  using Blocks = std::map<std::uint64_t, Block>;

  void use(Blocks::iterator block, TimeNs now);
  void drop(Blocks::iterator block);
  void drop_holder(Blocks::iterator block, ReplicaId replica);

  Limits limits_;
  Blocks blocks_;                                                  // by hash
  std::map<std::uint64_t, std::uint64_t> by_use_;                  // hashes; with max_blocks
  std::vector<std::map<std::uint64_t, std::uint64_t>> by_use_of_;  // of each replica, likewise
  std::uint64_t num_uses_ = 1;                                     // 0: none
};

}  // namespace metronome
