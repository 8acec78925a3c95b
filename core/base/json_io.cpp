// SPDX-License-Identifier: Apache-2.0
// Reads and writes JSON text with nlohmann/json.
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/clip.h"
#include "core/base/json.h"
#include "core/base/python_json.h"

namespace metronome {
namespace {

using Library = nlohmann::json;
using Reason = JsonError::Reason;

// Removes the library's error id: "[json.exception.parse_error.101] parse error at line 1, ...".
// Clips what it quotes of the text: "last read: '...'; expected end of input".
std::string message_of(const Library::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  const std::string_view message =
      std::string_view(text).substr(end == std::string::npos ? 0 : end + 2);
  for (const std::string_view before : {"last read: '", "number overflow parsing '"}) {
    const std::size_t found = message.find(before);
    if (found == std::string_view::npos) continue;
    const std::size_t begin = found + before.size();
    const std::size_t expected = message.rfind("'; expected ");
    const std::size_t close =
        expected != std::string_view::npos && expected >= begin ? expected : message.rfind('\'');
    if (close == std::string_view::npos || close < begin) continue;
    return std::string(message.substr(0, begin))
        .append(clipped(message.substr(begin, close - begin)))
        .append(message.substr(close));
  }
  return std::string(message);
}

// Forwards the library's parse events to JsonEvents.
class Listener {
 public:
  explicit Listener(JsonEvents& events) : events_(events) {}

  bool null() {
    events_.null();
    return true;
  }
  bool boolean(bool value) {
    events_.boolean(value);
    return true;
  }
  bool number_integer(std::int64_t value) {
    events_.integer(value);
    return true;
  }
  bool number_unsigned(std::uint64_t value) {
    events_.unsigned_integer(value);
    return true;
  }
  bool number_float(double value, const std::string& /*text*/) {
    events_.number(value);
    return true;
  }
  bool string(const std::string& value) {
    events_.string(value);
    return true;
  }
  bool binary(Library::binary_t& /*value*/) { return false; }  // not in JSON
  bool key(const std::string& name) {
    events_.key(name);
    return true;
  }
  bool start_object(std::size_t /*size*/) {
    events_.begin_object();
    return true;
  }
  bool end_object() {
    events_.end_object();
    return true;
  }
  bool start_array(std::size_t /*size*/) {
    events_.begin_array();
    return true;
  }
  bool end_array() {
    events_.end_array();
    return true;
  }
  bool parse_error(std::size_t byte, const std::string& /*token*/,
                   const Library::exception& error) {
    const bool is_range = dynamic_cast<const Library::out_of_range*>(&error) != nullptr;
    throw JsonError(is_range ? Reason::NumberTooLarge : Reason::NoJson, message_of(error), byte);
  }

 private:
  JsonEvents& events_;
};

// Builds the value of a text.
class Builder : public JsonEvents {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  Json take() { return std::move(root_); }

  void null() override { put(nullptr); }
  void boolean(bool value) override { put(value); }
  void integer(std::int64_t value) override { put(value); }
  void unsigned_integer(std::uint64_t value) override { put(value); }
  void number(double value) override { put(value); }
  void string(std::string_view value) override { put(value); }
  void key(std::string_view name) override {
    Json& object = *open_.back();
    if (limits_.keys_once && object.contains(name)) {
      const std::string key = path_of(name);
      throw JsonError(Reason::KeyTwice, "key '" + key + "' appears twice", 0, key);
    }
    member_ = &object[name];
  }
  void begin_object() override { open(Json::object()); }
  void end_object() override { open_.pop_back(); }
  void begin_array() override { open(Json::array()); }
  void end_array() override { open_.pop_back(); }

 private:
  Json& put(Json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_object()) return *member_ = std::move(value);
    open_.back()->push_back(std::move(value));
    return open_.back()->back();
  }

  // The keys and positions that lead to a key of the last container: "messages[0].role".
  std::string path_of(std::string_view name) const {
    std::string path;
    for (std::size_t i = 0; i + 1 < open_.size(); ++i) {
      const Json& container = *open_[i];
      path += container.is_object() ? (path.empty() ? "" : ".") + container.items().back().key
                                    : fmt::format("[{}]", container.size() - 1);
    }
    return path.append(path.empty() ? "" : ".").append(name);
  }

  void open(Json container) {
    if (open_.size() == limits_.max_depth) {
      throw JsonError(
          Reason::TooDeep,
          fmt::format("arrays and objects are nested more than {} levels deep", limits_.max_depth));
    }
    open_.push_back(&put(std::move(container)));
  }

  const JsonLimits& limits_;
  Json root_;
  // Open containers. Only the last one grows, so none of them moves.
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // value of the last container's current key
};

// Writes a value in the library's format.
class Writer {
 public:
  Writer(const JsonStyle& style, std::string& out, bool names_infinity = false)
      : style_(style), out_(out), names_infinity_(names_infinity) {}

  void write(const Json& json, std::size_t depth) {
    if (json.is_object()) {
      write_object(json, depth);
    } else if (json.is_array()) {
      write_array(json, depth);
    } else if (json.is_string()) {
      write_string(json.string());
    } else if (json.is_number_unsigned()) {
      out_ += std::to_string(json.get<std::uint64_t>());
    } else if (json.is_number_integer()) {
      out_ += std::to_string(json.get<std::int64_t>());
    } else if (json.is_number()) {
      write_number(json.get<double>());
    } else {
      out_ += json.is_null() ? "null" : json.get<bool>() ? "true" : "false";
    }
  }

