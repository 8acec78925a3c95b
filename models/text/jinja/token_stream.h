// SPDX-License-Identifier: Apache-2.0
// The tokens of a template, for the parser.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/lexer.h"
#include "models/text/jinja/limits.h"

namespace metronome::jinja {

class TokenStream {
 public:
  explicit TokenStream(std::string_view source) : tokens_(tokens_of(source)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const {
    return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : tokens_.size() - 1];
  }
  Token next() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(TokenType type) const { return current().type == type; }
  bool is_symbol(std::string_view symbol) const {
    return has(current(), TokenType::Symbol, symbol);
  }
  bool is_name(std::string_view name) const { return has(current(), TokenType::Name, name); }
  bool next_is_symbol(std::string_view symbol) const {
    return has(following(), TokenType::Symbol, symbol);
  }
  bool next_is_name(std::string_view name) const { return has(following(), TokenType::Name, name); }
  bool skip_symbol(std::string_view symbol) { return is_symbol(symbol) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }

  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail_unexpected("'" + std::string(symbol) + "'");
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_unexpected("'" + std::string(name) + "'");
  }
  Token expect(TokenType type, const char* described) {
    if (!is(type)) fail_unexpected(described);
    return next();
  }

  [[noreturn]] void fail(const std::string& message) const { fail_at(current().line, message); }
  [[noreturn]] static void fail_at(int line, const std::string& message) {
    throw SyntaxError(line, message);
  }
  [[noreturn]] void fail_unexpected(const std::string& allowed) const {
    fail("unexpected " + shown() + "; allowed: " + allowed);
  }

 private:
  static bool has(const Token& token, TokenType type, std::string_view text) {
    return token.type == type && token.text == text;
  }
  std::string shown() const {
    switch (current().type) {
      case TokenType::Name:
      case TokenType::Symbol: return "'" + current().text.substr(0, 60) + "'";
      case TokenType::Text: return "string";
      case TokenType::Integer:
      case TokenType::Float: return "number";
      case TokenType::BlockEnd:
      case TokenType::VariableEnd: return "end of a tag";
      case TokenType::End: return "end of the template";
      default: return "text";
    }
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

// Counts how deep the parser is in itself.
class NestingGuard {
 public:
  NestingGuard(int& depth, int line) : depth_(depth) {
    if (++depth_ <= kMaxSyntaxDepth) return;
    --depth_;
    TokenStream::fail_at(
        line, "is nested too deeply; allowed: " + std::to_string(kMaxSyntaxDepth) + " levels");
  }
  ~NestingGuard() { --depth_; }
  NestingGuard(const NestingGuard&) = delete;
  NestingGuard& operator=(const NestingGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace metronome::jinja
