// SPDX-License-Identifier: Apache-2.0
#include "models/text/added_tokens.h"

#include <algorithm>

#include "models/text/utf8.h"

namespace metronome {
namespace {

// The last character of a text that is not empty.
Utf8Char last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (byte_of(text[begin]) & 0xc0) == 0x80) --begin;
  return read_utf8(text.substr(begin));
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word_character(last_character(text).code_point);
}

bool begins_with_word(std::string_view text) {
  return !text.empty() && is_word_character(read_utf8(text).code_point);
}

// The offset of the white space at the end of a text.
std::size_t end_without_space(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char last = last_character(text);
    if (!is_white_space(last.code_point)) break;
    text.remove_suffix(last.num_bytes);
  }
  return text.size();
}

std::size_t num_leading_space_bytes(std::string_view text) {
  std::size_t num = 0;
  while (num < text.size()) {
    const Utf8Char next = read_utf8(text.substr(num));
    if (!is_white_space(next.code_point)) break;
    num += next.num_bytes;
  }
  return num;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<std::pair<std::string, AddedToken>> tokens)
    : tokens_(std::move(tokens)) {
  roots_.fill(kNone);
  const auto add_node = [&] {
    nodes_.emplace_back();
    return static_cast<std::int32_t>(nodes_.size() - 1);
  };
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& text = tokens_[i].first;
    if (text.empty()) continue;
    std::int32_t& root = roots_[byte_of(text[0])];
    if (root == kNone) root = add_node();
    std::int32_t node = root;
    for (const char c : text.substr(1)) {
      std::int32_t next = child_of(node, c);
      if (next == kNone) {
        next = add_node();
        nodes_[static_cast<std::size_t>(node)].children.emplace_back(c, next);
      }
      node = next;
    }
    std::int32_t& token = nodes_[static_cast<std::size_t>(node)].token;
    if (token == kNone) token = static_cast<std::int32_t>(i);
  }
}

std::int32_t AddedTokenFinder::child_of(std::int32_t node, char c) const {
  for (const auto& [byte, child] : nodes_[static_cast<std::size_t>(node)].children) {
    if (byte == c) return child;
  }
  return kNone;
}

std::int32_t AddedTokenFinder::longest(std::string_view text) const {
  std::int32_t found = kNone;
  std::int32_t node = roots_[byte_of(text[0])];
  for (std::size_t i = 1; node != kNone; ++i) {
    const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
    if (token != kNone) found = token;
    if (i == text.size()) break;
    node = child_of(node, text[i]);
  }
  return found;
}

void AddedTokenFinder::split(std::string_view text, std::vector<AddedSpan>& spans) const {
  spans.clear();
  std::size_t done = 0;  // end of the last span
  for (std::size_t at = 0; at < text.size();) {
    const std::int32_t found = longest(text.substr(at));
    if (found == kNone) {
      ++at;
      continue;
    }
    const auto& [content, token] = tokens_[static_cast<std::size_t>(found)];
    std::size_t begin = at;
    std::size_t end = at + content.size();
    at = end;
    if (token.is_single_word &&
        (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end)))) {
      continue;
    }
    if (token.strips_left) begin = std::max(end_without_space(text.substr(0, begin)), done);
    if (token.strips_right) end += num_leading_space_bytes(text.substr(end));
    if (done < begin) spans.push_back({done, begin, std::nullopt});
    // Nothing is left of white space that an earlier token has stripped.
    if (begin < end) spans.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) spans.push_back({done, text.size(), std::nullopt});
}

}  // namespace metronome
