// SPDX-License-Identifier: Apache-2.0
#include "fleet/prefix_tree.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <utility>

namespace metronome {

PrefixTree::PrefixTree(std::size_t num_replicas) : nodes_(1), num_tokens_(num_replicas, 0) {}

std::vector<PrefixTree::NodeId>::const_iterator PrefixTree::place_of(
    NodeId parent, const ContentRun& first) const {
  const std::vector<NodeId>& children = node(parent).children;
  return std::partition_point(children.begin(), children.end(), [&](NodeId child) {
    const ContentRun& own = node(child).runs.front();
    return std::pair(own.source, own.first) < std::pair(first.source, first.first);
  });
}

PrefixTree::NodeId PrefixTree::child_of(NodeId parent, const ContentRun& first) const {
  const auto found = place_of(parent, first);
  if (found == node(parent).children.end()) return kRoot;
  const ContentRun& own = node(*found).runs.front();
  return own.source == first.source && own.first == first.first ? *found : kRoot;
}

bool PrefixTree::is_held(NodeId id, ReplicaId replica) const {
  const std::vector<Use>& uses = node(id).uses;
  return std::any_of(uses.begin(), uses.end(),
                     [replica](const Use& use) { return use.replica == replica; });
}

// Requires that the replica holds it.
std::int64_t& PrefixTree::last_use(NodeId id, ReplicaId replica) {
  std::vector<Use>& uses = node(id).uses;
  const auto found = std::find_if(uses.begin(), uses.end(),
                                  [replica](const Use& use) { return use.replica == replica; });
  return found->at;
}

void PrefixTree::hold(NodeId id, ReplicaId replica) {
  if (is_held(id, replica)) return;
  node(id).uses.push_back({replica, 0});
  num_tokens_[static_cast<std::size_t>(replica)] += node(id).num_tokens;
}

PrefixTree::Match PrefixTree::match(std::span<const ContentRun> prompt) {
  Match match;
  NodeId at = kRoot;
  for (ContentCursor rest(prompt); !rest.at_end();) {
    const NodeId child = child_of(at, rest.rest());
    if (child == kRoot) break;
    at = child;
    ContentCursor own(node(at).runs);
    match.num_tokens += advance_common(rest, own);
    if (!own.at_end()) break;
  }
  const std::int64_t use_number = num_uses_++;
  if (at == kRoot) return match;
  Node& deepest = node(at);
  // The creator of a node may have lost it.
  if (!is_held(at, deepest.owner)) deepest.owner = deepest.uses.front().replica;
  match.owner = deepest.owner;
  if (use_number % 8 == 0) last_use(at, match.owner) = use_number;
  return match;
}

void PrefixTree::match_each(std::span<const ContentRun> prompt,
                            std::span<std::int64_t> matched) const {
  std::fill(matched.begin(), matched.end(), 0);
  NodeId at = kRoot;
  for (ContentCursor rest(prompt); !rest.at_end();) {
    const NodeId child = child_of(at, rest.rest());
    if (child == kRoot) return;
    at = child;
    ContentCursor own(node(at).runs);
    const std::int64_t common = advance_common(rest, own);
    for (const Use& use : node(at).uses) matched[static_cast<std::size_t>(use.replica)] += common;
    if (!own.at_end()) return;
  }
}

PrefixTree::NodeId PrefixTree::add(NodeId parent, ContentCursor rest, ReplicaId replica) {
  NodeId id = static_cast<NodeId>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
  } else {
    id = unused_.back();
    unused_.pop_back();
    node(id) = {};
  }
  node(parent).children.insert(place_of(parent, rest.rest()), id);
  Node& added = node(id);
  while (!rest.at_end()) {
    added.runs.push_back(rest.rest());
    rest.advance(rest.rest().count);
  }
  added.num_tokens = count_tokens(added.runs);
  added.parent = parent;
  added.owner = replica;
  return id;
}

