// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kv/radix_tree.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"

namespace metronome {

RadixTree::RadixTree(BlockPool& pool) : pool_(pool) {
  entries_.emplace_back();
  entries_[kRoot].num_locks = 1;
  entries_[kRoot].touched = tick();
}

// kRoot: the tree has no node that begins with this block of the chain.
RadixTree::Node RadixTree::child_at(const HashChain& chain, std::int64_t position) const {
  const auto found = first_.find(chain[static_cast<std::size_t>(position)]);
  return found == first_.end() ? kRoot : found->second;
}

// The leading blocks of an entry that the chain has, up to its first `num_blocks`. A hash names all
// that is before it, so equal ones come first.
std::int64_t RadixTree::num_equal(const Entry& entry, const HashChain& chain,
                                  std::int64_t num_blocks) const {
  std::int64_t low = 1;  // its first block is equal
  std::int64_t high = std::min<std::int64_t>(std::ssize(entry.key), num_blocks - entry.begin);
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    const bool is_equal = entry.key[static_cast<std::size_t>(middle - 1)] ==
                          chain[static_cast<std::size_t>(entry.begin + middle - 1)];
    (is_equal ? low : high) = is_equal ? middle : middle - 1;
  }
  return low;
}

// match() without touching.
RadixTree::Match RadixTree::find(const HashChain& chain, std::int64_t num_blocks) {
  Match match;
  while (match.num_blocks < num_blocks) {
    const Node child = child_at(chain, match.num_blocks);
    if (child == kRoot) break;
    const std::int64_t num_same = num_equal(entries_[child], chain, num_blocks);
    const bool is_whole = num_same == std::ssize(entries_[child].key);
    match.node = is_whole ? child : split(child, num_same);
    match.num_blocks += num_same;
    if (!is_whole) break;
  }
  return match;
}

std::int64_t RadixTree::count_cached(const HashChain& chain) const {
  std::int64_t num_blocks = 0;
  while (num_blocks < std::ssize(chain)) {
    const Node child = child_at(chain, num_blocks);
    if (child == kRoot) break;
    const std::int64_t num_same = num_equal(entries_[child], chain, std::ssize(chain));
    num_blocks += num_same;
    if (num_same < std::ssize(entries_[child].key)) break;
  }
  return num_blocks;
}

RadixTree::Match RadixTree::match(const HashChain& chain, std::int64_t num_blocks) {
  const Match match = find(chain, num_blocks);
  std::int64_t time = tick();
  for (Node node = match.node;; node = entries_[node].parent) {
    touch(node, time--);
    if (node == kRoot) return match;
  }
}

void RadixTree::begin_pass() {
  ++num_passes_;
  std::sort(added_.begin(), added_.end());
}

// A node keeps its end as long as it exists. If it still does, the last pass touched it: another
// one that has its place now was not there. A longer match needs a new leaf behind that end.
bool RadixTree::holds(const Known& known) const {
  if (!known.is_found || added_.size() == kMaxAdded) return false;
  if (known.match.node != kRoot) {
    const Entry& entry = entries_[known.match.node];
    if (entry.pass != num_passes_ - 1 || entry.key.empty() || entry.key.back() != known.last) {
      return false;
    }
  }
  return known.next == kNoHash || !std::binary_search(added_.begin(), added_.end(), known.next);
}

void RadixTree::follow(const HashChain& chain, std::int64_t num_blocks, Known& known) {
  known.match = find(chain, num_blocks);
  const auto end = static_cast<std::size_t>(known.match.num_blocks);
  known.last = end > 0 ? chain[end - 1] : kNoHash;
  known.next = known.match.num_blocks < num_blocks ? chain[end] : kNoHash;
  known.is_found = true;
  follow(known);
}

// The last one that touches a node decides, so the walk goes backwards.
void RadixTree::end_pass(const std::vector<const Known*>& all) {
  added_.clear();
  for (auto known = all.rbegin(); known != all.rend(); ++known) {
    std::int64_t time = (*known)->time;
    for (Node node = (*known)->match.node; entries_[node].pass != num_passes_;
         node = entries_[node].parent) {
      entries_[node].pass = num_passes_;
      if (time > entries_[node].touched) touch(node, time);  // unless it was split later
      --time;
      if (node == kRoot) break;
    }
  }
}

void RadixTree::append_blocks(Node node, BlockTable& blocks) const {
  const std::size_t begin = blocks.size();
  blocks.resize(begin + static_cast<std::size_t>(entries_[node].end()));
  for (; node != kRoot; node = entries_[node].parent) {
    const Entry& entry = entries_[node];
    std::copy(entry.blocks.begin(), entry.blocks.end(),
              blocks.begin() + static_cast<std::ptrdiff_t>(begin) +
                  static_cast<std::ptrdiff_t>(entry.begin));
  }
}

