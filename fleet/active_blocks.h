// SPDX-License-Identifier: Apache-2.0
// The KV blocks of the prompts of requests that a router sent and that have not ended, by replica:
// a radix tree of chains of hashes. A hash names all that is before it, so chains that have one in
// common have all before it in common.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "fleet/router.h"

namespace metronome {

class ActiveBlocks {
 public:
  using NodeId = std::int32_t;
  static constexpr NodeId kRoot = 0;

  explicit ActiveBlocks(std::size_t num_replicas) : nodes_(1), num_blocks_(num_replicas, 0) {}

  // Different blocks of the replica's requests.
  std::int64_t num_blocks(ReplicaId replica) const {
    return num_blocks_[static_cast<std::size_t>(replica)];
  }
  // For each replica how many of these blocks its requests have. `known` has a place for each.
  void count_known(std::span<const std::uint64_t> blocks, std::span<std::int64_t> known) const;

  // A request with these blocks. Returns what remove() needs.
  NodeId add(std::span<const std::uint64_t> blocks, ReplicaId replica);
  // A request that add() returned `end` for. Splitting a node keeps the lower half's id.
  void remove(NodeId end, ReplicaId replica);

 private:
  struct User {
    ReplicaId replica = 0;
    std::int32_t count = 0;
  };
  struct Node {
    std::vector<std::uint64_t> blocks;
    NodeId parent = kRoot;
    std::int32_t num_children = 0;
    std::vector<User> users;  // each with a count above 0
  };
  Node& node(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  // The node that begins with a block; kRoot: none does.
  NodeId begins_with(std::uint64_t block) const;
  NodeId create(NodeId parent, std::span<const std::uint64_t> blocks);
  NodeId split(NodeId id, std::size_t num_blocks);
  void use(NodeId id, ReplicaId replica);

  std::vector<Node> nodes_;
  std::vector<NodeId> spare_;
  std::map<std::uint64_t, NodeId> first_;  // by the first block of a node
  std::vector<std::int64_t> num_blocks_;   // by replica
};

}  // namespace metronome
