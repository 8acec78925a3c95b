// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/expression_parser.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <utility>

#include "models/text/jinja/filters.h"

namespace metronome::jinja {
namespace {

template <class... Parts>
std::vector<ExpressionPtr> parts_of(Parts... parts) {
  std::vector<ExpressionPtr> result;
  (result.push_back(std::move(parts)), ...);
  return result;
}

struct Symbol {
  std::string_view text;
  Operator op;
};
constexpr auto kComparisons = std::to_array<Symbol>({{"==", Operator::Equal},
                                                     {"!=", Operator::NotEqual},
                                                     {"<", Operator::Less},
                                                     {"<=", Operator::LessEqual},
                                                     {">", Operator::Greater},
                                                     {">=", Operator::GreaterEqual}});

}  // namespace

void ExpressionParser::finish(Expression& made) {
  const auto look_at = [&made](const ExpressionPtr& part) {
    if (part) made.depth = std::max(made.depth, part->depth + 1);
  };
  for (const ExpressionPtr& part : made.parts) look_at(part);
  for (const auto& [name, part] : made.named) look_at(part);
  look_at(made.starred);
  look_at(made.double_starred);
  if (made.depth > kMaxSyntaxDepth) {
    tokens_.fail_at(made.line, fmt::format("an expression is nested too deeply; allowed: {} levels",
                                           kMaxSyntaxDepth));
  }
}

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line,
                                     std::vector<ExpressionPtr> parts) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->parts = std::move(parts);
  finish(*made);
  return made;
}

ExpressionPtr ExpressionParser::body_text(int line) { return make(ExpressionKind::Body, line); }

ExpressionPtr ExpressionParser::expression(bool with_condition) {
  const NestingGuard guard(nesting_, tokens_.current().line);
  return with_condition ? conditional() : disjunction();
}

ExpressionPtr ExpressionParser::conditional() {
  ExpressionPtr value = disjunction();
  while (tokens_.is_name("if")) {
    const int line = tokens_.next().line;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    value = make(ExpressionKind::Conditional, line,
                 parts_of(std::move(value), std::move(condition), std::move(otherwise)));
  }
  return value;
}

ExpressionPtr ExpressionParser::disjunction() {
  ExpressionPtr left = conjunction();
  while (tokens_.is_name("or")) {
    const int line = tokens_.next().line;
    ExpressionPtr right = conjunction();
    left = make(ExpressionKind::Or, line, parts_of(std::move(left), std::move(right)));
  }
  return left;
}

ExpressionPtr ExpressionParser::conjunction() {
  ExpressionPtr left = negation();
  while (tokens_.is_name("and")) {
    const int line = tokens_.next().line;
    ExpressionPtr right = negation();
    left = make(ExpressionKind::And, line, parts_of(std::move(left), std::move(right)));
  }
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  if (!tokens_.is_name("not")) return comparison();
  const NestingGuard guard(nesting_, tokens_.current().line);
  const int line = tokens_.next().line;
  return make(ExpressionKind::Not, line, parts_of(negation()));
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts = parts_of(sum());
  std::vector<Operator> operators;
  for (;;) {
    const auto* const known =
        std::find_if(kComparisons.begin(), kComparisons.end(),
                     [this](const Symbol& symbol) { return tokens_.is_symbol(symbol.text); });
    if (known != kComparisons.end()) {
      tokens_.next();
      operators.push_back(known->op);
    } else if (tokens_.skip_name("in")) {
      operators.push_back(Operator::In);
    } else if (tokens_.is_name("not") && tokens_.next_is_name("in")) {
      tokens_.next();
      tokens_.next();
      operators.push_back(Operator::NotIn);
    } else {
      break;
    }
    parts.push_back(sum());
  }
  if (operators.empty()) return std::move(parts.front());
  ExpressionPtr made = make(ExpressionKind::Compare, line, std::move(parts));
  made->operators = std::move(operators);
  return made;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  while (tokens_.is_symbol("+") || tokens_.is_symbol("-")) {
    const Token symbol = tokens_.next();
    ExpressionPtr right = concatenation();
    left =
        make(ExpressionKind::Arithmetic, symbol.line, parts_of(std::move(left), std::move(right)));
    left->operators = {symbol.text == "+" ? Operator::Add : Operator::Subtract};
  }
  return left;
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts = parts_of(product());
  while (tokens_.skip_symbol("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  return make(ExpressionKind::Concat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  constexpr auto kOperators = std::to_array<Symbol>({{"*", Operator::Multiply},
                                                     {"/", Operator::Divide},
                                                     {"//", Operator::FloorDivide},
                                                     {"%", Operator::Remainder}});
  ExpressionPtr left = power();
  for (;;) {
    const auto* const known =
        std::find_if(kOperators.begin(), kOperators.end(),
                     [this](const Symbol& symbol) { return tokens_.is_symbol(symbol.text); });
    if (known == kOperators.end()) return left;
    const int line = tokens_.next().line;
    ExpressionPtr right = power();
    left = make(ExpressionKind::Arithmetic, line, parts_of(std::move(left), std::move(right)));
    left->operators = {known->op};
  }
}

