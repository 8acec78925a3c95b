// SPDX-License-Identifier: Apache-2.0
#include "core/base/json.h"

#include <algorithm>
#include <fmt/core.h>
#include <ostream>
#include <set>

namespace metronome {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw JsonError(JsonError::Reason::Misuse, message);
}

}  // namespace

// Members in insertion order. Few members are searched linearly, many through an index.
struct Json::Object {
  Object() = default;
  Object(const Object& other) : members(other.members) { make_index(); }
  Object& operator=(const Object&) = delete;

  // The index of the member, or the number of members if the key does not exist.
  std::size_t find(std::string_view key) const {
    if (members.size() > kFew) {
      const auto found = index.find(key);
      return found == index.end() ? members.size() : *found;
    }
    std::size_t i = 0;
    while (i < members.size() && members[i].key != key) ++i;
    return i;
  }

  Json& add(std::string key) {  // requires that the key does not exist
    members.push_back({std::move(key), Json()});
    if (members.size() == kFew + 1) {
      make_index();
    } else if (members.size() > kFew) {
      index.insert(members.size() - 1);
    }
    return members.back().value;
  }

  void erase(std::size_t place) {
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(place));
    make_index();
  }

  std::vector<Member> members;

 private:
  static constexpr std::size_t kFew = 16;

  // Orders member indices by their keys.
  struct ByKey {
    using is_transparent = void;
    const std::vector<Member>* members;
    std::string_view key_of(std::size_t place) const { return (*members)[place].key; }
    std::string_view key_of(std::string_view key) const { return key; }
    bool operator()(const auto& a, const auto& b) const { return key_of(a) < key_of(b); }
  };

  void make_index() {
    index.clear();
    for (std::size_t i = 0; members.size() > kFew && i < members.size(); ++i) index.insert(i);
  }

  std::set<std::size_t, ByKey> index{ByKey{&members}};  // of all members; used when there are many
};

Json::Json(std::string value) : kind_(Kind::String) {
  content_.string = new std::string(std::move(value));
}
Json::Json(std::string_view value) : Json(std::string(value)) {}
Json::Json(const char* value) : Json(std::string(value)) {}

Json::Json(std::initializer_list<Json> entries) {
  const bool are_members = std::all_of(entries.begin(), entries.end(), [](const Json& entry) {
    return entry.is_array() && entry.size() == 2 && entry.front().is_string();
  });
  *this = are_members ? object() : array(entries);
  if (!are_members) return;
  for (const Json& entry : entries) (*this)[entry.front().string()] = entry.back();
}

Json Json::array(std::initializer_list<Json> values) {
  Json json;
  json.content_.array = new std::vector<Json>(values);
  json.kind_ = Kind::Array;
  return json;
}

Json Json::object() {
  Json json;
  json.make_object();
  return json;
}

Json::Json(const Json& other) : content_(other.content_) {
  switch (other.kind_) {
    case Kind::String: content_.string = new std::string(*other.content_.string); break;
    case Kind::Array: content_.array = new std::vector<Json>(*other.content_.array); break;
    case Kind::Object: content_.object = new Object(*other.content_.object); break;
    default: break;
  }
  kind_ = other.kind_;
}

// Not recursive: a text that opens a million brackets must not overflow the stack.
void Json::destroy() noexcept {
  if (is_string()) {
    delete content_.string;
    return;
  }
  std::vector<Json> open;  // containers whose entries are not yet visited
  const auto move_entries = [&open](Json& json) {
    const auto take = [&open](Json& entry) {
      if (entry.is_structured() && !entry.empty()) open.push_back(std::move(entry));
    };
    for (Json& entry : json) take(entry);
    if (!json.is_object()) return;
    for (Member& member : json.content_.object->members) take(member.value);
  };
  move_entries(*this);
  while (!open.empty()) {
    Json last = std::move(open.back());
    open.pop_back();
    move_entries(last);
  }
  if (is_array()) {
    delete content_.array;
  } else {
    delete content_.object;
  }
}

const char* Json::kind_name() const {
  switch (kind_) {
    case Kind::Null: return "null";
    case Kind::Boolean: return "boolean";
    case Kind::Integer:
    case Kind::Unsigned:
    case Kind::Float: return "number";
    case Kind::String: return "string";
    case Kind::Array: return "array";
    case Kind::Object: return "object";
  }
  return "";
}

void Json::fail_kind(const char* wanted) const {
  fail(std::string("type must be ") + wanted + ", but is " + kind_name());
}

bool Json::to_bool() const {
  if (!is_boolean()) fail_kind("boolean");
  return content_.boolean;
}

std::int64_t Json::to_integer() const {
  switch (kind_) {
    case Kind::Integer: return content_.integer;
    case Kind::Unsigned: return static_cast<std::int64_t>(content_.whole);
    case Kind::Float: return static_cast<std::int64_t>(content_.number);
    default: fail_kind("number");
  }
}

