// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/evaluator.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "models/text/jinja/filters.h"
#include "models/text/jinja/globals.h"
#include "models/text/jinja/loop.h"

namespace metronome::jinja {
namespace {

// Sets a variable for as long as it lives.
template <class T>
class Replaced {
 public:
  Replaced(T& variable, T value) : variable_(variable), former_(std::move(variable)) {
    variable_ = std::move(value);
  }
  ~Replaced() { variable_ = std::move(former_); }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  T& variable_;
  T former_;
};

}  // namespace

std::optional<std::size_t> Scope::index_of(std::string_view name) const {
  if (!by_name_.empty()) {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }
  for (std::size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].first == name) return i;
  }
  return std::nullopt;
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer) {
    if (const auto at = scope->index_of(name)) return &scope->variables_[*at].second;
  }
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  if (const auto at = index_of(name)) {
    variables_[*at].second = std::move(value);
    return;
  }
  variables_.emplace_back(name, std::move(value));
  constexpr std::size_t kFewVariables = 16;
  if (variables_.size() < kFewVariables) return;
  for (std::size_t i = by_name_.size(); i < variables_.size(); ++i) {
    by_name_.emplace(variables_[i].first, i);
  }
}

void Scope::clear() {
  variables_.clear();
  by_name_.clear();
}

void Scope::keep() {
  for (Scope* scope = this; scope != nullptr && !scope->is_kept; scope = scope->outer) {
    scope->is_kept = true;
  }
}

Scope* ScopePool::open(Scope* outer) {
  meter_.step();
  if (free_.empty()) {
    meter_.take(sizeof(Scope) + 4 * sizeof(Value));
    scopes_.push_back(std::make_unique<Scope>());
    free_.push_back(scopes_.back().get());
  }
  Scope* const scope = free_.back();
  free_.pop_back();
  scope->outer = outer;
  return scope;
}

void ScopePool::close(Scope* scope) {
  if (scope->is_kept) return;
  scope->clear();
  free_.push_back(scope);
}

Evaluator::Evaluator(Runtime& runtime, const std::tm& now)
    : runtime_(runtime), scopes_(runtime.meter()) {
  const auto add = [&](const char* function, Callable what, Value self) {
    define(function, Value(Kind::Function, std::make_shared<Function>(&runtime.meter(), function,
                                                                      what, std::move(self))));
  };
  add("range", call_range, Value::none());
  add("dict", call_dict, Value::none());
  add("namespace", call_namespace, Value::none());
  add("raise_exception", call_raise_exception, Value::none());
  add("strftime_now", call_strftime_now, time_value(runtime, now));
}

std::string Evaluator::render(const Body& body) {
  const OpenScope opened(scopes_, &globals_);
  const Replaced<Scope*> scope(scope_, opened.get());
  return output_of(body);
}

void Evaluator::write(std::string_view text) {
  num_output_bytes_ += text.size();
  if (num_output_bytes_ > runtime_.meter().limits().max_output_bytes) {
    fail(fmt::format("the template's output is too long; allowed: {} bytes",
                     runtime_.meter().limits().max_output_bytes));
  }
  output_->append(text);
}

std::string Evaluator::output_of(const Body& body) {
  std::string text;
  const std::size_t before = num_output_bytes_;
  {
    const Replaced<std::string*> output(output_, &text);
    execute(body);
  }
  num_output_bytes_ = before;
  return text;
}

// ---- expressions ----

namespace {

// check_names() has let it pass, as it is in a branch.
[[noreturn]] void fail_unknown(const char* kind, const std::string& name,
                               const std::string& allowed) {
  fail("No " + std::string(kind) + " named '" + name + "' found; allowed: " + allowed);
}

}  // namespace

Value Evaluator::evaluate(const Expression& expression) {
  const CallGuard guard(runtime_);
  runtime_.meter().step();
  line_ = expression.line;
  return evaluate_node(expression);
}

