// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/name_check.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "models/text/jinja/filters.h"
#include "models/text/jinja/methods.h"
#include "models/text/jinja/token_stream.h"

namespace metronome::jinja {
namespace {

// Filters and functions of jinja2 that are not here.
constexpr std::string_view kMissingFilters[] = {
    "attr",      "filesizeformat", "forceescape", "groupby",  "pprint", "random",
    "striptags", "urlencode",      "urlize",      "wordwrap", "xmlattr"};
constexpr std::string_view kMissingFunctions[] = {"lipsum", "cycler", "joiner"};

template <std::size_t N>
bool has(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Where a part of the tree stands.
struct Place {
  bool is_soft = false;       // jinja2's soft frame: directly in an `if`
  bool is_in_branch = false;  // somewhere in an `if`

  static Place of_branch() { return {.is_soft = true, .is_in_branch = true}; }
  // A loop, a macro or a block in it.
  Place inner() const { return {.is_soft = false, .is_in_branch = is_in_branch}; }
};

void check(const Expression& expression, Place place);

void check_if_any(const ExpressionPtr& expression, Place place) {
  if (expression) check(*expression, place);
}

[[noreturn]] void refuse(const Expression& expression, const std::string& kind,
                         const std::string& name, const std::string& allowed) {
  TokenStream::fail_at(expression.line, "the " + kind + " " + name.substr(0, 60) +
                                            " is not supported; allowed: " + allowed);
}

void check_call(const Expression& call) {
  const Expression& called = *call.parts[0];
  if (called.kind == ExpressionKind::Attribute && is_missing_method(called.name)) {
    refuse(call, "method", called.name + "()",
           "the methods of Python's str, list and dict that published templates call");
  }
  if (called.kind == ExpressionKind::Name && has(kMissingFunctions, called.name)) {
    refuse(call, "function", called.name + "()",
           "range, dict, namespace, raise_exception, strftime_now, and macros");
  }
}

void check_own_name(const Expression& expression, Place place) {
  if (expression.kind == ExpressionKind::Filter && expression.filter == nullptr) {
    const bool may_fail_later =
        has(kMissingFilters, expression.name) ? place.is_in_branch : place.is_soft;
    if (!may_fail_later) refuse(expression, "filter", expression.name, filter_names());
  }
  if (expression.kind == ExpressionKind::Test && expression.test == nullptr && !place.is_soft) {
    refuse(expression, "test", expression.name, test_names());
  }
  if (expression.kind == ExpressionKind::Call && !place.is_in_branch) check_call(expression);
}

void check(const Expression& expression, Place place) {
  if (expression.kind == ExpressionKind::Conditional) place = Place::of_branch();
  check_own_name(expression, place);
  for (const ExpressionPtr& part : expression.parts) check_if_any(part, place);
  for (const auto& [name, part] : expression.named) check_if_any(part, place);
  check_if_any(expression.starred, place);
  check_if_any(expression.double_starred, place);
}

void check_all(const Body& body, Place place);

void check(const Statement& statement, Place place) {
  for (const auto& [condition, body] : statement.branches) {
    check(*condition, Place::of_branch());
    check_all(body, Place::of_branch());
  }
  for (const auto& [target, value] : statement.assignments) check(*value, place);
  for (const ExpressionPtr& value : statement.signature.defaults) check(*value, place.inner());
  const bool is_of_block =
      statement.kind == StatementKind::SetBlock || statement.kind == StatementKind::FilterBlock;
  check_if_any(statement.value, is_of_block ? place.inner() : place);
  check_if_any(statement.condition, place.inner());
  check_all(statement.body, place.inner());
  check_all(statement.otherwise,
            statement.kind == StatementKind::If ? Place::of_branch() : place.inner());
}

void check_all(const Body& body, Place place) {
  for (const auto& statement : body) check(*statement, place);
}

}  // namespace

void check_names(const Body& body) { check_all(body, {}); }

}  // namespace metronome::jinja
