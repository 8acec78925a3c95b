// SPDX-License-Identifier: Apache-2.0
#include "fleet/active_blocks.h"

#include <algorithm>

namespace metronome {
namespace {

// The leading blocks in which both agree; the first ones do.
std::size_t num_equal(std::span<const std::uint64_t> a, std::span<const std::uint64_t> b) {
  std::size_t low = 1;
  std::size_t high = std::min(a.size(), b.size());
  while (low < high) {
    const std::size_t middle = low + (high - low + 1) / 2;
    if (a[middle - 1] == b[middle - 1]) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace

ActiveBlocks::NodeId ActiveBlocks::begins_with(std::uint64_t block) const {
  const auto found = first_.find(block);
  return found == first_.end() ? kRoot : found->second;
}

void ActiveBlocks::count_known(std::span<const std::uint64_t> blocks,
                               std::span<std::int64_t> known) const {
  std::fill(known.begin(), known.end(), 0);
  while (!blocks.empty()) {
    const NodeId id = begins_with(blocks.front());
    if (id == kRoot) return;
    const std::size_t num_same = num_equal(node(id).blocks, blocks);
    for (const User& user : node(id).users) {
      known[static_cast<std::size_t>(user.replica)] += static_cast<std::int64_t>(num_same);
    }
    if (num_same < node(id).blocks.size()) return;
    blocks = blocks.subspan(num_same);
  }
}

ActiveBlocks::NodeId ActiveBlocks::create(NodeId parent, std::span<const std::uint64_t> blocks) {
  auto id = static_cast<NodeId>(nodes_.size());
  if (spare_.empty()) {
    nodes_.emplace_back();
  } else {
    id = spare_.back();
    spare_.pop_back();
  }
  node(id).blocks.assign(blocks.begin(), blocks.end());
  node(id).parent = parent;
  ++node(parent).num_children;
  first_[blocks.front()] = id;
  return id;
}

// Its first blocks move into a new node above it, which is returned.
ActiveBlocks::NodeId ActiveBlocks::split(NodeId id, std::size_t num_blocks) {
  const std::vector<std::uint64_t> all = node(id).blocks;
  const NodeId parent = node(id).parent;
  const NodeId upper = create(parent, std::span(all).first(num_blocks));
  --node(parent).num_children;
  node(upper).users = node(id).users;
  node(upper).num_children = 1;
  node(id).parent = upper;
  node(id).blocks.erase(node(id).blocks.begin(),
                        node(id).blocks.begin() + static_cast<std::ptrdiff_t>(num_blocks));
  first_[node(id).blocks.front()] = id;
  return upper;
}

void ActiveBlocks::use(NodeId id, ReplicaId replica) {
  for (User& user : node(id).users) {
    if (user.replica != replica) continue;
    ++user.count;
    return;
  }
  node(id).users.push_back({replica, 1});
  num_blocks_[static_cast<std::size_t>(replica)] += std::ssize(node(id).blocks);
}

ActiveBlocks::NodeId ActiveBlocks::add(std::span<const std::uint64_t> blocks, ReplicaId replica) {
  NodeId at = kRoot;
  while (!blocks.empty()) {
    NodeId id = begins_with(blocks.front());
    if (id == kRoot) id = create(at, blocks);
    const std::size_t num_same = num_equal(node(id).blocks, blocks);
    if (num_same < node(id).blocks.size()) id = split(id, num_same);
    use(id, replica);
    at = id;
    blocks = blocks.subspan(num_same);
  }
  return at;
}

void ActiveBlocks::remove(NodeId end, ReplicaId replica) {
  for (NodeId id = end; id != kRoot;) {
    Node& left = node(id);
    const NodeId parent = left.parent;
    const auto user = std::find_if(left.users.begin(), left.users.end(),
                                   [replica](const User& one) { return one.replica == replica; });
    if (--user->count == 0) {
      num_blocks_[static_cast<std::size_t>(replica)] -= std::ssize(left.blocks);
      left.users.erase(user);
    }
    if (left.users.empty() && left.num_children == 0) {
      first_.erase(left.blocks.front());
      left.blocks.clear();
      --node(parent).num_children;
      spare_.push_back(id);
    }
    id = parent;
  }
}

}  // namespace metronome