Value Evaluator::evaluate_node(const Expression& expression) {
  const auto part = [&](std::size_t i) { return evaluate(*expression.parts[i]); };
  switch (expression.kind) {
    case ExpressionKind::Constant: return expression.constant;
    case ExpressionKind::Name: return name(expression);
    case ExpressionKind::Body: return body_text_;
    case ExpressionKind::Tuple: return runtime_.tuple(evaluate_all(expression.parts));
    case ExpressionKind::List: return runtime_.list(evaluate_all(expression.parts));
    case ExpressionKind::Dict: return dict(expression);
    case ExpressionKind::Attribute: return attribute_of(runtime_, part(0), expression.name);
    case ExpressionKind::Item: {
      const Value object = part(0);
      return item_of(runtime_, object, part(1));
    }
    case ExpressionKind::Slice: return slice(expression);
    case ExpressionKind::Call: return call(expression);
    case ExpressionKind::Filter: {
      const Value subject = part(0);
      if (expression.filter == nullptr) fail_unknown("filter", expression.name, filter_names());
      Arguments given = arguments(expression);
      return expression.filter(runtime_, subject, given);
    }
    case ExpressionKind::Test: {
      const Value subject = part(0);
      if (expression.test == nullptr) fail_unknown("test", expression.name, test_names());
      Arguments given = arguments(expression);
      return Value(expression.test(runtime_, subject, given));
    }
    case ExpressionKind::Not: return Value(!is_true(part(0)));
    case ExpressionKind::Negative: return negative(part(0));
    case ExpressionKind::Positive: return positive(part(0));
    case ExpressionKind::And: {
      Value left = part(0);
      return is_true(left) ? part(1) : left;
    }
    case ExpressionKind::Or: {
      Value left = part(0);
      return is_true(left) ? left : part(1);
    }
    case ExpressionKind::Conditional: return conditional(expression);
    case ExpressionKind::Compare: return Value(comparison(expression));
    case ExpressionKind::Concat: return concatenation(expression);
    case ExpressionKind::Arithmetic: {
      const Value left = part(0);
      return arithmetic(runtime_, expression.operators[0], left, part(1));
    }
  }
  return Value();
}

Value Evaluator::name(const Expression& expression) {
  const Value* found = scope_->find(expression.name);
  if (found != nullptr) return *found;
  return runtime_.undefined("'" + expression.name + "' is undefined");
}

std::vector<Value> Evaluator::evaluate_all(const std::vector<ExpressionPtr>& parts,
                                           std::size_t first) {
  std::vector<Value> values;
  for (std::size_t i = first; i < parts.size(); ++i) values.push_back(evaluate(*parts[i]));
  return values;
}

Value Evaluator::dict(const Expression& expression) {
  const std::shared_ptr<Dict> made = runtime_.dict();
  for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i]);
    made->set(key, evaluate(*expression.parts[i + 1]));
  }
  return Value(Kind::Dict, made);
}

Value Evaluator::slice(const Expression& expression) {
  const Value object = evaluate(*expression.parts[0]);
  std::optional<Value> bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (expression.parts[i + 1]) bounds[i] = evaluate(*expression.parts[i + 1]);
  }
  const auto bound = [&](std::size_t i) { return bounds[i] ? &*bounds[i] : nullptr; };
  return slice_of(runtime_, object, bound(0), bound(1), bound(2));
}

Value Evaluator::conditional(const Expression& expression) {
  if (is_true(evaluate(*expression.parts[1]))) return evaluate(*expression.parts[0]);
  if (expression.parts[2]) return evaluate(*expression.parts[2]);
  return runtime_.undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      expression.line));
}

