// SPDX-License-Identifier: Apache-2.0
// The filters of lists, dictionaries and what else a loop goes over.
#include <algorithm>
#include <array>
#include <optional>

#include "models/text/jinja/filters.h"
#include "models/text/jinja/methods.h"
#include "models/text/jinja/operators.h"
#include "models/text/jinja/value_tests.h"

namespace metronome::jinja {
namespace {

bool is_given(const Value* value) { return value != nullptr && !value->is(Kind::None); }

// For comparisons that do not look at case.
Value without_case(Runtime& runtime, const Value& value) {
  if (!value.is_string()) return value;
  Arguments none;
  return text_method("lower")(runtime, value, none);
}

Value length(Runtime&, const Value& value, Arguments& arguments) {
  arguments.bind("length", {});
  return Value(length_of(value));
}

Value list(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("list", {});
  return runtime.list(entries_of(runtime, value));
}

Value items(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("items", {});
  if (value.is_undefined()) return runtime.iterator({});
  if (!value.is(Kind::Dict)) fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, entry] : value.as<Dict>().entries()) {
    pairs.push_back(runtime.tuple({key, entry}));
  }
  return runtime.iterator(std::move(pairs));
}

Value first(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("first", {});
  if (value.is(Kind::Iterator)) {
    auto& rest = value.as<List>();
    if (rest.next < rest.entries.size()) return rest.entries[rest.next++];
  } else if (std::vector<Value> entries = entries_of(runtime, value); !entries.empty()) {
    return entries.front();
  }
  return runtime.undefined("No first item, sequence was empty.");
}

Value last(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("last", {});
  if (value.is(Kind::Iterator)) fail("'generator' object is not reversible");
  std::vector<Value> entries = entries_of(runtime, value);
  return entries.empty() ? runtime.undefined("No last item, sequence was empty.") : entries.back();
}

Value reverse(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("reverse", {});
  std::vector<Value> entries = entries_of(runtime, value);
  std::reverse(entries.begin(), entries.end());
  if (!value.is_string()) return runtime.iterator(std::move(entries));
  std::string text;
  for (const Value& entry : entries) text += entry.text();
  return runtime.text(std::move(text));
}

Value join(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("join", {"d", "attribute"});
  std::vector<std::string> texts;
  std::size_t num_bytes = 0;
  for (const Value& entry : entries_of(runtime, value)) {
    texts.push_back(to_text(
        runtime, is_given(arguments.find(1)) ? looked_up(runtime, entry, arguments.at(1)) : entry));
    num_bytes += texts.back().size() + sizeof(std::string);
    runtime.meter().expect(num_bytes);
  }
  const std::string separator = arguments.find(0) ? to_text(runtime, arguments.at(0)) : "";
  return runtime.text(joined_texts(runtime, separator, texts));
}

// Sorted by keys, stably.
std::vector<Value> sorted(Runtime& runtime, std::vector<Value> entries,
                          const std::vector<Value>& keys, bool is_reversed) {
  std::vector<std::size_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Python checks types also where nothing has to move.
  if (order.size() == 1) return entries;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return is_reversed ? is_less(runtime, keys[b], keys[a]) : is_less(runtime, keys[a], keys[b]);
  });
  std::vector<Value> result;
  for (const std::size_t i : order) result.push_back(entries[i]);
  return result;
}

Value sort(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("sort", {"reverse", "case_sensitive", "attribute"});
  const bool keeps_case = arguments.truth(1, false);
  std::vector<Value> attributes;
  if (is_given(arguments.find(2))) {
    const Value& attribute = arguments.at(2);
    const std::string comma = ",";
    attributes = attribute.is_string() ? split_text(runtime, attribute.text(), &comma, -1)
                                       : std::vector<Value>{attribute};
  }
  std::vector<Value> entries = entries_of(runtime, value);
  std::vector<Value> keys;
  for (const Value& entry : entries) {
    std::vector<Value> parts;
    if (attributes.empty()) parts.push_back(entry);
    for (const Value& attribute : attributes) {
      parts.push_back(looked_up(runtime, entry, attribute));
    }
    for (Value& part : parts) {
      if (!keeps_case) part = without_case(runtime, part);
    }
    keys.push_back(runtime.list(std::move(parts)));
  }
  return runtime.list(sorted(runtime, std::move(entries), keys, arguments.truth(0, false)));
}

