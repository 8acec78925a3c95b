// SPDX-License-Identifier: Apache-2.0
// Cuts a template into tokens, as jinja2 does with trim_blocks and lstrip_blocks.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace metronome::jinja {

// A template cannot be read or rendered. what() says what is wrong and what is allowed.
class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(int line, const std::string& message) : std::runtime_error(message), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

enum class TokenType : std::uint8_t {
  Data,  // text outside of tags
  VariableBegin,
  VariableEnd,
  BlockBegin,
  BlockEnd,
  Name,
  Text,  // a string literal, without its escapes
  Integer,
  Float,
  Symbol,  // an operator or a bracket
  End
};

struct Token {
  TokenType type = TokenType::End;
  int line = 1;
  std::string text;  // of Data, Name, Text and Symbol
  std::int64_t integer = 0;
  double real = 0;
};

// The last token is End. Throws SyntaxError.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace metronome::jinja