ExpressionPtr ExpressionParser::power() {
  ExpressionPtr left = unary();
  while (tokens_.is_symbol("**")) {
    const int line = tokens_.next().line;
    ExpressionPtr right = unary();
    left = make(ExpressionKind::Arithmetic, line, parts_of(std::move(left), std::move(right)));
    left->operators = {Operator::Power};
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  ExpressionPtr made;
  if (tokens_.is_symbol("-") || tokens_.is_symbol("+")) {
    const NestingGuard guard(nesting_, tokens_.current().line);
    const Token sign = tokens_.next();
    made = make(sign.text == "-" ? ExpressionKind::Negative : ExpressionKind::Positive, sign.line,
                parts_of(unary(false)));
  } else {
    made = primary();
  }
  made = postfix(std::move(made));
  return with_filters ? filtered(std::move(made)) : std::move(made);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = tokens_.current();
  if (tokens_.is_symbol("(")) return parenthesised();
  if (tokens_.is_symbol("[")) return list();
  if (tokens_.is_symbol("{")) return dict();
  const bool is_literal = token.type == TokenType::Text || token.type == TokenType::Integer ||
                          token.type == TokenType::Float || token.type == TokenType::Name;
  if (!is_literal) tokens_.fail_unexpected("an expression");
  tokens_.next();
  ExpressionPtr made = make(ExpressionKind::Constant, token.line);
  if (token.type == TokenType::Integer) {
    made->constant = Value(token.integer);
  } else if (token.type == TokenType::Float) {
    made->constant = Value(token.real);
  } else if (token.type == TokenType::Text) {
    std::string text = token.text;
    while (tokens_.is(TokenType::Text)) text += tokens_.next().text;
    made->constant = Value(Kind::String, std::make_shared<Text>(nullptr, std::move(text)));
  } else if (token.text == "true" || token.text == "True") {
    made->constant = Value(true);
  } else if (token.text == "false" || token.text == "False") {
    made->constant = Value(false);
  } else if (token.text == "none" || token.text == "None") {
    made->constant = Value::none();
  } else {
    made->kind = ExpressionKind::Name;
    made->name = token.text;
  }
  return made;
}

ExpressionPtr ExpressionParser::parenthesised() {
  const int line = tokens_.next().line;
  if (tokens_.skip_symbol(")")) return make(ExpressionKind::Tuple, line);
  ExpressionPtr made = tuple();
  tokens_.expect_symbol(")");
  return made;
}

ExpressionPtr ExpressionParser::tuple(bool with_condition, const char* end) {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts;
  bool is_tuple = false;
  const auto is_end = [&] {
    return tokens_.is(TokenType::VariableEnd) || tokens_.is(TokenType::BlockEnd) ||
           tokens_.is_symbol(")") || (*end != '\0' && tokens_.is_name(end));
  };
  while (!is_end()) {
    parts.push_back(expression(with_condition));
    if (!tokens_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return make(ExpressionKind::Tuple, line, std::move(parts));
  if (parts.empty()) tokens_.fail_unexpected("an expression");
  return std::move(parts.front());
}

ExpressionPtr ExpressionParser::list() {
  const int line = tokens_.next().line;
  std::vector<ExpressionPtr> parts;
  while (!tokens_.is_symbol("]")) {
    parts.push_back(expression());
    if (!tokens_.is_symbol("]")) tokens_.expect_symbol(",");
  }
  tokens_.next();
  return make(ExpressionKind::List, line, std::move(parts));
}

ExpressionPtr ExpressionParser::dict() {
  const int line = tokens_.next().line;
  std::vector<ExpressionPtr> parts;
  while (!tokens_.is_symbol("}")) {
    parts.push_back(expression());
    tokens_.expect_symbol(":");
    parts.push_back(expression());
    if (!tokens_.is_symbol("}")) tokens_.expect_symbol(",");
  }
  tokens_.next();
  return make(ExpressionKind::Dict, line, std::move(parts));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr subject) {
  for (;;) {
    if (tokens_.is_symbol(".")) {
      subject = attribute(std::move(subject));
    } else if (tokens_.is_symbol("[")) {
      subject = item(std::move(subject));
    } else if (tokens_.is_symbol("(")) {
      subject = call(std::move(subject));
    } else {
      return subject;
    }
  }
}

ExpressionPtr ExpressionParser::filtered(ExpressionPtr subject) {
  for (;;) {
    if (tokens_.is_symbol("|")) {
      subject = filters(std::move(subject));
    } else if (tokens_.is_name("is")) {
      subject = test(std::move(subject));
    } else if (tokens_.is_symbol("(")) {
      subject = call(std::move(subject));
    } else {
      return subject;
    }
  }
}

ExpressionPtr ExpressionParser::attribute(ExpressionPtr subject) {
  const int line = tokens_.next().line;
  if (tokens_.is(TokenType::Integer)) {
    ExpressionPtr index = make(ExpressionKind::Constant, line);
    index->constant = Value(tokens_.next().integer);
    return make(ExpressionKind::Item, line, parts_of(std::move(subject), std::move(index)));
  }
  const Token name = tokens_.expect(TokenType::Name, "a name or a number");
  ExpressionPtr made = make(ExpressionKind::Attribute, line, parts_of(std::move(subject)));
  made->name = name.text;
  return made;
}

ExpressionPtr ExpressionParser::item(ExpressionPtr subject) {
  const int line = tokens_.next().line;
  ExpressionPtr start = tokens_.is_symbol(":") ? nullptr : expression();
  if (!tokens_.is_symbol(":")) {
    if (tokens_.is_symbol(",")) {
      tokens_.fail("an index of several parts is not supported; allowed: [key], [start:stop:step]");
    }
    tokens_.expect_symbol("]");
    return make(ExpressionKind::Item, line, parts_of(std::move(subject), std::move(start)));
  }
  const auto bound = [this]() -> ExpressionPtr {
    const bool is_absent =
        !tokens_.skip_symbol(":") || tokens_.is_symbol(":") || tokens_.is_symbol("]");
    return is_absent ? nullptr : expression();
  };
  ExpressionPtr stop = bound();
  ExpressionPtr step = bound();
  tokens_.expect_symbol("]");
  return make(ExpressionKind::Slice, line,
              parts_of(std::move(subject), std::move(start), std::move(stop), std::move(step)));
}

void ExpressionParser::arguments(Expression& called) {
  const int line = called.line;
  tokens_.expect_symbol("(");
  const auto check = [line](bool is_valid) {
    if (!is_valid) {
      TokenStream::fail_at(line,
                           "a call has its arguments in a wrong order; allowed: values, "
                           "then name=value, then *list or **dictionary");
    }
  };
  while (!tokens_.is_symbol(")")) {
    if (tokens_.skip_symbol("*")) {
      check(!called.starred && !called.double_starred);
      called.starred = expression();
    } else if (tokens_.skip_symbol("**")) {
      check(!called.double_starred);
      called.double_starred = expression();
    } else if (tokens_.is(TokenType::Name) && tokens_.next_is_symbol("=")) {
      check(!called.double_starred);
      const std::string name = tokens_.next().text;
      tokens_.next();
      const bool is_known = std::any_of(called.named.begin(), called.named.end(),
                                        [&](const auto& entry) { return entry.first == name; });
      if (is_known) tokens_.fail_at(line, "keyword argument repeated: " + name);
      called.named.emplace_back(name, expression());
    } else {
      check(!called.starred && !called.double_starred && called.named.empty());
      called.parts.push_back(expression());
    }
    if (!tokens_.is_symbol(")")) tokens_.expect_symbol(",");
  }
  tokens_.next();
  finish(called);
}

ExpressionPtr ExpressionParser::call(ExpressionPtr subject) {
  const int line = tokens_.current().line;
  ExpressionPtr made = make(ExpressionKind::Call, line, parts_of(std::move(subject)));
  arguments(*made);
  return made;
}

// Of a filter or a test; check_names() looks whether it exists.
std::string ExpressionParser::dotted_name(const char* expected) {
  std::string name = tokens_.expect(TokenType::Name, expected).text;
  while (tokens_.skip_symbol(".")) name += "." + tokens_.expect(TokenType::Name, expected).text;
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr subject, bool starts_inline) {
  while (starts_inline || tokens_.skip_symbol("|")) {
    starts_inline = false;
    const int line = tokens_.current().line;
    ExpressionPtr made = make(ExpressionKind::Filter, line, parts_of(std::move(subject)));
    made->name = dotted_name("the name of a filter");
    made->filter = find_filter(made->name);
    if (tokens_.is_symbol("(")) arguments(*made);
    subject = std::move(made);
  }
  return subject;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr subject) {
  const int line = tokens_.next().line;
  const bool is_negated = tokens_.skip_name("not");
  ExpressionPtr made = make(ExpressionKind::Test, line, parts_of(std::move(subject)));
  made->name = dotted_name("the name of a test");
  made->test = find_test(made->name);
  const bool has_argument = tokens_.is(TokenType::Text) || tokens_.is(TokenType::Integer) ||
                            tokens_.is(TokenType::Float) || tokens_.is_symbol("[") ||
                            tokens_.is_symbol("{") ||
                            (tokens_.is(TokenType::Name) && !tokens_.is_name("else") &&
                             !tokens_.is_name("or") && !tokens_.is_name("and"));
  if (tokens_.is_symbol("(")) {
    arguments(*made);
  } else if (has_argument) {
    if (tokens_.is_name("is"))
      tokens_.fail("a test of a test is not allowed; allowed: (x is y) is z");
    made->parts.push_back(postfix(primary()));
    finish(*made);
  }
  return is_negated ? make(ExpressionKind::Not, line, parts_of(std::move(made))) : std::move(made);
}

Target ExpressionParser::plain_target() {
  const NestingGuard guard(nesting_, tokens_.current().line);
  Target made;
  made.line = tokens_.current().line;
  if (tokens_.skip_symbol("(")) {
    made = target(false, "");
    tokens_.expect_symbol(")");
    return made;
  }
  made.name = tokens_.expect(TokenType::Name, "a name to assign to").text;
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (made.name == constant) tokens_.fail_at(made.line, "can't assign to " + made.name);
  }
  return made;
}

Target ExpressionParser::target(bool with_attribute, const char* end) {
  Target several;
  several.line = tokens_.current().line;
  bool is_tuple = false;
  while (!tokens_.is_symbol(")") && !tokens_.is(TokenType::BlockEnd) &&
         !(*end != '\0' && tokens_.is_name(end))) {
    Target one = plain_target();
    if (with_attribute && !one.name.empty() && tokens_.skip_symbol(".")) {
      one.attribute = tokens_.expect(TokenType::Name, "the name of an attribute").text;
    }
    several.targets.push_back(std::move(one));
    if (!tokens_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return several;
  if (several.targets.empty()) tokens_.fail_unexpected("a name to assign to");
  Target one = std::move(several.targets.front());
  return one;
}

}  // namespace metronome::jinja
