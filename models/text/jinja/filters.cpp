// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/filters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/base/number_chars.h"
#include "models/text/jinja/characters.h"
#include "models/text/jinja/methods.h"
#include "models/text/jinja/operators.h"
#include "models/text/utf8.h"

namespace metronome::jinja {
namespace {

// A text that keeps its mark as safe where jinja2's soft_str does.
const Value soft_text(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : runtime.text(to_text(runtime, value));
}

template <const auto& Name>
Value as_method(Runtime& runtime, const Value& value, Arguments& arguments) {
  return text_method(Name)(runtime, soft_text(runtime, value), arguments);
}
constexpr const char* kCapitalize = "capitalize";
constexpr const char* kLower = "lower";
constexpr const char* kUpper = "upper";
constexpr const char* kTrim = "strip";

Value center(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("center", {"width"});
  Arguments width;
  width.positional = {Value(arguments.integer(0, 80))};
  return text_method("center")(runtime, soft_text(runtime, value), width);
}

// A word begins behind a space, a dash or an opening bracket.
Value title(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("title", {});
  const std::string text = to_text(runtime, value);
  runtime.meter().expect(text.size() * 8);
  std::string result;
  std::size_t begin = 0;
  const auto add = [&](std::size_t end) {
    if (begin == end) return;
    const std::string_view word = std::string_view(text).substr(begin, end - begin);
    const std::size_t first = read_utf8(word).num_bytes;
    result.append(to_upper(word.substr(0, first))).append(to_lower(word.substr(first)));
  };
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char next = read_utf8(std::string_view(text).substr(at));
    const bool is_break = is_space(next.code_point) || next.code_point == '-' ||
                          next.code_point == '(' || next.code_point == '{' ||
                          next.code_point == '[' || next.code_point == '<';
    if (is_break) {
      add(at);
      result.append(text, at, next.num_bytes);
      begin = at + next.num_bytes;
    }
    at += next.num_bytes;
  }
  add(text.size());
  return runtime.text(std::move(result));
}

Value replace(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("replace", {"old", "new", "count"}, 2);
  const Value* count = arguments.find(2);
  const std::int64_t max = count == nullptr || count->is(Kind::None) ? -1 : arguments.integer(2, 0);
  return runtime.text(replaced(runtime, to_text(runtime, value), to_text(runtime, arguments.at(0)),
                               to_text(runtime, arguments.at(1)), max));
}

Value indent(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("indent", {"width", "first", "blank"});
  require_defined(value);
  if (!value.is_string()) fail("indent: needs a text, not '" + std::string(type_name(value)) + "'");
  const Value* width = arguments.find(0);
  std::string indention;
  if (width != nullptr && width->is_string()) {
    indention = width->text();
  } else {
    const auto count = std::max<std::int64_t>(arguments.integer(0, 4), 0);
    runtime.meter().expect(static_cast<std::size_t>(count));
    indention.assign(static_cast<std::size_t>(count), ' ');
  }
  const std::string text = value.text() + "\n";
  const bool fills_blank = arguments.truth(2, false);
  std::string result = arguments.truth(1, false) ? indention : "";
  const std::vector<std::string_view> lines = lines_of(text);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result += '\n';
    if (i > 0 && (fills_blank || !lines[i].empty())) result += indention;
    result += lines[i];
    runtime.meter().expect(result.size());
  }
  return runtime.text(std::move(result));
}

Value truncate(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("truncate", {"length", "killwords", "end", "leeway"});
  const std::string text = to_text(runtime, value);
  const std::string end = arguments.find(2) ? arguments.text(2) : "...";
  const Text whole(nullptr, text);
  const std::int64_t length = arguments.integer(0, 255);
  const std::int64_t end_length = num_characters(Text(nullptr, end));
  const Value* given = arguments.find(3);
  const std::int64_t leeway =
      given == nullptr || given->is(Kind::None) ? 5 : arguments.integer(3, 5);
  if (length < end_length || leeway < 0) {
    fail("truncate: the length is below that of its end, or the leeway below 0");
  }
  if (num_characters(whole) - leeway <= length) return runtime.text(text);
  std::string kept = picked_of(whole, 0, 1, length - end_length);
  if (!arguments.truth(1, false)) kept = kept.substr(0, kept.rfind(' '));
  return runtime.text(kept + end);
}

