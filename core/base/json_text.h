// SPDX-License-Identifier: Apache-2.0
// Appends JSON to one growing buffer. It uses no streams and no locale, and it allocates only to
// grow. This is fast enough for a line per step and per request.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/decimal_digits.h"
#include "core/base/number_chars.h"
#include "core/base/types.h"

namespace metronome {

class Json;

class JsonText {
 public:
  enum class Style : std::uint8_t { Compact, Indented };  // Indented: two spaces per level

  explicit JsonText(Style style = Style::Compact) : is_indented_(style == Style::Indented) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }

  // `name` must need no escapes.
  JsonText& key(std::string_view name) {
    separate();
    char* out = reserve(name.size() + 4);
    *out++ = '"';
    std::memcpy(out, name.data(), name.size());
    out += name.size();
    *out++ = '"';
    *out++ = ':';
    if (is_indented_) *out++ = ' ';
    advance_to(out);
    follows_value_ = false;
    return *this;
  }
  // A literal, whose length the compiler knows.
  template <std::size_t kSize>
  JsonText& key(const char (&name)[kSize]) {
    if (is_indented_) return key(std::string_view(name, kSize - 1));
    advance_to(write_key(name));
    follows_value_ = false;
    return *this;
  }

  template <std::integral Int>
  void value(Int number) {
    separate();
    advance_to(write_decimal(reserve(kDecimalBytes), number));
    follows_value_ = true;
  }
  void value(bool truth) { token(truth ? "true" : "false"); }
  // The shortest digits that read back as the same double; null unless finite.
  void value(double number) {
    if (!std::isfinite(number)) return null();
    separate();
    char* out = reserve(32);
    advance_to(write_number(out, out + 32, number).ptr);
    follows_value_ = true;
  }
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void null() { token("null"); }
  // Writes nanoseconds as milliseconds, exactly.
  void ms(TimeNs ns);
  // Writes nanoseconds as microseconds, exactly.
  void us(TimeNs ns);
  // Appends JSON text; the indented style indents its lines to the current level.
  void raw(std::string_view json);
  // Appends a value in the same way; bad UTF-8 in it is replaced.
  void subtree(const Json& json);

  template <class T>
  void field(std::string_view name, const T& content) {
    key(name).value(content);
  }
  // Writes a literal key and an integer in one step: most of every JSON Lines file.
  template <std::size_t kSize, std::integral Int>
  requires(!std::same_as<Int, bool>) void field(const char (&name)[kSize], const Int& number) {
    if (is_indented_) return key(name).value(number);
    advance_to(write_decimal(write_key(name), number));
    follows_value_ = true;
  }

  // Ends a line of a JSON Lines file.
  void end_line() {
    *reserve(1) = '\n';
    ++size_;
    follows_value_ = false;
  }

  // Puts the next array item on a new line. Requires a previous value.
  void break_line() {
    *reserve(1) = '\n';
    ++size_;
    follows_value_ = true;
  }

  std::string_view view() const { return {buffer_.get(), size_}; }
  std::size_t size() const { return size_; }
  void clear() {
    size_ = 0;
    follows_value_ = false;
  }

 private:
  char* reserve(std::size_t num_bytes) {
    if (capacity_ - size_ < num_bytes) grow(num_bytes);
    return buffer_.get() + size_;
  }
  // In compact style. Returns the end of the key, with room for a number.
  template <std::size_t kSize>
  char* write_key(const char (&name)[kSize]) {
    char* out = reserve(kSize + 4 + kDecimalBytes);
    *out = ',';
    out += follows_value_ ? 1 : 0;
    *out++ = '"';
    std::memcpy(out, name, kSize - 1);
    out += kSize - 1;
    *out++ = '"';
    *out++ = ':';
    return out;
  }
  void grow(std::size_t num_bytes);
  void advance_to(const char* end) { size_ = static_cast<std::size_t>(end - buffer_.get()); }
  // Writes the comma and the whitespace due before the next key or array item.
  void separate() {
    if (is_indented_) {
      separate_indented();
    } else if (follows_value_) {
      *reserve(1) = ',';
      ++size_;
    }
  }
  void separate_indented();
  void new_line();
  void append(std::string_view text) {
    std::memcpy(reserve(text.size()), text.data(), text.size());
    size_ += text.size();
  }
  void token(std::string_view text) {
    separate();
    append(text);
    follows_value_ = true;
  }
  template <TimeNs kNsPerUnit>
  void scaled(TimeNs ns);
  void open(char bracket);
  void close(char bracket);

  std::unique_ptr<char[]> buffer_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  int depth_ = 0;
  bool is_indented_ = false;
  bool follows_value_ = false;  // a comma is due before the next key or item
};

}  // namespace metronome
