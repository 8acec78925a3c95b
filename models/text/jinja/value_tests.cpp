// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/value_tests.h"

#include <algorithm>
#include <array>

#include "core/base/names.h"
#include "models/text/jinja/characters.h"
#include "models/text/jinja/filters.h"
#include "models/text/jinja/methods.h"
#include "models/text/jinja/operators.h"

namespace metronome::jinja {
namespace {

template <bool (*Holds)(const Value&)>
bool is_kind(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("a test", {});
  return Holds(value);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is(Kind::None); }
bool is_boolean(const Value& value) { return value.is(Kind::Boolean); }
bool is_false(const Value& value) { return value.is(Kind::Boolean) && value.integer() == 0; }
bool is_literal_true(const Value& value) { return value.is(Kind::Boolean) && value.integer() != 0; }
bool is_integer(const Value& value) { return value.is(Kind::Integer); }
bool is_float(const Value& value) { return value.is(Kind::Float); }
bool is_text(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::Dict); }
bool is_any_number(const Value& value) { return value.is_number(); }
bool is_escaped(const Value& value) { return value.is_string() && value.as<Text>().is_safe; }
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::List) ||
         value.is(Kind::Tuple) || value.is(Kind::Dict) || value.is(Kind::Range);
}
bool is_callable(const Value& value) {
  // jinja2's loops and undefined values have a method for calls.
  return value.is(Kind::Function) || value.is(Kind::Macro) || value.is(Kind::Loop) ||
         value.is_undefined();
}

bool is_cased(Runtime& runtime, const Value& value, Arguments& arguments, const char* method) {
  arguments.bind("a test", {});
  Arguments none;
  return is_true(text_method(method)(runtime, runtime.text(to_text(runtime, value)), none));
}
bool is_lower_text(Runtime& runtime, const Value& value, Arguments& arguments) {
  return is_cased(runtime, value, arguments, "islower");
}
bool is_upper_text(Runtime& runtime, const Value& value, Arguments& arguments) {
  return is_cased(runtime, value, arguments, "isupper");
}

bool remainder_is(Runtime& runtime, const Value& value, std::int64_t divisor,
                  std::int64_t expected) {
  const Value rest = arithmetic(runtime, Operator::Remainder, value, Value(divisor));
  return rest.is_number() && rest.real() == static_cast<double>(expected);
}

bool is_odd(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("odd", {});
  return remainder_is(runtime, value, 2, 1);
}
bool is_even(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("even", {});
  return remainder_is(runtime, value, 2, 0);
}
bool is_divisible(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("divisibleby", {"num"}, 1);
  const Value rest = arithmetic(runtime, Operator::Remainder, value, arguments.at(0));
  return rest.is_number() && rest.real() == 0;
}

template <Operator Op>
bool holds(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("a comparison", {"other"}, 1);
  return compare(runtime, Op, value, arguments.at(0));
}

bool is_same(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("sameas", {"other"}, 1);
  const Value& other = arguments.at(0);
  if (value.kind() != other.kind()) return false;
  if (value.object() != nullptr || other.object() != nullptr) {
    return value.object() == other.object();
  }
  return value.is(Kind::None) || value.integer() == other.integer();
}

bool is_name_of_filter(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("filter", {});
  return value.is_string() && find_filter(value.text()) != nullptr;
}
bool is_name_of_test(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("test", {});
  return value.is_string() && find_test(value.text()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  ValueTest test;
};

constexpr auto kTests = std::to_array<NamedTest>({
    {"boolean", is_kind<is_boolean>},
    {"callable", is_kind<is_callable>},
    {"defined", is_kind<is_defined>},
    {"divisibleby", is_divisible},
    {"eq", holds<Operator::Equal>},
    {"equalto", holds<Operator::Equal>},
    {"escaped", is_kind<is_escaped>},
    {"even", is_even},
    {"false", is_kind<is_false>},
    {"filter", is_name_of_filter},
    {"float", is_kind<is_float>},
    {"ge", holds<Operator::GreaterEqual>},
    {"greaterthan", holds<Operator::Greater>},
    {"gt", holds<Operator::Greater>},
    {"in", holds<Operator::In>},
    {"integer", is_kind<is_integer>},
    {"iterable", is_kind<is_iterable>},
    {"le", holds<Operator::LessEqual>},
    {"lessthan", holds<Operator::Less>},
    {"lower", is_lower_text},
    {"lt", holds<Operator::Less>},
    {"mapping", is_kind<is_mapping>},
    {"ne", holds<Operator::NotEqual>},
    {"none", is_kind<is_none>},
    {"number", is_kind<is_any_number>},
    {"odd", is_odd},
    {"sameas", is_same},
    {"sequence", is_kind<is_iterable>},
    {"string", is_kind<is_text>},
    {"test", is_name_of_test},
    {"true", is_kind<is_literal_true>},
    {"undefined", is_kind<is_undefined>},
    {"upper", is_upper_text},
    {"==", holds<Operator::Equal>},
    {"!=", holds<Operator::NotEqual>},
    {">", holds<Operator::Greater>},
    {">=", holds<Operator::GreaterEqual>},
    {"<", holds<Operator::Less>},
    {"<=", holds<Operator::LessEqual>},
});

}  // namespace

ValueTest find_test(std::string_view name) {
  const auto* const found = std::find_if(kTests.begin(), kTests.end(),
                                         [name](const auto& entry) { return entry.name == name; });
  return found == kTests.end() ? nullptr : found->test;
}

std::string test_names() {
  std::vector<std::string_view> names;
  for (const NamedTest& entry : kTests) names.push_back(entry.name);
  return join_names(names);
}

}  // namespace metronome::jinja
