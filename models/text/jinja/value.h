// SPDX-License-Identifier: Apache-2.0
// Values of templates. They behave as Python's: what they are when printed, compared and tested.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "models/text/jinja/limits.h"

namespace metronome::jinja {

// A rendering failed. what() is a sentence without the template's name.
class RenderError : public std::runtime_error {
 public:
  explicit RenderError(const std::string& message, bool is_raised = false)
      : std::runtime_error(message), is_raised_(is_raised) {}
  // By the template's raise_exception: the message is the template's.
  bool is_raised() const { return is_raised_; }

 private:
  bool is_raised_;
};

// Counts what a rendering uses. Throws RenderError when a limit is passed.
class Meter {
 public:
  explicit Meter(const JinjaLimits& limits) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  void step(std::int64_t count = 1);
  // Work on so many bytes.
  void work(std::size_t num_bytes) { step(1 + static_cast<std::int64_t>(num_bytes / 64)); }
  void take(std::size_t num_bytes);  // memory
  void give_back(std::size_t num_bytes) { live_bytes_ -= num_bytes; }
  // Before `num_bytes` are allocated: throws if they cannot be taken.
  void expect(std::size_t num_bytes) const;
  const JinjaLimits& limits() const { return limits_; }

 private:
  JinjaLimits limits_;
  std::int64_t num_steps_ = 0;
  std::size_t live_bytes_ = 0;
};

// An object that values point to. It is charged to a meter that outlives it; nullptr: to none.
class Object {
 public:
  Object(Meter* meter, std::size_t num_bytes);
  virtual ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 protected:
  void charge(std::size_t num_bytes);

 private:
  Meter* meter_;
  std::size_t num_bytes_;
};

enum class Kind : std::uint8_t {
  Undefined,  // its text is the message of an error that its use causes
  None,
  Boolean,
  Integer,  // 64 bits; larger results are an error
  Float,
  String,
  List,
  Tuple,
  Dict,
  View,      // keys(), values() or items() of a dictionary
  Iterator,  // of filters such as map; it can be consumed once
  Range,
  Namespace,
  Function,  // a global function or a method with its value
  Macro,
  Loop
};

class Value {
 public:
  Value() = default;
  explicit Value(bool value) : kind_(Kind::Boolean), number_{.integer = value} {}
  explicit Value(std::int64_t value) : kind_(Kind::Integer), number_{.integer = value} {}
  explicit Value(double value) : kind_(Kind::Float), number_{.real = value} {}
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}
  static Value none() { return Value(Kind::None, nullptr); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::Undefined; }
  bool is_string() const { return kind_ == Kind::String; }
  // Python's bool is an int.
  bool is_integral() const { return kind_ == Kind::Integer || kind_ == Kind::Boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::Float; }

  std::int64_t integer() const { return number_.integer; }  // of is_integral()
  double real() const {                                     // of is_number()
    return is_integral() ? static_cast<double>(number_.integer) : number_.real;
  }
  const std::string& text() const;  // of String and Undefined
  const std::shared_ptr<Object>& object() const { return object_; }
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }

 private:
  Kind kind_ = Kind::Undefined;
  union Number {
    std::int64_t integer;
    double real;
  } number_{.integer = 0};
  std::shared_ptr<Object> object_;
};

struct Text final : Object {
  Text(Meter* meter, std::string text);
  std::string bytes;  // UTF-8
  bool is_ascii;
  bool is_safe = false;  // by the filter safe
};

// Also the entries of a Tuple, and what an Iterator gives from `next` on.
struct List final : Object {
  List(Meter* meter, std::vector<Value> entries);
  std::vector<Value> entries;
  std::size_t next = 0;
  int depth;
};

// In the order in which keys were added.
class Dict final : public Object {
 public:
  explicit Dict(Meter* meter) : Object(meter, sizeof(Dict)) {}
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  // nullptr: no such key. Throws RenderError for a key that Python cannot hash.
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  // Replaces the value of a key that exists.
  void set(const Value& key, Value value);
  int depth() const { return depth_; }

