// SPDX-License-Identifier: Apache-2.0
// Texts that a regular expression of JSON Schema finds, and whether it finds one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace metronome {

// A regular expression of ECMA-262 without look-around, back references, \b and classes of Unicode
// (\p): what structured answers of vLLM and of OpenAI allow. Characters are code points.
class SchemaPattern {
 public:
  // Throws std::runtime_error with what is not known.
  explicit SchemaPattern(std::string_view pattern);
  ~SchemaPattern();
  SchemaPattern(SchemaPattern&&) noexcept;

  // A text of `least` to `most` characters, in which the pattern is found. nullopt: none was found,
  // though there may be one. The seed chooses among alternatives and characters.
  std::optional<std::string> example(std::int64_t least, std::int64_t most,
                                     std::uint64_t seed) const;
  // Whether the pattern is found in the text, which is UTF-8. False also for a search that takes
  // too long.
  bool finds(std::string_view text) const;

  struct Node;

 private:
  std::unique_ptr<Node> root_;
};

}  // namespace metronome
