// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/base/math.h"
#include "models/text/jinja/characters.h"
#include "models/text/jinja/methods.h"

namespace metronome::jinja {
namespace {

std::string_view symbol_of(Operator op) {
  switch (op) {
    case Operator::Add: return "+";
    case Operator::Subtract: return "-";
    case Operator::Multiply: return "*";
    case Operator::Divide: return "/";
    case Operator::FloorDivide: return "//";
    case Operator::Remainder: return "%";
    case Operator::Power: return "** or pow()";
    case Operator::Less: return "<";
    case Operator::LessEqual: return "<=";
    case Operator::Greater: return ">";
    case Operator::GreaterEqual: return ">=";
    default: return "in";
  }
}

[[noreturn]] void fail_types(Operator op, const Value& left, const Value& right) {
  fail("unsupported operand type(s) for " + std::string(symbol_of(op)) + ": '" +
       std::string(type_name(left)) + "' and '" + std::string(type_name(right)) + "'");
}

[[noreturn]] void fail_overflow() { fail("an integer does not fit into 64 bits"); }

std::int64_t power_of(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (;;) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == -1) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &result)) fail_overflow();
    return result;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value float_power(double a, double b) {
  if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
  if (a >= 0 || a != a) return Value(pow_of(a, b));
  if (b != std::floor(b)) fail("a power that is a complex number is not supported");
  const bool is_odd = std::abs(std::fmod(b, 2)) == 1;
  return Value(is_odd ? -pow_of(-a, b) : pow_of(-a, b));
}

Value integer_arithmetic(Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Operator::Add:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case Operator::Subtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case Operator::Multiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value(result);
    case Operator::Power:
      if (b < 0) return float_power(static_cast<double>(a), static_cast<double>(b));
      return Value(power_of(a, b));
    default: break;
  }
  if (b == 0) fail(op == Operator::Divide ? "division by zero" : "integer modulo by zero");
  if (op == Operator::Divide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (op == Operator::FloorDivide) return Value(floor_quotient(a, b));
  if (b == -1) return Value(std::int64_t{0});
  const std::int64_t rest = a % b;
  return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value float_arithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::Add: return Value(a + b);
    case Operator::Subtract: return Value(a - b);
    case Operator::Multiply: return Value(a * b);
    case Operator::Power: return float_power(a, b);
    default: break;
  }
  if (b == 0) fail("float division by zero");
  if (op == Operator::Divide) return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == Operator::Remainder) return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - rest) / b;
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return Value(quotient == 0 ? std::copysign(0.0, a / b) : whole);
}

Value repeated(Runtime& runtime, const Value& what, std::int64_t count) {
  const auto times = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  if (what.is_string()) {
    const std::string& text = what.text();
    if (times > 0 && text.size() > SIZE_MAX / times) runtime.meter().expect(SIZE_MAX);
    runtime.meter().expect(text.size() * times);
    std::string result;
    result.reserve(text.size() * times);
    for (std::size_t i = 0; i < times && !text.empty(); ++i) result += text;
    return what.as<Text>().is_safe ? runtime.safe_text(std::move(result))
                                   : runtime.text(std::move(result));
  }
  const auto& entries = what.as<List>().entries;
  if (times > 0 && entries.size() > SIZE_MAX / sizeof(Value) / times) {
    runtime.meter().expect(SIZE_MAX);
  }
  runtime.meter().expect(entries.size() * sizeof(Value) * times);
  std::vector<Value> result;
  for (std::size_t i = 0; i < times && !entries.empty(); ++i) {
    result.insert(result.end(), entries.begin(), entries.end());
  }
  return what.is(Kind::List) ? runtime.list(std::move(result)) : runtime.tuple(std::move(result));
}

Value joined(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string()) {
    const bool left_is_safe = left.as<Text>().is_safe;
    const bool right_is_safe = right.as<Text>().is_safe;
    runtime.meter().expect(left.text().size() + right.text().size());
    if (left_is_safe == right_is_safe) {
      std::string text = left.text() + right.text();
      return left_is_safe ? runtime.safe_text(std::move(text)) : runtime.text(std::move(text));
    }
    // As markupsafe does: the text that is not marked as safe is escaped.
    return runtime.safe_text((left_is_safe ? left.text() : escaped_html(left.text())) +
                             (right_is_safe ? right.text() : escaped_html(right.text())));
  }
  std::vector<Value> entries = entries_of(runtime, left);
  const auto& more = right.as<List>().entries;
  runtime.meter().expect((entries.size() + more.size()) * sizeof(Value));
  entries.insert(entries.end(), more.begin(), more.end());
  return left.is(Kind::List) ? runtime.list(std::move(entries)) : runtime.tuple(std::move(entries));
}