 private:
  std::optional<std::size_t> index_of(const Value& key) const;

  std::vector<std::pair<Value, Value>> entries_;
  std::map<std::string_view, std::size_t> by_text_;  // of keys that are texts
  bool has_other_keys_ = false;
  int depth_ = 1;
};

struct View final : Object {
  enum class Part : std::uint8_t { Keys, Values, Items };
  View(Meter* meter, Part shown, Value whole)
      : Object(meter, sizeof(View)), part(shown), dict(std::move(whole)) {}
  Part part;
  Value dict;
};

struct Range final : Object {
  Range(Meter* meter, std::int64_t first, std::int64_t end, std::int64_t by)
      : Object(meter, sizeof(Range)), start(first), stop(end), step(by) {}
  std::int64_t start, stop, step;
  std::int64_t size() const;
};

struct Namespace final : Object {
  explicit Namespace(Meter* meter) : Object(meter, sizeof(Namespace)) {}
  std::map<std::string, Value> attributes;
};

class Arguments;
class Runtime;
using Callable = Value (*)(Runtime& runtime, const Value& self, Arguments& arguments);

struct Function final : Object {
  Function(Meter* meter, std::string called, Callable what, Value bound)
      : Object(meter, sizeof(Function)),
        name(std::move(called)),
        call(what),
        self(std::move(bound)) {}
  std::string name;
  Callable call;
  Value self;
};

// The services that operations on values need.
class Runtime {
 public:
  explicit Runtime(const JinjaLimits& limits) : meter_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  Meter& meter() { return meter_; }
  Value text(std::string bytes);
  Value safe_text(std::string bytes);
  Value list(std::vector<Value> entries);
  Value tuple(std::vector<Value> entries);
  Value iterator(std::vector<Value> entries);
  std::shared_ptr<Dict> dict() { return std::make_shared<Dict>(&meter_); }
  std::shared_ptr<Namespace> make_namespace();
  Value undefined(std::string message);
  // Throws RenderError if it is nested deeper than kMaxValueDepth.
  Value from_json(const Json& json, int depth = 1);

 private:
  friend class CallGuard;
  Value sequence(Kind kind, std::vector<Value> entries);

  Meter meter_;
  int call_depth_ = 0;
  // A namespace can contain itself, so the attributes of all are removed at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// An evaluation inside others, for as long as it lives. Throws RenderError for more than
// kMaxCallDepth in each other.
class CallGuard {
 public:
  explicit CallGuard(Runtime& runtime);
  ~CallGuard() { --runtime_.call_depth_; }
  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

 private:
  Runtime& runtime_;
};

// Python's names of types: "str", "list", ...
std::string_view type_name(const Value& value);
// As jinja2 names objects in messages: "dict object", "None".
std::string object_name(const Value& value);

[[noreturn]] void fail(const std::string& message);
// Throws the error of an undefined value.
void require_defined(const Value& value);

bool is_true(const Value& value);
// Python's ==.
bool is_equal(Runtime& runtime, const Value& a, const Value& b);
// Python's <. Throws RenderError for values without an order.
bool is_less(Runtime& runtime, const Value& a, const Value& b);

// Python's str(), and repr() of what stands in a list. Throw RenderError for what has an address
// in its text.
std::string to_text(Runtime& runtime, const Value& value);
std::string to_repr(Runtime& runtime, const Value& value);
std::string float_text(double number);

// Python's len(). Throws RenderError for what has none.
std::int64_t length_of(const Value& value);
// Whether iter() accepts it.
bool is_iterable(const Value& value);
// All that a loop over it gives; consumes an iterator. Throws RenderError.
std::vector<Value> entries_of(Runtime& runtime, const Value& value);

}  // namespace metronome::jinja