Value wordcount(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("wordcount", {});
  const std::string text = to_text(runtime, value);
  std::int64_t count = 0;
  bool was_inside = false;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Char next = read_utf8(rest);
    const char32_t c = next.code_point;
    const bool is_inside = c == '_' || is_letter(c) || is_numeric(c);
    if (is_inside && !was_inside) ++count;
    was_inside = is_inside;
    rest.remove_prefix(next.num_bytes);
  }
  return Value(count);
}

Value format(Runtime& runtime, const Value& value, Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  if (arguments.named.empty()) {
    return runtime.text(printf_text(runtime, to_text(runtime, value),
                                    runtime.tuple(std::move(arguments.positional))));
  }
  const std::shared_ptr<Dict> values = runtime.dict();
  for (const auto& [name, entry] : arguments.named) values->set(runtime.text(name), entry);
  return runtime.text(printf_text(runtime, to_text(runtime, value), Value(Kind::Dict, values)));
}

Value string(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("string", {});
  return soft_text(runtime, value);
}

Value safe(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("safe", {});
  return runtime.safe_text(to_text(runtime, value));
}

Value escape(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("escape", {});
  if (value.is_string() && value.as<Text>().is_safe) return value;
  const std::string text = to_text(runtime, value);
  runtime.meter().expect(text.size() * 5);
  return runtime.safe_text(escaped_html(text));
}

Value tojson(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonForm form;
  form.escapes_non_ascii = arguments.truth(0, false);
  form.sorts_keys = arguments.truth(3, false);
  const Value* given = arguments.find(1);
  if (given != nullptr && !given->is(Kind::None)) {
    form.is_indented = true;
    form.item_separator = ",";
    if (given->is_string()) {
      form.indent = given->text();
    } else {
      constexpr std::int64_t kMaxIndent = 1000;
      const std::int64_t width = arguments.integer(1, 0);
      if (width > kMaxIndent) fail("tojson: indent is too large; allowed: up to 1000");
      form.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
    }
  }
  const Value* separators = arguments.find(2);
  if (separators != nullptr && !separators->is(Kind::None)) {
    const std::vector<Value> both = entries_of(runtime, *separators);
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string()) {
      fail("tojson: separators must be two texts");
    }
    form.item_separator = both[0].text();
    form.key_separator = both[1].text();
  }
  return runtime.text(json_text(runtime, value, form));
}

Value absolute(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("abs", {});
  require_defined(value);
  if (value.is(Kind::Float)) return Value(std::abs(value.real()));
  if (!value.is_integral()) {
    fail("bad operand type for abs(): '" + std::string(type_name(value)) + "'");
  }
  return value.integer() < 0 ? negative(value) : Value(value.integer());
}

// Digits in a base, with Python's underscores and spaces around.
std::optional<std::int64_t> parsed_integer(std::string_view text, std::int64_t base) {
  text = stripped(text, nullptr, true, true);
  bool is_negative = false;
  if (text.starts_with('-') || text.starts_with('+')) {
    is_negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto has_prefix = [&](char lower) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == lower;
  };
  if ((base == 16 && has_prefix('x')) || (base == 8 && has_prefix('o')) ||
      (base == 2 && has_prefix('b'))) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  }
  std::string digits = is_negative ? "-" : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_between = text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (!is_between) digits += text[i];
  }
  if (digits.size() > 1 && is_negative && digits[1] == '-') return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] =
      read_number(digits.data(), digits.data() + digits.size(), number, static_cast<int>(base));
  if (error == std::errc::result_out_of_range) fail("an integer does not fit into 64 bits");
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<double> parsed_float(std::string_view text) {
  text = stripped(text, nullptr, true, true);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (text[i] != '_' || i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) digits += text[i];
  }
  double number = 0;
  const auto [end, error] = read_number(digits.data(), digits.data() + digits.size(), number);
  if (end != digits.data() + digits.size() || digits.find('(') != digits.npos) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // Too large or too small.
    const bool is_small = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos ||
                          digits.starts_with("0.") || digits.starts_with("-0.");
    const double size = is_small ? 0.0 : HUGE_VAL;
    return digits.starts_with('-') ? -size : size;
  }
  return error == std::errc() ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> truncated(double number) {
  if (std::isnan(number) || std::isinf(number)) return std::nullopt;
  if (!(std::abs(number) < 9.2e18)) fail("an integer does not fit into 64 bits");
  return static_cast<std::int64_t>(number);
}