bool is_sequence(const Value& value) {
  return value.is_string() || value.is(Kind::List) || value.is(Kind::Tuple);
}

// Python's slice.indices() for a length.
struct Indices {
  std::int64_t start, stop, step, size;
};

Indices indices_of(std::int64_t length, const Value* start, const Value* stop, const Value* step) {
  const auto number = [](const Value* value) -> std::optional<std::int64_t> {
    if (value == nullptr || value->is(Kind::None)) return std::nullopt;
    if (!value->is_integral()) {
      fail("slice indices must be integers or None or have an __index__ method");
    }
    return value->integer();
  };
  Indices result{0, 0, number(step).value_or(1), 0};
  if (result.step == 0) fail("slice step cannot be zero");
  // A larger step picks one entry as well.
  result.step = std::clamp(result.step, -std::max<std::int64_t>(length, 1),
                           std::max<std::int64_t>(length, 1));
  const bool is_forward = result.step > 0;
  const std::int64_t low = is_forward ? 0 : -1;
  const std::int64_t high = is_forward ? length : length - 1;
  const auto bound = [&](const Value* value, std::int64_t otherwise) {
    const std::optional<std::int64_t> given = number(value);
    if (!given) return otherwise;
    return *given < 0 ? std::max(*given + length, low) : std::min(*given, high);
  };
  result.start = bound(start, is_forward ? low : high);
  result.stop = bound(stop, is_forward ? high : low);
  if (is_forward) {
    if (result.start < result.stop) {
      result.size = (result.stop - result.start - 1) / result.step + 1;
    }
  } else if (result.stop < result.start) {
    result.size = (result.start - result.stop - 1) / -result.step + 1;
  }
  return result;
}

Value no_item(Runtime& runtime, const Value& object, const Value& key) {
  if (key.is_string()) {
    return runtime.undefined("'" + object_name(object) + "' has no attribute '" + key.text() + "'");
  }
  return runtime.undefined(object_name(object) + " has no element " + to_repr(runtime, key));
}

// The entry of a sequence; nullopt where Python raises an IndexError or a TypeError.
std::optional<Value> entry_of(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is(Kind::Dict)) {
    if (key.is(Kind::List) || key.is(Kind::Dict)) return std::nullopt;
    const Value* found = object.as<Dict>().find(key);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (!is_sequence(object) && !object.is(Kind::Range)) return std::nullopt;
  if (!key.is_integral()) return std::nullopt;
  const std::int64_t length = length_of(object);
  const std::int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return std::nullopt;
  if (object.is(Kind::Range)) {
    return Value(object.as<Range>().start + index * object.as<Range>().step);
  }
  if (!object.is_string()) return object.as<List>().entries[static_cast<std::size_t>(index)];
  runtime.meter().work(object.text().size());
  return runtime.text(picked_of(object.as<Text>(), index, 1, 1));
}

}  // namespace

std::string escaped_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '\'': result += "&#39;"; break;
      case '"': result += "&#34;"; break;
      default: result += c;
    }
  }
  return result;
}

Value arithmetic(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  require_defined(left);
  if (op == Operator::Remainder && left.is_string()) {
    if (left.as<Text>().is_safe) fail("a format that is marked as safe is not supported");
    return runtime.text(printf_text(runtime, left.text(), right));
  }
  require_defined(right);
  if (left.is_integral() && right.is_integral()) {
    return integer_arithmetic(op, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) {
    return float_arithmetic(op, left.real(), right.real());
  }
  if (op == Operator::Add && left.kind() == right.kind() && is_sequence(left)) {
    return joined(runtime, left, right);
  }
  if (op == Operator::Multiply && is_sequence(left) && right.is_integral()) {
    return repeated(runtime, left, right.integer());
  }
  if (op == Operator::Multiply && is_sequence(right) && left.is_integral()) {
    return repeated(runtime, right, left.integer());
  }
  fail_types(op, left, right);
}

bool compare(Runtime& runtime, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::Equal: return is_equal(runtime, left, right);
    case Operator::NotEqual: return !is_equal(runtime, left, right);
    case Operator::In: return contains(runtime, right, left);
    case Operator::NotIn: return !contains(runtime, right, left);
    case Operator::Less: return is_less(runtime, left, right);
    case Operator::Greater: return is_less(runtime, right, left);
    default: break;
  }
  // With NaN, <= is not the opposite of >.
  if (left.is_number() && right.is_number() && is_equal(runtime, left, right)) return true;
  if (left.is_number() && right.is_number()) {
    return op == Operator::LessEqual ? is_less(runtime, left, right)
                                     : is_less(runtime, right, left);
  }
  return op == Operator::LessEqual ? !is_less(runtime, right, left)
                                   : !is_less(runtime, left, right);
}

