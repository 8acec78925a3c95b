// SPDX-License-Identifier: Apache-2.0
// Parses expressions, with the precedence of jinja2.
#pragma once

#include <string>
#include <vector>

#include "models/text/jinja/syntax.h"
#include "models/text/jinja/token_stream.h"

namespace metronome::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  ExpressionPtr expression(bool with_condition = true);
  // Expressions with commas between them are a tuple. `end` is a name that ends it, or "".
  ExpressionPtr tuple(bool with_condition = true, const char* end = "");
  // `| filter | filter` behind `subject`; without a first | if `starts_inline`.
  ExpressionPtr filters(ExpressionPtr subject, bool starts_inline = false);
  // The targets of set, for and with.
  Target target(bool with_attribute, const char* end = "");
  Target plain_target();
  ExpressionPtr body_text(int line);

  // Is raised and lowered by statements in each other.
  int& nesting() { return nesting_; }

 private:
  ExpressionPtr make(ExpressionKind kind, int line, std::vector<ExpressionPtr> parts = {});
  void finish(Expression& made);
  ExpressionPtr conditional();
  ExpressionPtr disjunction();
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters = true);
  ExpressionPtr primary();
  ExpressionPtr parenthesised();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr subject);
  ExpressionPtr filtered(ExpressionPtr subject);
  ExpressionPtr attribute(ExpressionPtr subject);
  ExpressionPtr item(ExpressionPtr subject);
  ExpressionPtr call(ExpressionPtr subject);
  std::string dotted_name(const char* expected);
  ExpressionPtr test(ExpressionPtr subject);
  void arguments(Expression& call);

  TokenStream& tokens_;
  int nesting_ = 0;
};

}  // namespace metronome::jinja
