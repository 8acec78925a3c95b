// SPDX-License-Identifier: Apache-2.0
// The prompts that a router has sent, as one radix tree for all replicas. A node's tokens were sent
// to its holders; a node also has the replica that created it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fleet/content_run.h"
#include "fleet/router.h"

namespace metronome {

class PrefixTree {
 public:
  explicit PrefixTree(std::size_t num_replicas);

  struct Match {
    std::int64_t num_tokens = 0;
    ReplicaId owner = -1;  // of the deepest node that the prompt touches; -1: it touches none
  };
  // The longest prefix of the prompt that was sent to any replica. One match in eight counts as a
  // use of the node by its owner.
  Match match(std::span<const ContentRun> prompt);

  // For each replica the tokens of the longest common prefix with a prompt that was sent to it.
  // `matched` has a place for each replica.
  void match_each(std::span<const ContentRun> prompt, std::span<std::int64_t> matched) const;

  void insert(std::span<const ContentRun> prompt, ReplicaId replica);

  // Takes the least recently used leaves from every replica that holds more than `max_tokens`.
  void evict(std::int64_t max_tokens);
  // Takes all from a replica.
  void remove(ReplicaId replica);

  std::int64_t num_tokens(ReplicaId replica) const {
    return num_tokens_[static_cast<std::size_t>(replica)];
  }

 private:
  using NodeId = std::int32_t;
  static constexpr NodeId kRoot = 0;

  struct Use {
    ReplicaId replica = 0;
    std::int64_t at = 0;  // 0: not as the end of a prompt
  };
  struct Node {
    std::vector<ContentRun> runs;
    std::int64_t num_tokens = 0;
    NodeId parent = kRoot;
    ReplicaId owner = -1;
    std::vector<Use> uses;         // one for each holder
    std::vector<NodeId> children;  // sorted by their first token, in which they differ
  };
  Node& node(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes_[static_cast<std::size_t>(id)]; }
  // The place of the child that begins with this token, or where it would be.
  std::vector<NodeId>::const_iterator place_of(NodeId parent, const ContentRun& first) const;
  // kRoot: there is none.
  NodeId child_of(NodeId parent, const ContentRun& first) const;
  bool is_held(NodeId id, ReplicaId replica) const;
  std::int64_t& last_use(NodeId id, ReplicaId replica);
  void hold(NodeId id, ReplicaId replica);
  // The node's first tokens move into a new node above it.
  NodeId split(NodeId id, std::int64_t num_tokens);
  NodeId add(NodeId parent, ContentCursor rest, ReplicaId replica);
  bool is_leaf_of(NodeId id, ReplicaId replica) const;
  void drop(NodeId id, ReplicaId replica);
  std::vector<NodeId> live_nodes() const;

  std::vector<Node> nodes_;
  std::vector<NodeId> unused_;
  std::vector<std::int64_t> num_tokens_;  // by replica
  std::int64_t num_uses_ = 0;
};

}  // namespace metronome
