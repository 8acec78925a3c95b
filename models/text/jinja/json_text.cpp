// SPDX-License-Identifier: Apache-2.0
// Python's json.dumps, as transformers' filter tojson calls it.
#include <algorithm>
#include <array>
#include <cmath>

#include "models/text/jinja/filters.h"
#include "models/text/utf8.h"

namespace metronome::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonForm& form) : runtime_(runtime), form_(form) {}

  void write(const Value& value, std::size_t depth) {
    runtime_.meter().step();
    switch (value.kind()) {
      case Kind::None: out_ += "null"; break;
      case Kind::Boolean: out_ += value.integer() != 0 ? "true" : "false"; break;
      case Kind::Integer: out_ += std::to_string(value.integer()); break;
      case Kind::Float: out_ += number_text(value.real()); break;
      case Kind::String: write_text(value.text()); break;
      case Kind::List:
      case Kind::Tuple: write_list(value.as<List>().entries, depth); break;
      case Kind::Dict: write_dict(value.as<Dict>(), depth); break;
      default:
        fail("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
    }
    runtime_.meter().expect(out_.size());
  }

  std::string take() { return std::move(out_); }

 private:
  static std::string number_text(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
    return float_text(number);
  }

  void write_unit(unsigned unit) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += kDigits[unit >> shift & 15];
  }

  void write_text(std::string_view text) {
    runtime_.meter().work(text.size());
    out_ += '"';
    while (!text.empty()) {
      const Utf8Char next = read_utf8(text);
      const char32_t c = next.code_point;
      constexpr std::string_view kEscaped = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      const std::size_t known = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : kEscaped.npos;
      if (known != kEscaped.npos) {
        out_ += '\\';
        out_ += kLetters[known];
      } else if (c < 0x20 || (c >= 0x7f && form_.escapes_non_ascii && c != 0x7f)) {
        if (c >= 0x10000) write_unit(static_cast<unsigned>(0xd800 + ((c - 0x10000) >> 10)));
        write_unit(static_cast<unsigned>(c < 0x10000 ? c : 0xdc00 + (c & 0x3ff)));
      } else {
        out_ += text.substr(0, next.num_bytes);
      }
      text.remove_prefix(next.num_bytes);
    }
    out_ += '"';
  }

  void new_line(std::size_t depth) {
    if (!form_.is_indented) return;
    out_ += '\n';
    runtime_.meter().expect(out_.size() + depth * form_.indent.size());
    for (std::size_t i = 0; i < depth; ++i) out_ += form_.indent;
  }

  void write_list(const std::vector<Value>& entries, std::size_t depth) {
    out_ += '[';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += form_.item_separator;
      new_line(depth + 1);
      write(entries[i], depth + 1);
    }
    if (!entries.empty()) new_line(depth);
    out_ += ']';
  }

  std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Kind::String: return key.text();
      case Kind::None: return "null";
      case Kind::Boolean: return key.integer() != 0 ? "true" : "false";
      case Kind::Integer: return std::to_string(key.integer());
      case Kind::Float: return number_text(key.real());
      default:
        fail("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
    }
  }

  void write_dict(const Dict& dict, std::size_t depth) {
    std::vector<std::pair<Value, Value>> entries = dict.entries();
    runtime_.meter().work(entries.size() * 2 * sizeof(Value));
    if (form_.sorts_keys) {
      std::stable_sort(entries.begin(), entries.end(), [this](const auto& a, const auto& b) {
        return is_less(runtime_, a.first, b.first);
      });
    }
    out_ += '{';
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += form_.item_separator;
      new_line(depth + 1);
      write_text(key_text(entries[i].first));
      out_ += form_.key_separator;
      write(entries[i].second, depth + 1);
    }
    if (!entries.empty()) new_line(depth);
    out_ += '}';
  }

  Runtime& runtime_;
  const JsonForm& form_;
  std::string out_;
};

}  // namespace

std::string json_text(Runtime& runtime, const Value& value, const JsonForm& form) {
  JsonWriter writer(runtime, form);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace metronome::jinja