Value negative(const Value& value) {
  require_defined(value);
  if (value.is(Kind::Float)) return Value(-value.real());
  if (!value.is_integral()) {
    fail("bad operand type for unary -: '" + std::string(type_name(value)) + "'");
  }
  return integer_arithmetic(Operator::Subtract, 0, value.integer());
}

Value positive(const Value& value) {
  require_defined(value);
  if (value.is(Kind::Float)) return value;
  if (!value.is_integral()) {
    fail("bad operand type for unary +: '" + std::string(type_name(value)) + "'");
  }
  return Value(value.integer());
}

bool contains(Runtime& runtime, const Value& container, const Value& value) {
  switch (container.kind()) {
    case Kind::String:
      if (!value.is_string()) {
        fail("'in <string>' requires string as left operand, not " + std::string(type_name(value)));
      }
      runtime.meter().work(container.text().size());
      return container.text().find(value.text()) != std::string::npos;
    case Kind::Dict: return container.as<Dict>().find(value) != nullptr;
    case Kind::Undefined: return false;
    case Kind::List:
    case Kind::Tuple: {
      const auto& entries = container.as<List>().entries;
      return std::any_of(entries.begin(), entries.end(), [&](const Value& entry) {
        return entry.object() != nullptr && entry.object() == value.object()
                   ? true
                   : is_equal(runtime, entry, value);
      });
    }
    case Kind::View:
    case Kind::Iterator:
    case Kind::Range: {
      const std::vector<Value> entries = entries_of(runtime, container);
      return std::any_of(entries.begin(), entries.end(),
                         [&](const Value& entry) { return is_equal(runtime, entry, value); });
    }
    default: fail("argument of type '" + std::string(type_name(container)) + "' is not iterable");
  }
}

Value item_of(Runtime& runtime, const Value& object, const Value& key) {
  require_defined(object);
  if (std::optional<Value> entry = entry_of(runtime, object, key)) return std::move(*entry);
  if (key.is_string()) {
    if (std::optional<Value> found = own_attribute(runtime, object, key.text())) return *found;
  }
  return no_item(runtime, object, key);
}

Value attribute_of(Runtime& runtime, const Value& object, std::string_view name) {
  require_defined(object);
  if (std::optional<Value> found = own_attribute(runtime, object, name)) return std::move(*found);
  if (object.is(Kind::Dict)) {
    if (const Value* found = object.as<Dict>().find(name)) return *found;
  }
  return runtime.undefined("'" + object_name(object) + "' has no attribute '" + std::string(name) +
                           "'");
}

Value slice_of(Runtime& runtime, const Value& object, const Value* start, const Value* stop,
               const Value* step) {
  require_defined(object);
  if (!is_sequence(object) && !object.is(Kind::Range)) {
    fail("'" + std::string(type_name(object)) + "' object cannot be sliced");
  }
  const Indices indices = indices_of(length_of(object), start, stop, step);
  if (object.is_string()) {
    runtime.meter().work(object.text().size());
    if (indices.step != 1) runtime.meter().expect(object.text().size() * 16);
    return runtime.text(picked_of(object.as<Text>(), indices.start, indices.step, indices.size));
  }
  if (object.is(Kind::Range)) {
    const auto& range = object.as<Range>();
    return Value(Kind::Range,
                 std::make_shared<Range>(&runtime.meter(), range.start + indices.start * range.step,
                                         range.start + indices.stop * range.step,
                                         range.step * indices.step));
  }
  const auto& all = object.as<List>().entries;
  std::vector<Value> entries;
  for (std::int64_t i = 0; i < indices.size; ++i) {
    entries.push_back(all[static_cast<std::size_t>(indices.start + i * indices.step)]);
  }
  return object.is(Kind::List) ? runtime.list(std::move(entries))
                               : runtime.tuple(std::move(entries));
}

}  // namespace metronome::jinja
