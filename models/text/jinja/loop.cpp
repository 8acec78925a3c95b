// SPDX-License-Identifier: Apache-2.0
#include "models/text/jinja/loop.h"

#include <algorithm>

namespace metronome::jinja {
namespace {

Value call_changed(Runtime& runtime, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty()) fail("changed() has no arguments with names");
  return Value(self.as<Loop>().changed(runtime, arguments.positional));
}

Value call_cycle(Runtime&, const Value& self, Arguments& arguments) {
  if (!arguments.named.empty()) fail("cycle() has no arguments with names");
  return self.as<Loop>().cycle(arguments.positional);
}

}  // namespace

Loop::Loop(Runtime& runtime, std::vector<Value> entries, std::function<bool(const Value&)> passes)
    : Object(&runtime.meter(), sizeof(Loop) + entries.size() * sizeof(Value)),
      entries_(std::move(entries)),
      passes_(std::move(passes)) {}

std::optional<Value> Loop::pull() {
  while (next_ < entries_.size()) {
    const Value entry = entries_[next_++];
    if (!passes_ || passes_(entry)) return entry;
  }
  return std::nullopt;
}

const Value* Loop::peek() {
  if (ahead_.empty()) {
    std::optional<Value> entry = pull();
    if (!entry) return nullptr;
    ahead_.push_back(std::move(*entry));
  }
  return &ahead_.front();
}

std::int64_t Loop::length() {
  while (std::optional<Value> entry = pull()) ahead_.push_back(std::move(*entry));
  return std::ssize(ahead_) + index0_ + 1;
}

std::optional<Value> Loop::advance() {
  if (peek() == nullptr) return std::nullopt;
  before_ = std::move(current_);
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  ++index0_;
  return current_;
}

void Loop::finish() {
  entries_.clear();
  next_ = 0;
  passes_ = nullptr;
}

std::optional<Value> Loop::attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(peek() == nullptr);
  if (name == "length") return Value(length());
  if (name == "revindex") return Value(length() - index0_);
  if (name == "revindex0") return Value(length() - index0_ - 1);
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") {
    return before_ ? *before_ : runtime.undefined("there is no previous item");
  }
  if (name == "nextitem") {
    const Value* next = peek();
    return next ? *next : runtime.undefined("there is no next item");
  }
  return std::nullopt;
}

bool Loop::changed(Runtime& runtime, const std::vector<Value>& values) {
  Value given = runtime.tuple(values);
  const bool is_same = last_changed_ && is_equal(runtime, given, *last_changed_);
  if (!is_same) last_changed_ = std::move(given);
  return !is_same;
}

Value Loop::cycle(const std::vector<Value>& values) const {
  if (values.empty()) fail("no items for cycling given");
  return values[static_cast<std::size_t>(std::max<std::int64_t>(index0_, 0)) % values.size()];
}

Callable loop_method(std::string_view name) {
  if (name == "changed") return call_changed;
  return name == "cycle" ? call_cycle : nullptr;
}

}  // namespace metronome::jinja