RadixTree::Node RadixTree::insert(const HashChain& chain, std::int64_t num_blocks,
                                  BlockTable& table, std::int64_t num_owned) {
  touch(kRoot, tick());
  BlockTable duplicates;
  Node node = kRoot;
  std::int64_t position = 0;
  while (position < num_blocks) {
    const Node child = child_at(chain, position);
    if (child == kRoot) break;
    touch(child, tick());
    const std::int64_t num_same = num_equal(entries_[child], chain, num_blocks);
    const bool is_whole = num_same == std::ssize(entries_[child].key);
    node = is_whole ? child : split(child, num_same);
    const Entry& entry = entries_[node];
    for (std::int64_t i = std::max(position, num_owned); i < entry.end(); ++i) {
      const BlockId cached = entry.blocks[static_cast<std::size_t>(i - entry.begin)];
      duplicates.push_back(std::exchange(table[static_cast<std::size_t>(i)], cached));
    }
    position = entry.end();
  }
  pool_.release(duplicates);
  return position == num_blocks ? node : add(node, chain, num_blocks, table);
}

RadixTree::Node RadixTree::allocate_entry() {
  if (spare_.empty()) {
    entries_.emplace_back();
    return static_cast<Node>(entries_.size() - 1);
  }
  const Node node = spare_.back();
  spare_.pop_back();
  return node;
}

// Makes the first blocks of a node a node of their own, its parent. Returns it.
RadixTree::Node RadixTree::split(Node node, std::int64_t num_blocks) {
  const Node upper = allocate_entry();
  Entry& above = entries_[upper];
  Entry& below = entries_[node];
  const auto middle = static_cast<std::ptrdiff_t>(num_blocks);
  above.parent = below.parent;
  above.begin = below.begin;
  above.key.assign(below.key.begin(), below.key.begin() + middle);
  above.blocks.assign(below.blocks.begin(), below.blocks.begin() + middle);
  above.num_locks = below.num_locks;
  above.age = below.age;
  above.num_children = 1;
  below.parent = upper;
  below.begin += num_blocks;
  below.key.erase(below.key.begin(), below.key.begin() + middle);
  below.blocks.erase(below.blocks.begin(), below.blocks.begin() + middle);
  first_[above.key.front()] = upper;
  first_[below.key.front()] = node;
  touch(upper, tick());
  touch(node, tick());
  return upper;
}

// A leaf below `parent` with the rest of the chain's first `num_blocks` blocks.
RadixTree::Node RadixTree::add(Node parent, const HashChain& chain, std::int64_t num_blocks,
                               const BlockTable& table) {
  const Node node = allocate_entry();
  Entry& entry = entries_[node];
  const auto begin = static_cast<std::ptrdiff_t>(entries_[parent].end());
  const auto end = static_cast<std::ptrdiff_t>(num_blocks);
  entry.parent = parent;
  entry.begin = begin;
  entry.key.assign(chain.begin() + begin, chain.begin() + end);
  entry.blocks.assign(table.begin() + begin, table.begin() + end);
  num_evictable_ += end - begin;
  entry.age = ++num_added_;
  if (added_.size() < kMaxAdded) added_.push_back(entry.key.front());
  first_[entry.key.front()] = node;
  ++entries_[parent].num_children;
  list_leaf(parent);
  touch(node, tick());
  list_leaf(node);
  return node;
}

void RadixTree::lock(Node node) {
  for (; node != kRoot; node = entries_[node].parent) {
    Entry& entry = entries_[node];
    if (entry.num_locks++ > 0) continue;
    num_evictable_ -= std::ssize(entry.key);
    list_leaf(node);
  }
}

void RadixTree::unlock(Node node) {
  for (; node != kRoot; node = entries_[node].parent) {
    Entry& entry = entries_[node];
    METRONOME_CHECK(entry.num_locks > 0, "only locked nodes are unlocked");
    if (--entry.num_locks > 0) continue;
    num_evictable_ += std::ssize(entry.key);
    list_leaf(node);
  }
}

std::int64_t RadixTree::num_lockable_blocks(Node node) const {
  std::int64_t num_blocks = 0;
  for (; node != kRoot && entries_[node].num_locks == 0; node = entries_[node].parent) {
    num_blocks += std::ssize(entries_[node].key);
  }
  return num_blocks;
}