bool Evaluator::comparison(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    if (!compare(runtime_, expression.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::concatenation(const Expression& expression) {
  std::string text;
  for (const Value& value : evaluate_all(expression.parts)) {
    text += to_text(runtime_, value);
    runtime_.meter().expect(text.size());
  }
  return runtime_.text(std::move(text));
}

// ---- calls ----

Arguments Evaluator::arguments(const Expression& expression) {
  Arguments given;
  given.positional = evaluate_all(expression.parts, 1);
  for (const auto& [key, value] : expression.named) given.named.emplace_back(key, evaluate(*value));
  if (expression.starred) {
    for (Value& value : entries_of(runtime_, evaluate(*expression.starred))) {
      given.positional.push_back(std::move(value));
    }
  }
  if (expression.double_starred) {
    const Value more = evaluate(*expression.double_starred);
    require_defined(more);
    if (!more.is(Kind::Dict)) fail("argument after ** must be a mapping");
    for (const auto& [key, value] : more.as<Dict>().entries()) {
      if (!key.is_string()) fail("keywords must be strings");
      given.named.emplace_back(key.text(), value);
    }
  }
  return given;
}

Value Evaluator::call(const Expression& expression) {
  const Value called = evaluate(*expression.parts[0]);
  Arguments given = arguments(expression);
  line_ = expression.line;
  return call_value(called, given);
}

Value Evaluator::call_value(const Value& called, Arguments& given) {
  require_defined(called);
  if (called.is(Kind::Function)) {
    const auto& function = called.as<Function>();
    return function.call(runtime_, function.self, given);
  }
  if (called.is(Kind::Macro)) return call_macro(called.as<Macro>(), given);
  if (called.is(Kind::Loop)) {
    fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  fail("'" + std::string(type_name(called)) + "' object is not callable");
}

void Evaluator::bind(const Macro& macro, Arguments& given, Scope& scope) {
  const std::vector<std::string>& parameters = macro.signature.parameters;
  const std::string shown = "macro '" + macro.signature.name + "'";
  if (given.positional.size() > parameters.size()) {
    fail(fmt::format("{} takes not more than {} argument(s)", shown, parameters.size()));
  }
  const std::size_t num_required = parameters.size() - macro.signature.defaults.size();
  scope.set("caller", runtime_.undefined("No caller defined"));
  for (auto& [key, value] : given.named) {
    const auto found = std::find(parameters.begin(), parameters.end(), key);
    if (found == parameters.end() && key != "caller") {
      fail(shown + " takes no keyword argument '" + key + "'");
    }
    if (found != parameters.end() && found - parameters.begin() < std::ssize(given.positional)) {
      fail(shown + " got multiple values for argument '" + key + "'");
    }
  }
  const auto named = [&](const std::string& key) {
    return std::find_if(given.named.begin(), given.named.end(),
                        [&](const auto& entry) { return entry.first == key; });
  };
  if (const auto caller = named("caller"); caller != given.named.end()) {
    scope.set("caller", caller->second);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = named(parameters[i]);
    if (i < given.positional.size()) {
      scope.set(parameters[i], given.positional[i]);
    } else if (found != given.named.end()) {
      scope.set(parameters[i], found->second);
    } else if (i >= num_required) {
      scope.set(parameters[i], evaluate(*macro.signature.defaults[i - num_required]));
    } else {
      scope.set(parameters[i],
                runtime_.undefined("parameter '" + parameters[i] + "' was not provided"));
    }
  }
}

Value Evaluator::call_macro(const Macro& macro, Arguments& given) {
  const CallGuard guard(runtime_);
  const OpenScope opened(scopes_, macro.scope);
  const Replaced<Scope*> scope(scope_, opened.get());
  const Replaced<Value> body(body_text_, Value());
  bind(macro, given, *scope_);
  return runtime_.text(output_of(macro.body));
}

// ---- statements ----

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::Next) return flow;
  }
  return Flow::Next;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  const CallGuard guard(runtime_);
  runtime_.meter().step();
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::Data: write(statement.text); break;
    case StatementKind::Output: write(to_text(runtime_, evaluate(*statement.value))); break;
    case StatementKind::If: return branch(statement);
    case StatementKind::For: loop(statement); break;
    case StatementKind::Set: set(statement); break;
    case StatementKind::SetBlock: assign(statement.target, captured(statement)); break;
    case StatementKind::With: with(statement); break;
    case StatementKind::Macro: scope_->set(statement.signature.name, macro_of(statement)); break;
    case StatementKind::CallBlock: call_block(statement); break;
    case StatementKind::FilterBlock: write(to_text(runtime_, captured(statement))); break;
    case StatementKind::Scope: {
      const OpenScope opened(scopes_, scope_);
      const Replaced<Scope*> scope(scope_, opened.get());
      execute(statement.body);
      break;
    }
    case StatementKind::Break: return Flow::Break;
    case StatementKind::Continue: return Flow::Continue;
  }
  return Flow::Next;
}

