// SPDX-License-Identifier: Apache-2.0
#include "core/config/config_choice.h"

#include <algorithm>

#include "core/config/config_reader.h"

namespace metronome {
namespace {

std::string join_path(std::string_view above, std::string_view key) {
  std::string path(above);
  if (!path.empty()) path += '.';
  return path.append(key);
}

const ConfigNode* find_choice(const ConfigNode& root, const Choice& choice) {
  const ConfigNode* node = root.find_path(join_path(choice.section, choice.key));
  return node != nullptr && node->kind == ConfigNode::Kind::Scalar ? node : nullptr;
}

bool is_plain_scalar(const ConfigNode* node, std::string_view word) {
  return node != nullptr && node->kind == ConfigNode::Kind::Scalar && !node->is_quoted &&
         node->scalar == word;
}

// Whether a value says no more than its absence would.
bool asks_for_nothing(const ConfigNode& node, const ConfigNode* by_default) {
  if (node.kind == ConfigNode::Kind::Null) return true;
  return is_plain_scalar(&node, "false") && !is_plain_scalar(by_default, "true");
}

// Removes every value for which `is_kept` is false; returns true when nothing is left. A list is
// kept or removed as a whole. A mapping that loses some keys takes the location of its first
// remaining one. An empty mapping is a value.
template <class Predicate>
bool strip(ConfigNode& node, const Predicate& is_kept) {
  if (node.kind == ConfigNode::Kind::Map && !node.entries.empty()) {
    std::erase_if(node.entries,
                  [&](ConfigNode::Entry& entry) { return strip(entry.value, is_kept); });
    if (!node.entries.empty()) node.where = node.entries.front().value.where;
    return node.entries.empty();
  }
  return !is_kept(node) && std::none_of(node.items.begin(), node.items.end(), is_kept);
}

// Strips the node at a dotted path. Returns true when the node existed and nothing of it is left.
template <class Predicate>
bool strip_path(ConfigNode& section, std::string_view path, const Predicate& is_kept) {
  const std::size_t dot = path.rfind('.');
  const bool is_nested = dot != std::string_view::npos;
  ConfigNode* parent = is_nested ? section.find_path(path.substr(0, dot)) : &section;
  const std::string_view key = is_nested ? path.substr(dot + 1) : path;
  ConfigNode* node = parent == nullptr ? nullptr : parent->find(key);
  if (node == nullptr || !strip(*node, is_kept)) return false;
  parent->erase(key);
  return true;
}

template <class Predicate>
void drop_unused(ConfigNode& root, const Choice& choice, std::string_view value,
                 const Predicate& is_kept) {
  ConfigNode* section = root.find_path(choice.section);
  if (section == nullptr) return;
  const Unused unused = choice.unused_by(value);
  bool has_dropped = false;
  for (const UnusedKey& key : unused.keys) {
    has_dropped = strip_path(*section, key.key, is_kept) || has_dropped;
  }
  if (!has_dropped) return;
  for (const std::string_view companion : unused.companions) {
    strip_path(*section, companion, is_kept);
  }
}

}  // namespace

std::vector<std::string> unused_keys(const ConfigNode& chosen, std::span<const Choice> choices) {
  std::vector<std::string> keys;
  for (const Choice& choice : choices) {
    const ConfigNode* node = find_choice(chosen, choice);
    if (node == nullptr) continue;
    for (const UnusedKey& unused : choice.unused_by(node->scalar).keys) {
      keys.push_back(join_path(choice.section, unused.key));
    }
  }
  return keys;
}

void refuse_unused_keys(const ConfigNode& given, const ConfigNode& chosen,
                        std::span<const Choice> choices, const ConfigNode& defaults,
                        const std::string& path) {
  for (const Choice& choice : choices) {
    const ConfigNode* node = find_choice(chosen, choice);
    if (node == nullptr) continue;
    for (const UnusedKey& unused : choice.unused_by(node->scalar).keys) {
      const std::string key = join_path(choice.section, unused.key);
      const ConfigNode* in_vain = given.find_path(key);
      if (in_vain == nullptr || asks_for_nothing(*in_vain, defaults.find_path(key))) continue;
      fail_config(in_vain->where, join_path(path, key), unused.complaint);
    }
  }
}

void drop_inherited_keys(ConfigNode& inherited, const ConfigNode& over,
                         std::span<const Choice> choices) {
  for (const Choice& choice : choices) {
    const ConfigNode* node = find_choice(over, choice);
    if (node == nullptr) continue;
    drop_unused(inherited, choice, node->scalar, [](const ConfigNode&) { return false; });
  }
}

void drop_superseded_keys(ConfigNode& root, std::span<const Choice> choices) {
  for (const Choice& choice : choices) {
    const ConfigNode* node = find_choice(root, choice);
    if (node == nullptr || !node->where.is_assignment()) continue;
    const std::string value = node->scalar;
    drop_unused(root, choice, value,
                [](const ConfigNode& old) { return old.where.is_assignment(); });
  }
}

}  // namespace metronome
