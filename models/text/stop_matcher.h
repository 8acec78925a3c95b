// SPDX-License-Identifier: Apache-2.0
// Finds stop strings in a text that arrives in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A set of stop strings, ready to be looked for in many texts at once. Immutable. It is the
// automaton of Aho and Corasick (1975): a node for each prefix of a stop string.
class StopStrings {
 public:
  using Node = std::int32_t;
  static constexpr Node kRoot = 0;  // the empty prefix

  // Memory and time are proportional to the bytes of the strings. Throws std::invalid_argument when
  // one is empty.
  explicit StopStrings(std::vector<std::string> stops);

  // The longest prefix at the end of a text, after one more byte.
  Node after(Node node, char byte) const;
  std::size_t num_bytes(Node node) const { return nodes_[at(node)].num_bytes; }
  // The first string in the list that ends here.
  std::optional<std::size_t> found(Node node) const { return nodes_[at(node)].found; }

  const std::vector<std::string>& all() const { return stops_; }

 private:
  static constexpr Node kNone = -1;
  struct Prefix {
    char byte = 0;  // its last
    Node child = kNone;
    Node sibling = kNone;
    Node fallback = kRoot;  // the longest other prefix that it ends with
    std::uint32_t num_bytes = 0;
    std::optional<std::uint32_t> found = {};
  };

  static std::size_t at(Node node) { return static_cast<std::size_t>(node); }
  Node child(Node node, char byte) const;
  Node add_child(Node node, char byte);
  void find_fallbacks();

  std::vector<std::string> stops_;
  std::vector<Prefix> nodes_;
};

// A text ends at the stop string that is complete first. If several are complete at the same byte,
// the first in the list wins. vLLM's check_stop_strings does the same. The split into parts does
// not change the result.
//
// Without `include_stop` the text ends before the stop string. Only a possible beginning of a stop
// string is held back. With it (vLLM's include_stop_str_in_output) the text ends with the stop
// string, and nothing is held back.
class StopMatcher {
 public:
  // Matchers may share their strings. Null: none.
  explicit StopMatcher(std::shared_ptr<const StopStrings> stops, bool include_stop = false)
      : stops_(std::move(stops)), include_stop_(include_stop) {}

  // Returns the text that may be sent now. These are whole characters if texts and stop strings
  // are. Returns nothing after a stop. Without `may_stop` a stop string that ends in this part is
  // text like any other; one that begins in it may end in a later part.
  std::string push(std::string_view text, bool may_stop = true);
  // Returns the held text; nothing after a stop.
  std::string finish();

  bool is_stopped() const { return found_.has_value(); }
  // The index of the completed stop string.
  std::optional<std::size_t> found() const { return found_; }

 private:
  std::shared_ptr<const StopStrings> stops_;
  bool include_stop_;
  StopStrings::Node node_ = StopStrings::kRoot;
  std::string held_;
  std::optional<std::size_t> found_;
};

}  // namespace metronome