Evaluator::Flow Evaluator::branch(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (is_true(evaluate(*condition))) return execute(body);
  }
  return execute(statement.otherwise);
}

void Evaluator::loop(const Statement& statement) {
  std::vector<Value> entries = entries_of(runtime_, evaluate(*statement.value));
  Scope* const outer = scope_;
  const OpenScope opened(scopes_, outer);
  Scope* const inner = opened.get();
  std::function<bool(const Value&)> passes;
  if (statement.condition) {
    passes = [this, outer, &statement](const Value& entry) {
      const OpenScope tested(scopes_, outer);
      const Replaced<Scope*> scope(scope_, tested.get());
      assign(statement.target, entry);
      return is_true(evaluate(*statement.condition));
    };
  }
  const auto made = std::make_shared<Loop>(runtime_, std::move(entries), std::move(passes));
  // As in jinja2, the loop's else follows unless a pass went through to its end.
  bool has_passed = false;
  while (std::optional<Value> entry = made->advance()) {
    const Replaced<Scope*> scope(scope_, inner);
    inner->clear();
    inner->set("loop", Value(Kind::Loop, made));
    assign(statement.target, *entry);
    const Flow flow = execute(statement.body);
    if (flow == Flow::Break) break;
    has_passed = has_passed || flow == Flow::Next;
  }
  made->finish();
  if (has_passed || statement.otherwise.empty()) return;
  const OpenScope otherwise(scopes_, outer);
  const Replaced<Scope*> scope(scope_, otherwise.get());
  execute(statement.otherwise);
}

Value Evaluator::macro_of(const Statement& statement) {
  scope_->keep();
  return Value(Kind::Macro, std::make_shared<Macro>(&runtime_.meter(), statement.signature,
                                                    statement.body, scope_));
}

void Evaluator::set(const Statement& statement) {
  assign(statement.target, evaluate(*statement.value));
}

void Evaluator::call_block(const Statement& statement) {
  const Value called = evaluate(*statement.value->parts[0]);
  Arguments given = arguments(*statement.value);
  given.named.emplace_back("caller", macro_of(statement));
  write(to_text(runtime_, call_value(called, given)));
}

void Evaluator::with(const Statement& statement) {
  std::vector<Value> values;
  for (const auto& [target, value] : statement.assignments) values.push_back(evaluate(*value));
  const OpenScope opened(scopes_, scope_);
  const Replaced<Scope*> scope(scope_, opened.get());
  for (std::size_t i = 0; i < values.size(); ++i) {
    assign(statement.assignments[i].first, values[i]);
  }
  execute(statement.body);
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (target.name.empty()) return unpack(target, value);
  if (target.attribute.empty()) return scope_->set(target.name, value);
  const Value* space = scope_->find(target.name);
  if (space == nullptr || !space->is(Kind::Namespace)) {
    fail("cannot assign attribute on non-namespace object");
  }
  if (target.attribute.starts_with('_')) {
    fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" +
         target.attribute + "'. Please rename the attribute.");
  }
  space->as<Namespace>().attributes[target.attribute] = value;
}

void Evaluator::unpack(const Target& target, const Value& value) {
  require_defined(value);
  const std::vector<Value> entries = entries_of(runtime_, value);
  if (entries.size() != target.targets.size()) {
    fail(entries.size() < target.targets.size()
             ? fmt::format("not enough values to unpack (expected {}, got {})",
                           target.targets.size(), entries.size())
             : fmt::format("too many values to unpack (expected {})", target.targets.size()));
  }
  for (std::size_t i = 0; i < entries.size(); ++i) assign(target.targets[i], entries[i]);
}

Value Evaluator::captured(const Statement& statement) {
  std::string text;
  {
    const OpenScope opened(scopes_, scope_);
    const Replaced<Scope*> scope(scope_, opened.get());
    text = output_of(statement.body);
  }
  const Replaced<Value> body(body_text_, runtime_.text(std::move(text)));
  return evaluate(*statement.value);
}

}  // namespace metronome::jinja
