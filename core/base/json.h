// SPDX-License-Identifier: Apache-2.0
// JSON for the whole project: a value, its text, and events for callers that need no value. Only
// core/base/json_io.cpp includes the JSON library, so this header is cheap to include.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

// An error in a text, or a wrong use of a value.
class JsonError : public std::runtime_error {
 public:
  enum class Reason : std::uint8_t {
    NoJson,
    NumberTooLarge,  // for a double
    TooDeep,         // for JsonLimits::max_depth
    KeyTwice,        // in one object, against JsonLimits::keys_once
    Misuse           // of a value: wrong kind, no such key or index, invalid UTF-8
  };

  JsonError(Reason reason, const std::string& message, std::size_t byte = 0, std::string key = {})
      : std::runtime_error(message), reason_(reason), byte_(byte), key_(std::move(key)) {}

  Reason reason() const { return reason_; }
  // For NoJson and NumberTooLarge: how many bytes were read, including the offending byte.
  std::size_t byte() const { return byte_; }
  const std::string& key() const { return key_; }  // of KeyTwice, as "messages[0].role"

 private:
  Reason reason_;
  std::size_t byte_;
  std::string key_;
};

// Limits on a text in addition to being valid JSON.
struct JsonLimits {
  std::size_t max_depth = SIZE_MAX;  // of nested arrays and objects
  bool keys_once = false;            // false: the last of several values counts
};

// How a value is written.
struct JsonStyle {
  int indent = -1;  // spaces per level; below 0: everything on one line
  bool escapes_non_ascii = false;
  bool replaces_bad_utf8 = false;  // by U+FFFD; false: throws JsonError
  bool sorts_keys = false;         // false: in the order of the object
};

// Null, a boolean, a number, a string, an array or an object. Integers keep 64 bits, signed or
// unsigned. Objects keep the order in which keys were added.
class Json {
 public:
  struct Member;

  Json() noexcept {}
  Json(std::nullptr_t) noexcept {}
  template <std::integral T>
  Json(T value) noexcept {
    if constexpr (std::same_as<T, bool>) {
      kind_ = Kind::Boolean;
      content_.boolean = value;
    } else if constexpr (std::signed_integral<T>) {
      kind_ = Kind::Integer;
      content_.integer = value;
    } else {
      kind_ = Kind::Unsigned;
      content_.whole = value;
    }
  }
  template <std::floating_point T>
  Json(T value) noexcept : kind_(Kind::Float) {
    content_.number = static_cast<double>(value);
  }
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  template <class T>
  requires std::convertible_to<T, Json> Json(const std::vector<T>& values) : Json(array()) {
    for (const T& value : values) push_back(value);
  }
  // An object if each entry is a list of two that begins with a string, else an array. Use array()
  // for a list of lists that could be mistaken for an object.
  Json(std::initializer_list<Json> entries);
  static Json array(std::initializer_list<Json> values = {});
  static Json object();

  Json(const Json& other);
  Json(Json&& other) noexcept : kind_(other.kind_), content_(other.content_) {
    other.kind_ = Kind::Null;
  }
  Json& operator=(Json other) noexcept {
    swap(other);
    return *this;
  }
  ~Json() {
    if (kind_ >= Kind::String) destroy();
  }
  void swap(Json& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(content_, other.content_);
  }

  // Throws JsonError. A NUL byte ends the text.
  static Json parse(std::string_view text, const JsonLimits& limits = {});
  static std::optional<Json> try_parse(std::string_view text);  // nullopt if invalid
  std::string dump(const JsonStyle& style) const;
  std::string dump(int indent = -1) const { return dump(JsonStyle{.indent = indent}); }

  bool is_null() const { return kind_ == Kind::Null; }
  bool is_boolean() const { return kind_ == Kind::Boolean; }
  bool is_number() const { return is_number_integer() || kind_ == Kind::Float; }
  bool is_number_integer() const { return kind_ == Kind::Integer || is_number_unsigned(); }
  bool is_number_unsigned() const { return kind_ == Kind::Unsigned; }
  bool is_string() const { return kind_ == Kind::String; }
  bool is_array() const { return kind_ == Kind::Array; }
  bool is_object() const { return kind_ == Kind::Object; }
  bool is_structured() const { return is_array() || is_object(); }

  // Throws JsonError unless the value has the right kind. Numbers are converted by static_cast.
  template <class T>
  T get() const {
    if constexpr (std::same_as<T, bool>) {
      return to_bool();
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<T>(to_unsigned());
    } else if constexpr (std::integral<T>) {
      return static_cast<T>(to_integer());
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(to_double());
    } else {
      static_assert(std::same_as<T, std::string>);
      return string();
    }
  }
  const std::string& string() const;

  // Of arrays and objects; null has 0 entries, other values 1.
  std::size_t size() const;
  bool empty() const { return size() == 0; }

  // Entries of an array; none of other values.
  const Json* begin() const;
  const Json* end() const;
  Json* begin();
  Json* end();
  const Json& front() const { return at(0); }
  const Json& back() const { return at(size() - 1); }
  Json& back() { return at(size() - 1); }

  // Members of an object, in the object's order or sorted by key; none for other values.
  const std::vector<Member>& items() const;
  std::vector<const Member*> sorted_items() const;

  // Null if the key does not exist or this is not an object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  // The value of a key, or `otherwise` if the key does not exist.
  Json value(std::string_view key, Json otherwise) const;

  // Throw JsonError if the key or index does not exist.
  const Json& at(std::string_view key) const;
  Json& at(std::string_view key);
  const Json& at(std::size_t index) const;
  Json& at(std::size_t index);
  const Json& operator[](std::string_view key) const { return at(key); }
  const Json& operator[](std::size_t index) const { return at(index); }
  Json& operator[](std::size_t index) { return at(index); }
  // Adds null if the key does not exist. A null value becomes an object first.
  Json& operator[](std::string_view key);

  void push_back(Json value);       // null becomes an array first
  void update(const Json& object);  // copies its members into this object
  void erase(std::string_view key);
  void erase(std::size_t index);

  // Compares by value: 1 equals 1.0, and the order of members does not matter.
  friend bool operator==(const Json& a, const Json& b);

  // Writes one line; bad UTF-8 is replaced.
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  struct Object;
  enum class Kind : std::uint8_t { Null, Boolean, Integer, Unsigned, Float, String, Array, Object };

  bool to_bool() const;
  std::int64_t to_integer() const;
  std::uint64_t to_unsigned() const;
  double to_double() const;
  const char* kind_name() const;
  [[noreturn]] void fail_kind(const char* wanted) const;
  Object& make_object();
  void destroy() noexcept;

  Kind kind_ = Kind::Null;
  union Content {
    std::uint64_t whole;
    std::int64_t integer;
    double number;
    bool boolean;
    std::string* string;
    std::vector<Json>* array;
    Object* object;
  } content_{0};
};

struct Json::Member {
  std::string key;
  Json value;
};

// Receives the contents of a text in order. An exception from a handler ends the reading.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void integer(std::int64_t value) = 0;            // has a minus sign
  virtual void unsigned_integer(std::uint64_t value) = 0;  // any other integer that fits
  virtual void number(double value) = 0;
  virtual void string(std::string_view value) = 0;
  virtual void key(std::string_view name) = 0;
  virtual void begin_object() = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
};

// Throws JsonError at the first byte that is not JSON. `events` has received everything before that
// byte. A NUL byte ends the text.
void parse_json(std::string_view text, JsonEvents& events);

}  // namespace metronome
