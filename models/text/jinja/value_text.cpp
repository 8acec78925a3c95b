// SPDX-License-Identifier: Apache-2.0
// Values as texts, and their equality and order.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/number_chars.h"
#include "models/text/jinja/characters.h"
#include "models/text/jinja/value.h"

namespace metronome::jinja {
namespace {

// Appends to a text that is checked against the memory of a rendering while it grows.
class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime) {}

  void write(const Value& value) {
    runtime_.meter().step();
    switch (value.kind()) {
      case Kind::Undefined: out_ += "Undefined"; break;
      case Kind::None: out_ += "None"; break;
      case Kind::Boolean: out_ += value.integer() != 0 ? "True" : "False"; break;
      case Kind::Integer: out_ += std::to_string(value.integer()); break;
      case Kind::Float: out_ += float_text(value.real()); break;
      case Kind::String: write_text(value); break;
      case Kind::List: write_entries(value.as<List>().entries, "[", "]"); break;
      case Kind::Tuple: {
        const auto& entries = value.as<List>().entries;
        write_entries(entries, "(", entries.size() == 1 ? ",)" : ")");
        break;
      }
      case Kind::Dict: write_dict(value.as<Dict>()); break;
      case Kind::View: write_view(value); break;
      case Kind::Range: write_range(value.as<Range>()); break;
      default:
        fail("the text of a '" + std::string(type_name(value)) + "' object is not supported");
    }
    runtime_.meter().expect(out_.size());
  }

  std::string take() { return std::move(out_); }

 private:
  void write_text(const Value& value) {
    if (!value.as<Text>().is_safe) return append_repr(value.text(), out_);
    out_ += "Markup(";
    append_repr(value.text(), out_);
    out_ += ')';
  }

  void write_entries(const std::vector<Value>& entries, const char* open, const char* close) {
    out_ += open;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += ", ";
      write(entries[i]);
    }
    out_ += close;
  }

  void write_dict(const Dict& dict) {
    out_ += '{';
    bool is_first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!is_first) out_ += ", ";
      is_first = false;
      write(key);
      out_ += ": ";
      write(value);
    }
    out_ += '}';
  }

  void write_view(const Value& value) {
    const View::Part part = value.as<View>().part;
    out_ += part == View::Part::Keys     ? "dict_keys("
            : part == View::Part::Values ? "dict_values("
                                         : "dict_items(";
    write_entries(entries_of(runtime_, value), "[", "])");
  }

  void write_range(const Range& range) {
    out_ += fmt::format("range({}, {}", range.start, range.stop);
    if (range.step != 1) out_ += fmt::format(", {}", range.step);
    out_ += ')';
  }

  Runtime& runtime_;
  std::string out_;
};

bool is_equal_entries(Runtime& runtime, const std::vector<Value>& a, const std::vector<Value>& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [&](const Value& x, const Value& y) { return is_equal(runtime, x, y); });
}

bool is_equal_dict(Runtime& runtime, const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const auto& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && is_equal(runtime, entry.second, *other);
  });
}

}  // namespace

// Python's repr: the shortest digits that give the number, with an exponent below 1e-4 and from
// 1e16 on.
std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto scientific =
      write_number(buffer, buffer + sizeof buffer, number, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const int exponent = std::stoi(text.substr(text.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = write_number(buffer, buffer + sizeof buffer, number, std::chars_format::fixed);
  std::string digits(buffer, fixed.ptr);
  return digits.find('.') == digits.npos ? digits + ".0" : digits;
}

std::string to_repr(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  writer.write(value);
  std::string text = writer.take();
  runtime.meter().work(text.size());
  return text;
}

std::string to_text(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return {};
  if (!value.is_string()) return to_repr(runtime, value);
  runtime.meter().work(value.text().size());
  runtime.meter().expect(value.text().size());
  return value.text();
}

bool is_equal(Runtime& runtime, const Value& a, const Value& b) {
  runtime.meter().step();
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.real() == b.real();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::Undefined:
    case Kind::None: return true;
    case Kind::String:
      runtime.meter().work(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Kind::List:
    case Kind::Tuple: return is_equal_entries(runtime, a.as<List>().entries, b.as<List>().entries);
    case Kind::Dict: return is_equal_dict(runtime, a.as<Dict>(), b.as<Dict>());
    case Kind::Range:
      return is_equal_entries(runtime, entries_of(runtime, a), entries_of(runtime, b));
    default: return a.object() == b.object();
  }
}

bool is_less(Runtime& runtime, const Value& a, const Value& b) {
  runtime.meter().step();
  require_defined(a);
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.real() < b.real();
  if (a.is_string() && b.is_string()) {
    runtime.meter().work(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // UTF-8 has the order of code points
  }
  if (a.kind() == b.kind() && (a.is(Kind::List) || a.is(Kind::Tuple))) {
    const auto& left = a.as<List>().entries;
    const auto& right = b.as<List>().entries;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
      if (!is_equal(runtime, left[i], right[i])) return is_less(runtime, left[i], right[i]);
    }
    return left.size() < right.size();
  }
  fail("'<' not supported between instances of '" + std::string(type_name(a)) + "' and '" +
       std::string(type_name(b)) + "'");
}

}  // namespace metronome::jinja
