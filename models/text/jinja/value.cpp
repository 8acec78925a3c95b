// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/value.h"

#include <algorithm>
#include <fmt/core.h>
#include <optional>

#include "models/text/jinja/characters.h"

namespace metronome::jinja {
namespace {

constexpr std::size_t kObjectBytes = 64;  // of the object itself and its counts

int depth_of(const Value& value) {
  switch (value.kind()) {
    case Kind::List:
    case Kind::Tuple:
    case Kind::Iterator: return value.as<List>().depth;
    case Kind::Dict: return value.as<Dict>().depth();
    case Kind::View: return 1 + depth_of(value.as<View>().dict);
    case Kind::Function: return 1 + depth_of(value.as<Function>().self);
    // A loop keeps values, and these could keep further loops without end.
    case Kind::Loop: fail("a loop in a list or dictionary; allowed: a loop in a variable");
    default: return 0;
  }
}

int checked_depth(int depth) {
  if (depth > kMaxValueDepth) {
    fail(fmt::format("lists and dictionaries are nested too deeply; allowed: {} levels",
                     kMaxValueDepth));
  }
  return depth;
}

void check_hashable(const Value& key) {
  if (key.is(Kind::List) || key.is(Kind::Dict)) {
    fail("unhashable type: '" + std::string(type_name(key)) + "'");
  }
  if (key.is(Kind::Tuple)) {
    for (const Value& entry : key.as<List>().entries) check_hashable(entry);
  } else if (!key.is(Kind::None) && !key.is_number() && !key.is_string() && !key.is_undefined()) {
    fail("a key of type '" + std::string(type_name(key)) + "' is not supported");
  }
}

// Equality of keys, which are texts, numbers, None, and tuples of them.
bool is_same_key(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_integral() && b.is_integral() ? a.integer() == b.integer() : a.real() == b.real();
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_string()) return a.text() == b.text();
  if (a.is(Kind::None) || a.is_undefined()) return true;
  const auto& left = a.as<List>().entries;
  const auto& right = b.as<List>().entries;
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), is_same_key);
}

}  // namespace

void fail(const std::string& message) { throw RenderError(message); }

void require_defined(const Value& value) {
  if (value.is_undefined()) fail(value.text());
}

void Meter::step(std::int64_t count) {
  num_steps_ += count;
  if (num_steps_ > limits_.max_steps) {
    fail(fmt::format("the template takes too many steps; allowed: {}", limits_.max_steps));
  }
}

void Meter::expect(std::size_t num_bytes) const {
  if (num_bytes > limits_.max_live_bytes || live_bytes_ + num_bytes > limits_.max_live_bytes) {
    fail(fmt::format("the template's values take too much memory; allowed: {} bytes",
                     limits_.max_live_bytes));
  }
}

void Meter::take(std::size_t num_bytes) {
  expect(num_bytes);
  live_bytes_ += num_bytes;
}

Object::Object(Meter* meter, std::size_t num_bytes) : meter_(meter), num_bytes_(0) {
  charge(num_bytes + kObjectBytes);
}

Object::~Object() {
  if (meter_ != nullptr) meter_->give_back(num_bytes_);
}

void Object::charge(std::size_t num_bytes) {
  if (meter_ == nullptr) return;
  meter_->take(num_bytes);
  num_bytes_ += num_bytes;
}

const std::string& Value::text() const { return as<Text>().bytes; }

Text::Text(Meter* meter, std::string text)
    : Object(meter, text.size()), bytes(std::move(text)), is_ascii(is_ascii_text(bytes)) {}

List::List(Meter* meter, std::vector<Value> values)
    : Object(meter, values.size() * sizeof(Value)), entries(std::move(values)), depth(1) {
  for (const Value& entry : entries) depth = std::max(depth, 1 + depth_of(entry));
  checked_depth(depth);
}

std::optional<std::size_t> Dict::index_of(const Value& key) const {
  if (key.is_string()) {
    const auto found = by_text_.find(key.text());
    return found == by_text_.end() ? std::nullopt : std::optional(found->second);
  }
  check_hashable(key);
  if (!has_other_keys_) return std::nullopt;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (is_same_key(entries_[i].first, key)) return i;
  }
  return std::nullopt;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = by_text_.find(key);
  return found == by_text_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  const std::optional<std::size_t> index = index_of(key);
  return index ? &entries_[*index].second : nullptr;
}

void Dict::set(const Value& key, Value value) {
  depth_ = checked_depth(std::max({depth_, 1 + depth_of(value), 1 + depth_of(key)}));
  if (const std::optional<std::size_t> index = index_of(key)) {
    entries_[*index].second = std::move(value);
    return;
  }
  charge(2 * sizeof(Value) + kObjectBytes);
  if (key.is_string()) {
    by_text_.emplace(key.text(), entries_.size());
  } else {
    has_other_keys_ = true;
  }
  entries_.emplace_back(key, std::move(value));
}

std::int64_t Range::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Runtime::~Runtime() {
  for (const auto& space : namespaces_) space->attributes.clear();
}

CallGuard::CallGuard(Runtime& runtime) : runtime_(runtime) {
  if (runtime.call_depth_ >= kMaxCallDepth) {
    fail(fmt::format("the template calls itself too often; allowed: {} evaluations in each other",
                     kMaxCallDepth));
  }
  ++runtime.call_depth_;
}