PrefixTree::NodeId PrefixTree::split(NodeId id, std::int64_t num_tokens) {
  std::vector<ContentRun> above;
  std::vector<ContentRun> below;
  ContentCursor rest(node(id).runs);
  for (std::int64_t left = num_tokens; !rest.at_end();) {
    ContentRun run = rest.rest();
    if (left > 0) run.count = std::min(run.count, left);
    (left > 0 ? above : below).push_back(run);
    left -= std::min(left, run.count);
    rest.advance(run.count);
  }
  const NodeId parent = node(id).parent;
  std::erase(node(parent).children, id);
  const NodeId upper = add(parent, ContentCursor(above), node(id).owner);
  node(upper).uses = node(id).uses;
  node(upper).children.push_back(id);
  node(id).parent = upper;
  node(id).num_tokens -= num_tokens;
  node(id).runs = std::move(below);
  return upper;
}

void PrefixTree::insert(std::span<const ContentRun> prompt, ReplicaId replica) {
  NodeId at = kRoot;
  for (ContentCursor rest(prompt); !rest.at_end();) {
    const NodeId child = child_of(at, rest.rest());
    if (child == kRoot) {
      at = add(at, rest, replica);
      hold(at, replica);
      break;
    }
    at = child;
    ContentCursor own(node(at).runs);
    const std::int64_t common = advance_common(rest, own);
    if (!own.at_end()) at = split(at, common);
    hold(at, replica);
  }
  const std::int64_t use_number = num_uses_++;
  if (at != kRoot) last_use(at, replica) = use_number;
}

bool PrefixTree::is_leaf_of(NodeId id, ReplicaId replica) const {
  const std::vector<NodeId>& children = node(id).children;
  return is_held(id, replica) && std::none_of(children.begin(), children.end(), [&](NodeId child) {
           return is_held(child, replica);
         });
}

void PrefixTree::drop(NodeId id, ReplicaId replica) {
  Node& dropped = node(id);
  num_tokens_[static_cast<std::size_t>(replica)] -= dropped.num_tokens;
  std::erase_if(dropped.uses, [replica](const Use& use) { return use.replica == replica; });
  if (!dropped.uses.empty() || !dropped.children.empty()) return;
  std::erase(node(dropped.parent).children, id);
  unused_.push_back(id);
}

std::vector<PrefixTree::NodeId> PrefixTree::live_nodes() const {
  std::vector<NodeId> found = node(kRoot).children;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::vector<NodeId>& children = node(found[i]).children;
    found.insert(found.end(), children.begin(), children.end());
  }
  return found;
}

void PrefixTree::evict(std::int64_t max_tokens) {
  if (std::all_of(num_tokens_.begin(), num_tokens_.end(),
                  [max_tokens](std::int64_t held) { return held <= max_tokens; }))
    return;
  using Leaf = std::tuple<std::int64_t, NodeId, ReplicaId>;  // by its last use
  std::priority_queue<Leaf, std::vector<Leaf>, std::greater<>> leaves;
  for (const NodeId id : live_nodes()) {
    for (const Use& use : node(id).uses) {
      if (is_leaf_of(id, use.replica)) leaves.emplace(use.at, id, use.replica);
    }
  }
  while (!leaves.empty()) {
    const auto [at, id, replica] = leaves.top();
    leaves.pop();
    if (num_tokens(replica) <= max_tokens) continue;
    const NodeId parent = node(id).parent;
    drop(id, replica);
    if (parent != kRoot && is_leaf_of(parent, replica)) {
      leaves.emplace(last_use(parent, replica), parent, replica);
    }
  }
}

void PrefixTree::remove(ReplicaId replica) {
  const std::vector<NodeId> all = live_nodes();
  // Children come after their parents.
  for (auto id = all.rbegin(); id != all.rend(); ++id) {
    if (is_held(*id, replica)) drop(*id, replica);
  }
}

}  // namespace metronome