Value dictsort(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("dictsort", {"case_sensitive", "by", "reverse"});
  require_defined(value);
  const std::string by = arguments.find(1) ? arguments.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (!value.is(Kind::Dict)) {
    fail("'" + std::string(type_name(value)) + "' object has no attribute 'items'");
  }
  std::vector<Value> entries, keys;
  for (const auto& [key, entry] : value.as<Dict>().entries()) {
    entries.push_back(runtime.tuple({key, entry}));
    const Value& sorted_by = by == "key" ? key : entry;
    keys.push_back(arguments.truth(0, false) ? sorted_by : without_case(runtime, sorted_by));
  }
  return runtime.list(sorted(runtime, std::move(entries), keys, arguments.truth(2, false)));
}

Value unique(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("unique", {"case_sensitive", "attribute"});
  const std::shared_ptr<Dict> seen = runtime.dict();
  std::vector<Value> result;
  for (const Value& entry : entries_of(runtime, value)) {
    Value key = is_given(arguments.find(1)) ? looked_up(runtime, entry, arguments.at(1)) : entry;
    if (!arguments.truth(0, false)) key = without_case(runtime, key);
    runtime.meter().step(std::ssize(seen->entries()) / 64);
    if (seen->find(key) != nullptr) continue;
    seen->set(key, Value::none());
    result.push_back(entry);
  }
  return runtime.iterator(std::move(result));
}

Value extreme(Runtime& runtime, const Value& value, Arguments& arguments, bool is_max) {
  arguments.bind(is_max ? "max" : "min", {"case_sensitive", "attribute"});
  std::optional<Value> best, best_key;
  for (const Value& entry : entries_of(runtime, value)) {
    Value key = is_given(arguments.find(1)) ? looked_up(runtime, entry, arguments.at(1)) : entry;
    if (!arguments.truth(0, false)) key = without_case(runtime, key);
    const bool is_better =
        !best_key || (is_max ? is_less(runtime, *best_key, key) : is_less(runtime, key, *best_key));
    if (!is_better) continue;
    best = entry;
    best_key = key;
  }
  return best ? *best : runtime.undefined("No aggregated item, sequence was empty.");
}

Value max(Runtime& runtime, const Value& value, Arguments& arguments) {
  return extreme(runtime, value, arguments, true);
}
Value min(Runtime& runtime, const Value& value, Arguments& arguments) {
  return extreme(runtime, value, arguments, false);
}

Value sum(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("sum", {"attribute", "start"});
  Value total = arguments.find(1) ? arguments.at(1) : Value(std::int64_t{0});
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& entry : entries_of(runtime, value)) {
    const Value part =
        is_given(arguments.find(0)) ? looked_up(runtime, entry, arguments.at(0)) : entry;
    total = arithmetic(runtime, Operator::Add, total, part);
  }
  return total;
}

Value map(Runtime& runtime, const Value& value, Arguments& arguments) {
  std::vector<Value> result;
  if (!is_true(value)) return runtime.iterator({});
  if (arguments.positional.empty()) {
    arguments.bind("map", {"attribute", "default"}, 1);
    for (const Value& entry : entries_of(runtime, value)) {
      Value found = looked_up(runtime, entry, arguments.at(0));
      const bool is_replaced = found.is_undefined() && is_given(arguments.find(1));
      result.push_back(is_replaced ? arguments.at(1) : found);
    }
    return runtime.iterator(std::move(result));
  }
  const Value name = arguments.positional.front();
  const Callable filter = name.is_string() ? find_filter(name.text()) : nullptr;
  if (filter == nullptr) {
    fail("No filter named " + to_repr(runtime, name) + "; allowed: " + filter_names());
  }
  arguments.positional.erase(arguments.positional.begin());
  const CallGuard guard(runtime);  // the filter may be map
  for (const Value& entry : entries_of(runtime, value)) {
    runtime.meter().work(arguments.positional.size() * sizeof(Value));
    Arguments copy = arguments;
    result.push_back(filter(runtime, entry, copy));
  }
  return runtime.iterator(std::move(result));
}

