// SPDX-License-Identifier: Apache-2.0
#include "core/base/clip.h"

#include <algorithm>

namespace metronome {
namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; }

// Up to `most` bytes at the start of the text, without a part of a UTF-8 character at the end.
std::string_view beginning(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::size_t longest = std::min<std::size_t>(most, 3);  // bytes that continue a character
  std::size_t end = most;
  while (end > most - longest && continues_character(text[end])) --end;
  return text.substr(0, end);
}

}  // namespace

std::string clipped(std::string_view text) {
  if (text.size() <= kMaxQuoted) return std::string(text);
  return std::string(beginning(text, kMaxQuoted)) + "...";
}

std::string bounded_message(std::string_view message) {
  constexpr std::size_t kMaxWord = 300, kMaxMessage = 4096, kEnd = 1024;
  std::string bounded;
  while (!message.empty()) {
    const std::size_t end = std::min(message.find(' '), message.size());
    const std::string_view word = message.substr(0, end);
    // The end of a word may close a quotation, and tell a key from its section.
    constexpr std::size_t kTail = 20;
    if (word.size() <= kMaxWord) {
      bounded += word;
    } else {
      std::string_view tail = word.substr(word.size() - kTail);
      while (!tail.empty() && continues_character(tail.front())) tail.remove_prefix(1);
      bounded += clipped(word).append(tail);
    }
    if (end < message.size()) bounded += ' ';
    message.remove_prefix(std::min(end + 1, message.size()));
  }
  if (bounded.size() <= kMaxMessage) return bounded;
  std::string_view rest = std::string_view(bounded).substr(bounded.size() - kEnd);
  rest.remove_prefix(std::min(rest.find(' '), rest.size()));
  return std::string(beginning(bounded, kMaxMessage - kEnd)) + "..." + std::string(rest);
}

}  // namespace metronome
