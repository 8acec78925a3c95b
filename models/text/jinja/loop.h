// SPDX-License-Identifier: Apache-2.0
// The variable `loop` inside a for statement.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "models/text/jinja/arguments.h"
#include "models/text/jinja/value.h"

namespace metronome::jinja {

class Loop final : public Object {
 public:
  // `passes` is the loop's `if`; empty: every entry passes. It is asked for an entry when the loop
  // reaches it, or looks ahead.
  Loop(Runtime& runtime, std::vector<Value> entries, std::function<bool(const Value&)> passes);

  // The next entry; nullopt at the end.
  std::optional<Value> advance();
  // Nothing is asked for after this.
  void finish();
  // loop.NAME; nullopt: there is no such attribute.
  std::optional<Value> attribute(Runtime& runtime, std::string_view name);
  // loop.changed(...) and loop.cycle(...)
  bool changed(Runtime& runtime, const std::vector<Value>& values);
  Value cycle(const std::vector<Value>& values) const;

 private:
  std::optional<Value> pull();
  const Value* peek();
  std::int64_t length();

  std::vector<Value> entries_;
  std::size_t next_ = 0;
  std::function<bool(const Value&)> passes_;
  std::deque<Value> ahead_;  // pulled, but not reached
  std::int64_t index0_ = -1;
  std::optional<Value> before_, current_;
  std::optional<Value> last_changed_;  // a tuple
};

// nullptr: none of this name.
Callable loop_method(std::string_view name);

}  // namespace metronome::jinja
