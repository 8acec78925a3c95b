// SPDX-License-Identifier: Apache-2.0
// SGLang's radix tree over the blocks of a pool: a node has the blocks of a run of tokens, its
// children the runs that follow. Cached blocks are evicted by whole leaves, the one first that was
// touched longest ago (SGLang 0.5.23: mem_cache/radix_cache.py).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/engine/kv/block_pool.h"
#include "core/engine/kv/prefix_hash.h"

namespace metronome {

// A key is a chain of block hashes, so a node's first hash names everything up to there and finds
// the node without its parents.
class RadixTree {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;

  // `pool` must outlive the tree, which owns its blocks.
  explicit RadixTree(BlockPool& pool);

  struct Match {
    Node node = kRoot;  // ends where the match ends
    std::int64_t num_blocks = 0;
  };
  // The longest cached prefix of the chain's first `num_blocks` blocks. Splits the node in which it
  // ends, and touches the path: later nodes count as touched later.
  Match match(const HashChain& chain, std::int64_t num_blocks);
  // The blocks of the longest cached prefix of a chain. Changes nothing.
  std::int64_t count_cached(const HashChain& chain) const;
  // A match, and what tells later whether the same chain still ends there.
  struct Known {
    Match match;
    BlockHash last{kNoHash};  // of the match
    BlockHash next{kNoHash};  // of the chain behind it
    std::int64_t time = 0;
    bool is_found = false;
  };
  // Does what match() does for several chains, one after the other: begin_pass(), then follow() for
  // each, then end_pass() with all of them in this order. The chain is needed where holds() says
  // no.
  void begin_pass();
  bool holds(const Known& known) const;
  void follow(const HashChain& chain, std::int64_t num_blocks, Known& known);
  void follow(Known& known) { known.time = tick(); }  // requires holds(known)
  void end_pass(const std::vector<const Known*>& all);

  // Appends the blocks from the root to the end of `node`.
  void append_blocks(Node node, BlockTable& blocks) const;

  // Caches the first `num_blocks` blocks of `table`, which has as many, under the chain: the tree
  // owns them from now on, as it does the first `num_owned` already. Blocks that it has cached take
  // the place of those of the table, which are released. Returns the node that ends there.
  Node insert(const HashChain& chain, std::int64_t num_blocks, BlockTable& table,
              std::int64_t num_owned = 0);

  // Nodes from the root to a locked one are not evicted. Locks are counted.
  void lock(Node node);
  void unlock(Node node);
  // Blocks of unlocked nodes: all that evict() can return to the pool.
  std::int64_t num_evictable_blocks() const { return num_evictable_; }
  // The evictable blocks that lock(node) would keep from eviction.
  std::int64_t num_lockable_blocks(Node node) const;

  // The places of `ends` in the order in which a depth-first walk leaves these nodes. Of siblings
  // the one goes first below which more ends lie, of equal ones the older one. Cost: O(nodes).
  std::vector<std::size_t> depth_first_order(const std::vector<Node>& ends) const;

  // Evicts leaves until `num_blocks` blocks are returned to the pool, or all are locked. Returns
  // how many were: whole leaves, so possibly more.
  std::int64_t evict(std::int64_t num_blocks);

  // The blocks of all nodes, as a table. Cost: O(blocks).
  BlockTable blocks() const;
  // Throws InvariantError unless parents, locks and counts agree. Cost: O(blocks).
  void check_integrity() const;

 private:
  struct Entry {
    Node parent = kRoot;
    std::int64_t begin = 0;  // blocks before it
    HashChain key;
    BlockTable blocks;
    std::int64_t num_locks = 0;
    std::int64_t num_children = 0;
    std::int64_t touched = 0;
    std::int64_t age = 0;    // among its siblings: the oldest has the lowest
    std::int64_t pass = 0;   // the last that touched it
    bool is_listed = false;  // in leaves_
    std::int64_t end() const { return begin + static_cast<std::int64_t>(key.size()); }
  };

  Node allocate_entry();
  Match find(const HashChain& chain, std::int64_t num_blocks);
  Node child_at(const HashChain& chain, std::int64_t position) const;
  std::int64_t num_equal(const Entry& entry, const HashChain& chain, std::int64_t num_blocks) const;
  Node split(Node node, std::int64_t num_blocks);
  Node add(Node parent, const HashChain& chain, std::int64_t num_blocks, const BlockTable& table);
  void remove(Node leaf);
  void touch(Node node, std::int64_t time);
  void list_leaf(Node node);
  std::int64_t tick() { return clock_ += kTick; }

  // Nodes of a path are touched at once; their times differ by less than a tick.
  static constexpr std::int64_t kTick = std::int64_t{1} << 30;
  static constexpr std::size_t kMaxAdded = 4096;

  BlockPool& pool_;
  std::vector<Entry> entries_;                      // by node
  std::vector<Node> spare_;                         // entries without a node
  std::map<BlockHash, Node> first_;                 // by the first hash of a node's key
  std::set<std::pair<std::int64_t, Node>> leaves_;  // that can be evicted, by time
  std::int64_t num_evictable_ = 0;
  std::int64_t clock_ = 0;
  std::int64_t num_added_ = 0;
  std::int64_t num_passes_ = 0;
  // First hashes of the leaves that were added since the last pass; no more than kMaxAdded.
  std::vector<BlockHash> added_;
};

}  // namespace metronome