 private:
  void write_number(double number) {
    if (!names_infinity_ || std::isfinite(number)) {
      out_ += Library(number).dump();  // null where it is not finite
    } else {
      out_ += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    }
  }

  void write_object(const Json& json, std::size_t depth) {
    const char* separator = "{";
    const auto write_member = [&](const Json::Member& member) {
      out_ += std::exchange(separator, ",");
      break_line(depth + 1);
      write_string(member.key);
      out_ += style_.indent < 0 ? ":" : ": ";
      write(member.value, depth + 1);
    };
    if (style_.sorts_keys) {
      for (const Json::Member* member : json.sorted_items()) write_member(*member);
    } else {
      for (const Json::Member& member : json.items()) write_member(member);
    }
    if (json.empty()) {
      out_ += "{}";
    } else {
      break_line(depth);
      out_ += '}';
    }
  }

  void write_array(const Json& json, std::size_t depth) {
    const char* separator = "[";
    for (const Json& entry : json) {
      out_ += std::exchange(separator, ",");
      break_line(depth + 1);
      write(entry, depth + 1);
    }
    if (json.empty()) {
      out_ += "[]";
    } else {
      break_line(depth);
      out_ += ']';
    }
  }

  void write_string(const std::string& text) {
    const auto is_plain = [](char c) { return c >= ' ' && c < '\x7f' && c != '"' && c != '\\'; };
    if (std::all_of(text.begin(), text.end(), is_plain)) {
      out_.append("\"").append(text).append("\"");
    } else {
      using Handler = Library::error_handler_t;
      out_ += Library(text).dump(-1, ' ', style_.escapes_non_ascii,
                                 style_.replaces_bad_utf8 ? Handler::replace : Handler::strict);
    }
  }

  void break_line(std::size_t depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(depth * static_cast<std::size_t>(style_.indent), ' ');
  }

  const JsonStyle& style_;
  std::string& out_;
  const bool names_infinity_;
};

// Python's words for numbers that JSON lacks, and what they are.
struct PythonWord {
  std::string_view word;
  double number;
};
constexpr std::array<PythonWord, 3> kPythonWords = {{
    {"-Infinity", -std::numeric_limits<double>::infinity()},
    {"Infinity", std::numeric_limits<double>::infinity()},
    {"NaN", std::numeric_limits<double>::quiet_NaN()},
}};

constexpr char kFiller = '\x7f';  // texts with it are read without these words

// A string as long as the word, so that errors name the right byte.
std::string stand_in(std::string_view word) {
  return '"' + std::string(word.size() - 2, kFiller) + '"';
}

// The text with a stand-in for each word outside strings.
std::string with_stand_ins(std::string_view text) {
  std::string result(text);
  bool is_in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      is_in_string = !is_in_string;
    } else if (!is_in_string) {
      for (const PythonWord& word : kPythonWords) {
        if (!text.substr(i).starts_with(word.word)) continue;
        result.replace(i, word.word.size(), stand_in(word.word));
        i += word.word.size() - 1;
        break;
      }
    }
  }
  return result;
}

// Builds the value of a text with stand-ins.
class PythonBuilder final : public Builder {
 public:
  using Builder::Builder;

  void string(std::string_view value) override {
    for (const PythonWord& word : kPythonWords) {
      if (!is_stand_in(value, word)) continue;
      return number(word.number);
    }
    Builder::string(value);
  }
  void key(std::string_view name) override {
    for (const PythonWord& word : kPythonWords) {
      if (!is_stand_in(name, word)) continue;
      throw JsonError(Reason::NoJson, std::string(word.word) + " is not a key");
    }
    Builder::key(name);
  }

 private:
  static bool is_stand_in(std::string_view text, const PythonWord& word) {
    return text.size() == word.word.size() - 2 &&
           text.find_first_not_of(kFiller) == std::string_view::npos;
  }
};

}  // namespace

void parse_json(std::string_view text, JsonEvents& events) {
  Listener listener(events);
  Library::sax_parse(text.begin(), text.end(), &listener);
}

Json Json::parse(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  parse_json(text, builder);
  return builder.take();
}

Json parse_python_json(std::string_view text, const JsonLimits& limits) {
  const bool has_words =
      text.find("Infinity") != std::string_view::npos || text.find("NaN") != std::string_view::npos;
  if (!has_words || text.find(kFiller) != std::string_view::npos) return Json::parse(text, limits);
  PythonBuilder builder(limits);
  parse_json(with_stand_ins(text), builder);
  return builder.take();
}

std::string python_json_line(const Json& json) {
  const JsonStyle style{.escapes_non_ascii = true, .replaces_bad_utf8 = true, .sorts_keys = true};
  std::string text;
  Writer(style, text, true).write(json, 0);
  return text;
}

std::optional<Json> Json::try_parse(std::string_view text) {
  try {
    return parse(text);
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

std::string Json::dump(const JsonStyle& style) const {
  std::string text;
  try {
    Writer(style, text).write(*this, 0);
  } catch (const Library::exception& error) {
    throw JsonError(Reason::Misuse, message_of(error));
  }
  return text;
}

}  // namespace metronome
