// SPDX-License-Identifier: Apache-2.0
// Renders the tree of a template.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/jinja/syntax.h"

namespace metronome::jinja {

// Variables, and where to look for those that it lacks.
class Scope {
 public:
  Scope* outer = nullptr;
  bool is_kept = false;  // a macro was defined in it, or in a scope inside it

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
  void clear();
  void keep();

 private:
  std::optional<std::size_t> index_of(std::string_view name) const;

  std::vector<std::pair<std::string, Value>> variables_;
  // Where a variable is; empty while there are few.
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

// A macro may outlive the block in which it was defined, so its scope does as well.
class ScopePool {
 public:
  explicit ScopePool(Meter& meter) : meter_(meter) {}
  Scope* open(Scope* outer);
  void close(Scope* scope);

 private:
  Meter& meter_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_;
};

// A scope for as long as it lives.
class OpenScope {
 public:
  OpenScope(ScopePool& pool, Scope* outer) : pool_(pool), scope_(pool.open(outer)) {}
  ~OpenScope() { pool_.close(scope_); }
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;
  Scope* get() const { return scope_; }

 private:
  ScopePool& pool_;
  Scope* scope_;
};

struct Macro final : Object {
  Macro(Meter* meter, const Signature& how, const Body& what, Scope* where)
      : Object(meter, sizeof(Macro)), signature(how), body(what), scope(where) {}
  const Signature& signature;
  const Body& body;
  Scope* scope;  // where it was defined
};

class Evaluator {
 public:
  Evaluator(Runtime& runtime, const std::tm& now);

  // The value that templates see as a variable.
  void define(const std::string& name, Value value) { globals_.set(name, std::move(value)); }
  std::string render(const Body& body);
  // Of what was evaluated last.
  int line() const { return line_; }

 private:
  enum class Flow { Next, Break, Continue };

  Value evaluate(const Expression& expression);
  Value evaluate_node(const Expression& expression);
  Value name(const Expression& expression);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& parts, std::size_t first = 0);
  Value dict(const Expression& expression);
  Value slice(const Expression& expression);
  Value conditional(const Expression& expression);
  bool comparison(const Expression& expression);
  Value concatenation(const Expression& expression);
  Arguments arguments(const Expression& expression);
  Value call(const Expression& expression);
  Value call_value(const Value& called, Arguments& given);
  Value call_macro(const Macro& macro, Arguments& given);
  void bind(const Macro& macro, Arguments& given, Scope& scope);

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow branch(const Statement& statement);
  void loop(const Statement& statement);
  void set(const Statement& statement);
  void call_block(const Statement& statement);
  void with(const Statement& statement);
  void assign(const Target& target, const Value& value);
  void unpack(const Target& target, const Value& value);
  // The text of a body with variables of its own, passed through a filter of Body.
  Value captured(const Statement& statement);
  std::string output_of(const Body& body);
  void write(std::string_view text);

  Value macro_of(const Statement& statement);

  Runtime& runtime_;
  Scope globals_;
  Scope* scope_ = &globals_;
  ScopePool scopes_;
  std::string* output_ = nullptr;
  std::size_t num_output_bytes_ = 0;  // of all outputs that are open
  Value body_text_;
  int line_ = 1;
};

}  // namespace metronome::jinja
