// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include "models/text/jinja/expression_parser.h"
#include "models/text/jinja/name_check.h"

namespace metronome::jinja {
namespace {

constexpr const char* kStatements =
    "if, for, set, macro, call, filter, with, generation, break, continue, raw";

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(source), expressions_(tokens_) {}

  Body run() { return body({}); }

 private:
  using Names = std::initializer_list<std::string_view>;

  bool is_at(Names ends) const {
    return std::any_of(ends.begin(), ends.end(),
                       [this](std::string_view name) { return tokens_.is_name(name); });
  }

  // Statements up to a tag that begins with one of `ends`, whose name is the next token; without
  // `ends`, up to the end of the template.
  Body body(Names ends) {
    Body result;
    while (!tokens_.is(TokenType::End)) {
      if (tokens_.is(TokenType::Data)) {
        auto made = statement(StatementKind::Data);
        made->text = tokens_.next().text;
        result.push_back(std::move(made));
      } else if (tokens_.is(TokenType::VariableBegin)) {
        tokens_.next();
        auto made = statement(StatementKind::Output);
        made->value = expressions_.tuple();
        if (!tokens_.is(TokenType::VariableEnd)) tokens_.fail_unexpected("}}");
        tokens_.next();
        result.push_back(std::move(made));
      } else {
        tokens_.next();
        if (is_at(ends)) return result;
        result.push_back(tag());
        tokens_.expect(TokenType::BlockEnd, "%}");
      }
    }
    if (ends.size() > 0) {
      tokens_.fail("a block has no end; allowed: {% " + std::string(*(ends.end() - 1)) + " %}");
    }
    return result;
  }

  // The statements between the end of this tag and one of `ends`.
  Body block(Names ends) {
    tokens_.skip_symbol(":");
    tokens_.expect(TokenType::BlockEnd, "%}");
    return body(ends);
  }

  std::unique_ptr<Statement> statement(StatementKind kind) const {
    auto made = std::make_unique<Statement>();
    made->kind = kind;
    made->line = tokens_.current().line;
    return made;
  }

  std::unique_ptr<Statement> tag() {
    const NestingGuard guard(expressions_.nesting(), tokens_.current().line);
    if (!tokens_.is(TokenType::Name)) tokens_.fail_unexpected(kStatements);
    const std::string name = tokens_.current().text;
    if (name == "if") return if_tag();
    if (name == "for") return for_tag();
    if (name == "set") return set_tag();
    if (name == "macro") return macro_tag();
    if (name == "call") return call_tag();
    if (name == "filter") return filter_tag();
    if (name == "with") return with_tag();
    if (name == "generation") return generation_tag();
    if (name == "break" || name == "continue") return jump_tag(name);
    tokens_.fail("the tag " + name.substr(0, 60) + " is not supported; allowed: " + kStatements);
  }

  std::unique_ptr<Statement> if_tag() {
    auto made = statement(StatementKind::If);
    for (bool has_branch = true; has_branch;) {
      tokens_.next();
      ExpressionPtr condition = expressions_.tuple(false);
      made->branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
      has_branch = tokens_.is_name("elif");
    }
    if (tokens_.next().text == "else") {
      made->otherwise = block({"endif"});
      tokens_.next();
    }
    return made;
  }

  std::unique_ptr<Statement> for_tag() {
    auto made = statement(StatementKind::For);
    tokens_.next();
    made->target = expressions_.target(false, "in");
    tokens_.expect_name("in");
    made->value = expressions_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) made->condition = expressions_.expression();
    if (tokens_.is_name("recursive")) {
      tokens_.fail("a recursive for is not supported; allowed: macros that call themselves");
    }
    ++num_loops_;
    made->body = block({"else", "endfor"});
    --num_loops_;
    if (tokens_.next().text == "else") {
      made->otherwise = block({"endfor"});
      tokens_.next();
    }
    return made;
  }

  std::unique_ptr<Statement> set_tag() {
    auto made = statement(StatementKind::Set);
    tokens_.next();
    made->target = expressions_.target(true);
    if (tokens_.skip_symbol("=")) {
      made->value = expressions_.tuple();
      return made;
    }
    made->kind = StatementKind::SetBlock;
    made->value = expressions_.filters(expressions_.body_text(made->line));
    made->body = block({"endset"});
    tokens_.next();
    return made;
  }

  // (a, b=1)
  void signature(Signature& made) {
    tokens_.expect_symbol("(");
    while (!tokens_.is_symbol(")")) {
      if (!made.parameters.empty()) tokens_.expect_symbol(",");
      const int line = tokens_.current().line;
      const Target parameter = expressions_.plain_target();
      if (parameter.name.empty()) tokens_.fail_at(line, "a parameter must be a name");
      made.parameters.push_back(parameter.name);
      if (tokens_.skip_symbol("=")) {
        made.defaults.push_back(expressions_.expression());
      } else if (!made.defaults.empty()) {
        tokens_.fail_at(line, "a parameter without a default follows one with a default");
      }
    }
    tokens_.next();
  }

  // The body of what is called elsewhere: it cannot leave a loop around it.
  Body callable_body(Names ends) {
    const int num_loops = num_loops_;
    num_loops_ = 0;
    Body made = block(ends);
    num_loops_ = num_loops;
    tokens_.next();
    return made;
  }

  std::unique_ptr<Statement> macro_tag() {
    auto made = statement(StatementKind::Macro);
    tokens_.next();
    made->signature.name = tokens_.expect(TokenType::Name, "a name of a macro").text;
    signature(made->signature);
    made->body = callable_body({"endmacro"});
    return made;
  }

  std::unique_ptr<Statement> call_tag() {
    auto made = statement(StatementKind::CallBlock);
    tokens_.next();
    made->signature.name = "caller";
    if (tokens_.is_symbol("(")) signature(made->signature);
    made->value = expressions_.expression();
    if (made->value->kind != ExpressionKind::Call) {
      tokens_.fail_at(made->line, "a call block without a call; allowed: {% call macro(...) %}");
    }
    made->body = callable_body({"endcall"});
    return made;
  }

  std::unique_ptr<Statement> filter_tag() {
    auto made = statement(StatementKind::FilterBlock);
    tokens_.next();
    made->value = expressions_.filters(expressions_.body_text(made->line), true);
    made->body = block({"endfilter"});
    tokens_.next();
    return made;
  }

  std::unique_ptr<Statement> with_tag() {
    auto made = statement(StatementKind::With);
    tokens_.next();
    while (!tokens_.is(TokenType::BlockEnd)) {
      if (!made->assignments.empty()) tokens_.expect_symbol(",");
      Target target = expressions_.plain_target();
      tokens_.expect_symbol("=");
      made->assignments.emplace_back(std::move(target), expressions_.expression());
    }
    made->body = block({"endwith"});
    tokens_.next();
    return made;
  }

  // A tag of transformers around an answer. It shows its body.
  std::unique_ptr<Statement> generation_tag() {
    auto made = statement(StatementKind::Scope);
    tokens_.next();
    made->body = callable_body({"endgeneration"});
    return made;
  }

  std::unique_ptr<Statement> jump_tag(const std::string& name) {
    if (num_loops_ == 0) tokens_.fail(name + " stands outside of a loop");
    auto made = statement(name == "break" ? StatementKind::Break : StatementKind::Continue);
    tokens_.next();
    return made;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int num_loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source) {
  Body body = Parser(source).run();
  check_names(body);
  return body;
}

}  // namespace metronome::jinja