Value to_integer(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("int", {"default", "base"});
  require_defined(value);
  const std::int64_t base = arguments.integer(1, 10);
  if (base < 2 || base > 36) fail("int() base must be from 2 to 36");
  std::optional<std::int64_t> number;
  if (value.is_integral()) return Value(value.integer());
  if (value.is(Kind::Float)) {
    if (std::isinf(value.real())) fail("cannot convert float infinity to integer");
    number = truncated(value.real());
  } else if (value.is_string()) {
    number = parsed_integer(value.text(), base);
    if (!number) {
      if (const std::optional<double> real = parsed_float(value.text())) number = truncated(*real);
    }
  }
  if (number) return Value(*number);
  return arguments.find(0) ? arguments.at(0) : Value(std::int64_t{0});
}

Value to_float(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("float", {"default"});
  require_defined(value);
  if (value.is_number()) return Value(value.real());
  if (value.is_string()) {
    if (const std::optional<double> number = parsed_float(value.text())) return Value(*number);
  }
  return arguments.find(0) ? arguments.at(0) : Value(0.0);
}

// Rounds the exact decimal value of the double, ties to even, as CPython does.
double rounded(double number, std::int64_t precision) {
  if (!std::isfinite(number) || precision > 340) return number;
  if (precision < -310) return std::copysign(0.0, number);
  char buffer[800];
  if (precision >= 0) {
    const auto end =
        write_fixed(buffer, buffer + sizeof buffer, number, static_cast<int>(precision));
    double result = 0;
    read_number(buffer, end.ptr, result);
    return result;
  }
  // Digits before the point: as many significant ones as stand before the rounded place.
  const auto whole =
      write_number(buffer, buffer + sizeof buffer, std::abs(number), std::chars_format::scientific);
  const std::string text(buffer, whole.ptr);
  const int digits = std::stoi(text.substr(text.find('e') + 1)) + static_cast<int>(precision);
  if (digits < -1) return std::copysign(0.0, number);
  double scale = 1;
  for (std::int64_t i = 0; i < -precision; ++i) scale *= 10;
  return std::nearbyint(number / scale) * scale;
}

Value round(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("round", {"precision", "method"});
  require_defined(value);
  const std::int64_t precision = arguments.integer(0, 0);
  const std::string method = arguments.find(1) ? arguments.text(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("method must be common, ceil or floor");
  }
  if (!value.is_number()) {
    fail("type " + std::string(type_name(value)) + " doesn't define __round__ method");
  }
  if (method == "common") {
    if (!value.is_integral()) return Value(rounded(value.real(), precision));
    if (precision >= 0) return Value(value.integer());
    fail("round: an integer with a precision below 0 is not supported");
  }
  if (precision < -15 || precision > 15) fail("round: the precision must be from -15 to 15");
  double scale = 1;
  for (std::int64_t i = 0; i < std::abs(precision); ++i) scale *= 10;
  const double scaled = precision < 0 ? value.real() / scale : value.real() * scale;
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  return Value(precision < 0 ? whole * scale : whole / scale);
}