Value Runtime::text(std::string bytes) {
  meter_.work(bytes.size());
  return Value(Kind::String, std::make_shared<Text>(&meter_, std::move(bytes)));
}

Value Runtime::safe_text(std::string bytes) {
  Value value = text(std::move(bytes));
  value.as<Text>().is_safe = true;
  return value;
}

Value Runtime::sequence(Kind kind, std::vector<Value> entries) {
  meter_.work(entries.size() * sizeof(Value));
  return Value(kind, std::make_shared<List>(&meter_, std::move(entries)));
}

Value Runtime::list(std::vector<Value> entries) { return sequence(Kind::List, std::move(entries)); }
Value Runtime::tuple(std::vector<Value> entries) {
  return sequence(Kind::Tuple, std::move(entries));
}
Value Runtime::iterator(std::vector<Value> entries) {
  return sequence(Kind::Iterator, std::move(entries));
}

std::shared_ptr<Namespace> Runtime::make_namespace() {
  namespaces_.push_back(std::make_shared<Namespace>(&meter_));
  return namespaces_.back();
}

Value Runtime::undefined(std::string message) {
  return Value(Kind::Undefined, std::make_shared<Text>(&meter_, std::move(message)));
}

Value Runtime::from_json(const Json& json, int depth) {
  meter_.step();
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value(json.get<bool>());
  if (json.is_string()) return text(json.string());
  if (json.is_number_integer()) {
    if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
      fail("an integer does not fit into 64 bits");
    }
    return Value(json.get<std::int64_t>());
  }
  if (json.is_number()) return Value(json.get<double>());
  checked_depth(depth);
  if (json.is_array()) {
    std::vector<Value> entries;
    for (const Json& entry : json) entries.push_back(from_json(entry, depth + 1));
    return list(std::move(entries));
  }
  const std::shared_ptr<Dict> made = dict();
  for (const Json::Member& member : json.items()) {
    made->set(text(member.key), from_json(member.value, depth + 1));
  }
  return Value(Kind::Dict, made);
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined: return "Undefined";
    case Kind::None: return "NoneType";
    case Kind::Boolean: return "bool";
    case Kind::Integer: return "int";
    case Kind::Float: return "float";
    case Kind::String: return value.as<Text>().is_safe ? "Markup" : "str";
    case Kind::List: return "list";
    case Kind::Tuple: return "tuple";
    case Kind::Dict: return "dict";
    case Kind::View: return "dict view";
    case Kind::Iterator: return "generator";
    case Kind::Range: return "range";
    case Kind::Namespace: return "Namespace";
    case Kind::Function: return "function";
    case Kind::Macro: return "Macro";
    case Kind::Loop: return "LoopContext";
  }
  return "object";
}

std::string object_name(const Value& value) {
  if (value.is(Kind::None)) return "None";
  return std::string(type_name(value)) + " object";
}

bool is_true(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::None: return false;
    case Kind::Boolean:
    case Kind::Integer: return value.integer() != 0;
    case Kind::Float: return value.real() != 0;
    case Kind::String: return !value.text().empty();
    case Kind::List:
    case Kind::Tuple: return !value.as<List>().entries.empty();
    case Kind::Dict:
    case Kind::View:
    case Kind::Range: return length_of(value) != 0;
    default: return true;
  }
}

std::int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined: return 0;
    case Kind::String: return num_characters(value.as<Text>());
    case Kind::List:
    case Kind::Tuple: return std::ssize(value.as<List>().entries);
    case Kind::Dict: return std::ssize(value.as<Dict>().entries());
    case Kind::View: return length_of(value.as<View>().dict);
    case Kind::Range: return value.as<Range>().size();
    default: fail("object of type '" + std::string(type_name(value)) + "' has no len()");
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::Undefined:
    case Kind::String:
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::View:
    case Kind::Iterator:
    case Kind::Range:
    case Kind::Loop: return true;
    default: return false;
  }
}

std::vector<Value> entries_of(Runtime& runtime, const Value& value) {
  std::vector<Value> entries;
  switch (value.kind()) {
    case Kind::Undefined: break;
    case Kind::String: entries = characters_of(runtime, value.as<Text>()); break;
    case Kind::List:
    case Kind::Tuple:
      runtime.meter().expect(value.as<List>().entries.size() * sizeof(Value));
      entries = value.as<List>().entries;
      break;
    case Kind::Iterator: {
      auto& rest = value.as<List>();
      entries.assign(rest.entries.begin() + static_cast<std::ptrdiff_t>(rest.next),
                     rest.entries.end());
      rest.next = rest.entries.size();
      break;
    }
    case Kind::Dict:
      for (const auto& [key, entry] : value.as<Dict>().entries()) entries.push_back(key);
      break;
    case Kind::View: {
      const auto& view = value.as<View>();
      for (const auto& [key, entry] : view.dict.as<Dict>().entries()) {
        entries.push_back(view.part == View::Part::Keys     ? key
                          : view.part == View::Part::Values ? entry
                                                            : runtime.tuple({key, entry}));
      }
      break;
    }
    case Kind::Range: {
      const auto& range = value.as<Range>();
      for (std::int64_t i = 0; i < range.size(); ++i) {
        entries.emplace_back(range.start + i * range.step);
      }
      break;
    }
    default: fail("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  runtime.meter().work(entries.size() * sizeof(Value));
  return entries;
}

}  // namespace metronome::jinja