std::uint64_t Json::to_unsigned() const {
  return kind_ == Kind::Float ? static_cast<std::uint64_t>(content_.number)
                              : static_cast<std::uint64_t>(to_integer());
}

double Json::to_double() const {
  switch (kind_) {
    case Kind::Integer: return static_cast<double>(content_.integer);
    case Kind::Unsigned: return static_cast<double>(content_.whole);
    case Kind::Float: return content_.number;
    default: fail_kind("number");
  }
}

const std::string& Json::string() const {
  if (!is_string()) fail_kind("string");
  return *content_.string;
}

std::size_t Json::size() const {
  if (is_array()) return content_.array->size();
  if (is_object()) return content_.object->members.size();
  return is_null() ? 0 : 1;
}

const Json* Json::begin() const { return is_array() ? content_.array->data() : nullptr; }
const Json* Json::end() const { return is_array() ? begin() + size() : nullptr; }
Json* Json::begin() { return is_array() ? content_.array->data() : nullptr; }
Json* Json::end() { return is_array() ? begin() + size() : nullptr; }

const std::vector<Json::Member>& Json::items() const {
  static const std::vector<Member> none;
  return is_object() ? content_.object->members : none;
}

std::vector<const Json::Member*> Json::sorted_items() const {
  std::vector<const Member*> sorted;
  for (const Member& member : items()) sorted.push_back(&member);
  std::sort(sorted.begin(), sorted.end(),
            [](const Member* a, const Member* b) { return a->key < b->key; });
  return sorted;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const std::size_t place = content_.object->find(key);
  return place == size() ? nullptr : &content_.object->members[place].value;
}

Json* Json::find(std::string_view key) {
  return const_cast<Json*>(static_cast<const Json*>(this)->find(key));
}

Json Json::value(std::string_view key, Json otherwise) const {
  const Json* found = find(key);
  return found == nullptr ? std::move(otherwise) : *found;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) fail_kind("object");
  const Json* found = find(key);
  if (found == nullptr) fail("key '" + std::string(key) + "' not found");
  return *found;
}

Json& Json::at(std::string_view key) {
  return const_cast<Json&>(static_cast<const Json*>(this)->at(key));
}

const Json& Json::at(std::size_t index) const {
  if (!is_array()) fail_kind("array");
  if (index >= size()) fail(fmt::format("array index {} is out of range", index));
  return (*content_.array)[index];
}

Json& Json::at(std::size_t index) {
  return const_cast<Json&>(static_cast<const Json*>(this)->at(index));
}

Json::Object& Json::make_object() {
  if (is_null()) {
    content_.object = new Object();
    kind_ = Kind::Object;
  }
  if (!is_object()) fail_kind("object");
  return *content_.object;
}

Json& Json::operator[](std::string_view key) {
  Object& object = make_object();
  const std::size_t place = object.find(key);
  return place < object.members.size() ? object.members[place].value : object.add(std::string(key));
}

void Json::push_back(Json value) {
  if (is_null()) *this = array();
  if (!is_array()) fail_kind("array");
  content_.array->push_back(std::move(value));
}

void Json::update(const Json& object) {
  for (const auto& [key, value] : object.items()) (*this)[key] = value;
}

void Json::erase(std::string_view key) {
  if (find(key) != nullptr) content_.object->erase(content_.object->find(key));
}

void Json::erase(std::size_t index) {
  at(index);  // throws if it does not exist
  content_.array->erase(content_.array->begin() + static_cast<std::ptrdiff_t>(index));
}

bool operator==(const Json& a, const Json& b) {
  using Kind = Json::Kind;
  if (a.is_number() && b.is_number()) {
    if (a.kind_ == Kind::Float || b.kind_ == Kind::Float) return a.to_double() == b.to_double();
    const bool same_sign = (a.kind_ == Kind::Integer && a.content_.integer < 0) ==
                           (b.kind_ == Kind::Integer && b.content_.integer < 0);
    return same_sign && a.to_unsigned() == b.to_unsigned();
  }
  if (a.kind_ != b.kind_ || a.size() != b.size()) return false;
  switch (a.kind_) {
    case Kind::Boolean: return a.content_.boolean == b.content_.boolean;
    case Kind::String: return a.string() == b.string();
    case Kind::Array: return std::equal(a.begin(), a.end(), b.begin());
    case Kind::Object:
      return std::all_of(a.items().begin(), a.items().end(), [&b](const Json::Member& member) {
        const Json* other = b.find(member.key);
        return other != nullptr && *other == member.value;
      });
    default: return true;
  }
}

std::ostream& operator<<(std::ostream& out, const Json& json) {
  return out << json.dump({.replaces_bad_utf8 = true});
}

}  // namespace metronome
