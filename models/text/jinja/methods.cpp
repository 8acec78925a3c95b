// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/methods.h"

#include <algorithm>
#include <string>

#include "models/text/jinja/loop.h"

namespace metronome::jinja {
namespace {

Value view_of(Runtime& runtime, const Value& self, Arguments& arguments, View::Part part) {
  arguments.bind("a view of a dictionary", {});
  return Value(Kind::View, std::make_shared<View>(&runtime.meter(), part, self));
}

Value dict_keys(Runtime& runtime, const Value& self, Arguments& arguments) {
  return view_of(runtime, self, arguments, View::Part::Keys);
}
Value dict_values(Runtime& runtime, const Value& self, Arguments& arguments) {
  return view_of(runtime, self, arguments, View::Part::Values);
}
Value dict_items(Runtime& runtime, const Value& self, Arguments& arguments) {
  return view_of(runtime, self, arguments, View::Part::Items);
}

Value dict_get(Runtime&, const Value& self, Arguments& arguments) {
  arguments.bind("get", {"key", "default"}, 1);
  const Value* found = self.as<Dict>().find(arguments.at(0));
  if (found != nullptr) return *found;
  return arguments.find(1) ? arguments.at(1) : Value::none();
}

Value copy_of(Runtime&, const Value& self, Arguments& arguments) {
  arguments.bind("copy", {});
  return self;  // nothing changes lists and dictionaries
}

Value list_index(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("index", {"value", "start", "stop"}, 1);
  const auto& entries = self.as<List>().entries;
  const auto bound = [&](std::size_t parameter, std::int64_t otherwise) {
    const std::int64_t number = arguments.integer(parameter, otherwise);
    return number < 0 ? std::max<std::int64_t>(number + std::ssize(entries), 0) : number;
  };
  const std::int64_t stop = std::min<std::int64_t>(bound(2, INT64_MAX), std::ssize(entries));
  for (std::int64_t i = bound(1, 0); i < stop; ++i) {
    if (is_equal(runtime, entries[static_cast<std::size_t>(i)], arguments.at(0))) return Value(i);
  }
  fail(to_repr(runtime, arguments.at(0)) + " is not in list");
}

Value list_count(Runtime& runtime, const Value& self, Arguments& arguments) {
  arguments.bind("count", {"value"}, 1);
  const auto& entries = self.as<List>().entries;
  return Value(std::int64_t{std::count_if(entries.begin(), entries.end(), [&](const Value& entry) {
    return is_equal(runtime, entry, arguments.at(0));
  })});
}

Callable list_method(std::string_view name, bool is_list) {
  if (name == "index") return list_index;
  if (name == "count") return list_count;
  return is_list && name == "copy" ? copy_of : nullptr;
}

Callable dict_method(std::string_view name) {
  if (name == "get") return dict_get;
  if (name == "items") return dict_items;
  if (name == "keys") return dict_keys;
  if (name == "values") return dict_values;
  return name == "copy" ? copy_of : nullptr;
}

bool changes_list(std::string_view name) {
  constexpr std::string_view kNames[] = {"append", "clear", "pop",    "reverse",
                                         "insert", "sort",  "extend", "remove"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

bool changes_dict(std::string_view name) {
  constexpr std::string_view kNames[] = {"clear", "pop", "popitem", "setdefault", "update"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Value unsafe(Runtime& runtime, const Value& object, std::string_view name) {
  return runtime.undefined("access to attribute '" + std::string(name) + "' of '" +
                           std::string(type_name(object)) + "' object is unsafe.");
}

Callable method_of(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::String: return text_method(name);
    case Kind::List: return list_method(name, true);
    case Kind::Tuple: return list_method(name, false);
    case Kind::Dict: return dict_method(name);
    case Kind::Loop: return loop_method(name);
    default: return nullptr;
  }
}

}  // namespace

std::optional<Value> own_attribute(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is(Kind::Namespace)) {
    const auto& attributes = object.as<Namespace>().attributes;
    const auto found = attributes.find(std::string(name));
    return found == attributes.end() ? std::nullopt : std::optional(found->second);
  }
  if (object.is(Kind::Loop)) {
    if (std::optional<Value> found = object.as<Loop>().attribute(runtime, name)) return found;
  }
  if (const Callable call = method_of(object, name)) {
    if (object.is_string() && object.as<Text>().is_safe) {
      fail("a method of a text that is marked as safe is not supported");
    }
    return Value(Kind::Function,
                 std::make_shared<Function>(&runtime.meter(), std::string(name), call, object));
  }
  const bool is_forbidden = (object.is(Kind::List) && changes_list(name)) ||
                            (object.is(Kind::Dict) && changes_dict(name)) ||
                            (name.size() > 4 && name.starts_with("__") && name.ends_with("__"));
  if (is_forbidden) return unsafe(runtime, object, name);
  return std::nullopt;
}

}  // namespace metronome::jinja