std::vector<std::size_t> RadixTree::depth_first_order(const std::vector<Node>& ends) const {
  std::vector<std::int64_t> weights(entries_.size(), 0);
  std::vector<std::vector<Node>> children(entries_.size());
  std::vector<std::int64_t> counts(entries_.size(), 0);
  for (const Node node : ends) ++counts[node];
  for (Node end = 0; end < counts.size(); ++end) {
    if (counts[end] == 0) continue;
    for (Node node = end; node != kRoot; node = entries_[node].parent) {
      if (weights[node] == 0) children[entries_[node].parent].push_back(node);
      weights[node] += counts[end];
    }
  }
  // A node before its children, the last child first: the walk backwards.
  std::vector<std::int64_t> turns(entries_.size(), 0);
  std::int64_t turn = 0;
  for (std::vector<Node> stack = {kRoot}; !stack.empty();) {
    const Node node = stack.back();
    stack.pop_back();
    turns[node] = --turn;
    std::sort(children[node].begin(), children[node].end(), [&](Node a, Node b) {
      return std::pair(-weights[a], entries_[a].age) < std::pair(-weights[b], entries_[b].age);
    });
    stack.insert(stack.end(), children[node].begin(), children[node].end());
  }
  std::vector<std::size_t> order(ends.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto is_before = [&](std::size_t a, std::size_t b) {
    return turns[ends[a]] < turns[ends[b]];
  };
  if (!std::is_sorted(order.begin(), order.end(), is_before)) {
    std::stable_sort(order.begin(), order.end(), is_before);
  }
  return order;
}

std::int64_t RadixTree::evict(std::int64_t num_blocks) {
  std::int64_t num_evicted = 0;
  while (num_evicted < num_blocks && !leaves_.empty()) {
    const Node leaf = leaves_.begin()->second;
    num_evicted += std::ssize(entries_[leaf].key);
    remove(leaf);
  }
  return num_evicted;
}

void RadixTree::remove(Node leaf) {
  Entry& entry = entries_[leaf];
  leaves_.erase({entry.touched, leaf});
  num_evictable_ -= std::ssize(entry.key);
  first_.erase(entry.key.front());
  pool_.release(entry.blocks);
  const Node parent = entry.parent;
  entry = {};
  spare_.push_back(leaf);
  --entries_[parent].num_children;
  list_leaf(parent);
}

void RadixTree::touch(Node node, std::int64_t time) {
  Entry& entry = entries_[node];
  if (entry.is_listed) leaves_.erase({entry.touched, node});
  entry.touched = time;
  if (entry.is_listed) leaves_.insert({time, node});
}

// Lists the node among the leaves that can be evicted, or takes it from the list.
void RadixTree::list_leaf(Node node) {
  Entry& entry = entries_[node];
  const bool is_leaf = node != kRoot && entry.num_children == 0 && entry.num_locks == 0;
  if (is_leaf == entry.is_listed) return;
  entry.is_listed = is_leaf;
  if (is_leaf) {
    leaves_.insert({entry.touched, node});
  } else {
    leaves_.erase({entry.touched, node});
  }
}

BlockTable RadixTree::blocks() const {
  BlockTable blocks;
  for (const auto& [hash, node] : first_) {
    blocks.insert(blocks.end(), entries_[node].blocks.begin(), entries_[node].blocks.end());
  }
  return blocks;
}

void RadixTree::check_integrity() const {
  std::int64_t num_evictable = 0;
  std::size_t num_leaves = 0;
  std::vector<std::int64_t> num_children(entries_.size(), 0);
  for (const auto& [hash, node] : first_) {
    const Entry& entry = entries_[node];
    METRONOME_CHECK(!entry.key.empty() && entry.key.front() == hash,
                    "a node is found by another one's hash");
    METRONOME_CHECK(entry.key.size() == entry.blocks.size(), "a node has a block for each hash");
    METRONOME_CHECK(entry.begin == entries_[entry.parent].end(), "a node follows its parent");
    METRONOME_CHECK(entry.num_locks <= entries_[entry.parent].num_locks || entry.parent == kRoot,
                    "a locked node has an unlocked parent");
    ++num_children[entry.parent];
    if (entry.num_locks == 0) num_evictable += std::ssize(entry.key);
    const bool is_leaf = entry.num_locks == 0 && entry.num_children == 0;
    METRONOME_CHECK(is_leaf == (leaves_.count({entry.touched, node}) > 0),
                    "the leaves that can be evicted are listed");
    num_leaves += is_leaf ? 1 : 0;
  }
  for (std::size_t node = 0; node < entries_.size(); ++node) {
    METRONOME_CHECK(entries_[node].num_children == num_children[node], "children are miscounted");
  }
  METRONOME_CHECK(num_leaves == leaves_.size(), "a node that is gone is listed as a leaf");
  METRONOME_CHECK(num_evictable == num_evictable_, "evictable blocks are miscounted");
}

}  // namespace metronome