Value default_value(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("default", {"default_value", "boolean"});
  const bool is_replaced = value.is_undefined() || (arguments.truth(1, false) && !is_true(value));
  if (!is_replaced) return value;
  return arguments.find(0) ? arguments.at(0) : runtime.text({});
}

// Of other renderers; jinja2 has none. Arguments of tool calls come as objects or as texts.
Value from_json(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("from_json", {});
  require_defined(value);
  if (!value.is_string()) fail("from_json: must be a text, not " + std::string(type_name(value)));
  runtime.meter().work(value.text().size());
  runtime.meter().expect(value.text().size() * sizeof(Json));
  try {
    return runtime.from_json(Json::parse(value.text(), {.max_depth = kMaxValueDepth}));
  } catch (const JsonError& error) {
    fail(std::string("from_json: the text is not JSON: ") + error.what());
  }
}

// A method of the value, which llama.cpp's templates can also write as a filter.
template <const auto& Name>
Value own_method(Runtime& runtime, const Value& value, Arguments& arguments) {
  require_defined(value);
  const std::optional<Value> method = own_attribute(runtime, value, Name);
  if (!method || !method->is(Kind::Function)) {
    fail("the filter " + std::string(Name) + " needs a value with this method, not " +
         std::string(type_name(value)));
  }
  const auto& function = method->as<Function>();
  return function.call(runtime, function.self, arguments);
}
constexpr const char* kEndswith = "endswith";
constexpr const char* kGet = "get";
constexpr const char* kKeys = "keys";
constexpr const char* kLstrip = "lstrip";
constexpr const char* kRsplit = "rsplit";
constexpr const char* kRstrip = "rstrip";
constexpr const char* kSplit = "split";
constexpr const char* kStartswith = "startswith";
constexpr const char* kStrip = "strip";
constexpr const char* kValues = "values";

struct Filter {
  std::string_view name;
  Callable call;
};

constexpr auto kFilters = std::to_array<Filter>({
    {"abs", absolute},
    {"capitalize", as_method<kCapitalize>},
    {"center", center},
    {"d", default_value},
    {"default", default_value},
    {"e", escape},
    {"endswith", own_method<kEndswith>},
    {"escape", escape},
    {"float", to_float},
    {"format", format},
    {"from_json", from_json},
    {"get", own_method<kGet>},
    {"indent", indent},
    {"int", to_integer},
    {"keys", own_method<kKeys>},
    {"lower", as_method<kLower>},
    {"lstrip", own_method<kLstrip>},
    {"replace", replace},
    {"round", round},
    {"rsplit", own_method<kRsplit>},
    {"rstrip", own_method<kRstrip>},
    {"safe", safe},
    {"split", own_method<kSplit>},
    {"startswith", own_method<kStartswith>},
    {"strip", own_method<kStrip>},
    {"string", string},
    {"title", title},
    {"tojson", tojson},
    {"trim", as_method<kTrim>},
    {"truncate", truncate},
    {"upper", as_method<kUpper>},
    {"values", own_method<kValues>},
    {"wordcount", wordcount},
});

}  // namespace

Callable find_scalar_filter(std::string_view name) {
  const auto* const found = std::find_if(
      kFilters.begin(), kFilters.end(), [name](const Filter& entry) { return entry.name == name; });
  return found == kFilters.end() ? nullptr : found->call;
}

Callable find_filter(std::string_view name) {
  const Callable found = find_scalar_filter(name);
  return found != nullptr ? found : find_sequence_filter(name);
}

std::string filter_names() {
  return "abs, batch, capitalize, center, count, d, default, dictsort, e, endswith, escape, first, "
         "float, format, from_json, get, indent, int, items, join, keys, last, length, list, "
         "lower, lstrip, map, max, min, reject, rejectattr, replace, reverse, round, rsplit, "
         "rstrip, safe, select, selectattr, slice, sort, split, startswith, string, strip, sum, "
         "title, tojson, trim, truncate, unique, upper, values, wordcount";
}

}  // namespace metronome::jinja
