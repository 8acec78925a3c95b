// SPDX-License-Identifier: Apache-2.0
#include "models/text/stop_matcher.h"

#include <stdexcept>
#include <utility>

namespace metronome {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)), nodes_(1) {
  for (std::size_t i = 0; i < stops_.size(); ++i) {
    if (stops_[i].empty()) throw std::invalid_argument("a stop string is empty");
    Node node = kRoot;
    for (const char byte : stops_[i]) {
      const Node next = child(node, byte);
      node = next == kNone ? add_child(node, byte) : next;
    }
    std::optional<std::uint32_t>& found = nodes_[at(node)].found;
    if (!found) found = static_cast<std::uint32_t>(i);
  }
  find_fallbacks();
}

StopStrings::Node StopStrings::child(Node node, char byte) const {
  Node next = nodes_[at(node)].child;
  while (next != kNone && nodes_[at(next)].byte != byte) next = nodes_[at(next)].sibling;
  return next;
}

StopStrings::Node StopStrings::add_child(Node node, char byte) {
  const Node added = static_cast<Node>(nodes_.size());
  nodes_.push_back({.byte = byte,
                    .sibling = nodes_[at(node)].child,
                    .num_bytes = nodes_[at(node)].num_bytes + 1});
  nodes_[at(node)].child = added;
  return added;
}

// In order of length: the fallback of a prefix is shorter.
void StopStrings::find_fallbacks() {
  std::vector<Node> queue = {kRoot};
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const Node node = queue[i];
    for (Node next = nodes_[at(node)].child; next != kNone; next = nodes_[at(next)].sibling) {
      Prefix& prefix = nodes_[at(next)];
      if (node != kRoot) prefix.fallback = after(nodes_[at(node)].fallback, prefix.byte);
      const std::optional<std::uint32_t> shorter = nodes_[at(prefix.fallback)].found;
      if (shorter && (!prefix.found || *shorter < *prefix.found)) prefix.found = shorter;
      queue.push_back(next);
    }
  }
}

StopStrings::Node StopStrings::after(Node node, char byte) const {
  while (true) {
    const Node next = child(node, byte);
    if (next != kNone) return next;
    if (node == kRoot) return kRoot;
    node = nodes_[at(node)].fallback;
  }
}

std::string StopMatcher::push(std::string_view text, bool may_stop) {
  if (is_stopped()) return {};
  if (stops_ == nullptr) return std::string(text);
  for (const char byte : text) {
    held_ += byte;
    node_ = stops_->after(node_, byte);
    if (may_stop) found_ = stops_->found(node_);
    if (found_) {
      if (!include_stop_) held_.resize(held_.size() - stops_->all()[*found_].size());
      return std::exchange(held_, {});
    }
  }
  const std::size_t num_kept = include_stop_ ? 0 : stops_->num_bytes(node_);
  std::string out = held_.substr(0, held_.size() - num_kept);
  held_.erase(0, out.size());
  return out;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace metronome