Value chosen(Runtime& runtime, const Value& value, Arguments& arguments, bool by_attribute,
             bool keeps) {
  if (!is_true(value)) return runtime.iterator({});
  std::vector<Value>& given = arguments.positional;
  std::optional<Value> attribute;
  if (by_attribute) {
    if (given.empty()) fail("Missing parameter for attribute name");
    attribute = given.front();
    given.erase(given.begin());
  }
  ValueTest test = nullptr;
  if (!given.empty()) {
    test = given.front().is_string() ? find_test(given.front().text()) : nullptr;
    if (test == nullptr) {
      fail("No test named " + to_repr(runtime, given.front()) + "; allowed: " + test_names());
    }
    given.erase(given.begin());
  }
  std::vector<Value> result;
  for (const Value& entry : entries_of(runtime, value)) {
    const Value tested = attribute ? looked_up(runtime, entry, *attribute) : entry;
    Arguments copy = arguments;
    const bool holds = test ? test(runtime, tested, copy) : is_true(tested);
    if (holds == keeps) result.push_back(entry);
  }
  return runtime.iterator(std::move(result));
}

template <bool ByAttribute, bool Keeps>
Value choose(Runtime& runtime, const Value& value, Arguments& arguments) {
  return chosen(runtime, value, arguments, ByAttribute, Keeps);
}

Value batch(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("batch", {"linecount", "fill_with"}, 1);
  const std::int64_t size = arguments.integer(0, 0);
  if (size < 1) fail("batch: the size of a batch must be at least 1");
  std::vector<Value> result, part;
  for (const Value& entry : entries_of(runtime, value)) {
    if (std::ssize(part) == size) result.push_back(runtime.list(std::exchange(part, {})));
    part.push_back(entry);
  }
  if (!part.empty()) {
    if (is_given(arguments.find(1))) {
      runtime.meter().expect(static_cast<std::size_t>(std::min<std::int64_t>(size, 1 << 30)) *
                             sizeof(Value));
      part.resize(static_cast<std::size_t>(size), arguments.at(1));
    }
    result.push_back(runtime.list(std::move(part)));
  }
  return runtime.iterator(std::move(result));
}

Value slice(Runtime& runtime, const Value& value, Arguments& arguments) {
  arguments.bind("slice", {"slices", "fill_with"}, 1);
  const std::vector<Value> entries = entries_of(runtime, value);
  const std::int64_t count = arguments.integer(0, 0);
  if (count < 1) fail("slice: the number of slices must be at least 1");
  runtime.meter().step(count);
  runtime.meter().expect(static_cast<std::size_t>(count) * sizeof(Value));
  const std::int64_t size = std::ssize(entries) / count;
  const std::int64_t num_longer = std::ssize(entries) % count;
  std::vector<Value> result;
  auto at = entries.begin();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto end = at + size + (i < num_longer ? 1 : 0);
    std::vector<Value> part(at, end);
    if (is_given(arguments.find(1)) && i >= num_longer) part.push_back(arguments.at(1));
    result.push_back(runtime.list(std::move(part)));
    at = end;
  }
  return runtime.iterator(std::move(result));
}

struct SequenceFilter {
  std::string_view name;
  Callable call;
};

constexpr auto kSequenceFilters = std::to_array<SequenceFilter>({
    {"batch", batch},
    {"count", length},
    {"dictsort", dictsort},
    {"first", first},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"map", map},
    {"max", max},
    {"min", min},
    {"reject", choose<false, false>},
    {"rejectattr", choose<true, false>},
    {"reverse", reverse},
    {"select", choose<false, true>},
    {"selectattr", choose<true, true>},
    {"slice", slice},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
});

}  // namespace

Value looked_up(Runtime& runtime, Value value, const Value& attribute) {
  if (!attribute.is_string()) return item_of(runtime, value, attribute);
  const std::string dot = ".";
  for (const Value& part : split_text(runtime, attribute.text(), &dot, -1)) {
    const std::string& name = part.text();
    const bool is_number =
        !name.empty() && name.size() < 18 &&
        std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    value = item_of(runtime, value, is_number ? Value(std::int64_t{std::stoll(name)}) : part);
  }
  return value;
}

Callable find_sequence_filter(std::string_view name) {
  const auto* const found =
      std::find_if(kSequenceFilters.begin(), kSequenceFilters.end(),
                   [name](const SequenceFilter& entry) { return entry.name == name; });
  return found == kSequenceFilters.end() ? nullptr : found->call;
}

}  // namespace metronome::jinja
