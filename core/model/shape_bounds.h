// SPDX-License-Identifier: Apache-2.0
// Checks of the numbers that describe a model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// A number with the range that is allowed, both ends included.
struct IntegerBound {
  const char* key;
  std::int64_t value;
  std::int64_t min;
  std::int64_t max;
};

// The range of a number of ModelConfig, where it does not depend on other numbers: by its key in a
// catalogue ("hidden_dim", "vision.depth").
struct IntegerRange {
  std::int64_t min = 0;
  std::int64_t max = 0;
};
std::optional<IntegerRange> shape_range(std::string_view key);
// The bound of a number that has such a range.
IntegerBound within_range(const char* key, std::int64_t value);

// The first number out of its range, as "key: is 0; allowed: 1 to 4" with `prefix` in front; empty:
// none.
std::string bounds_error(std::span<const IntegerBound> bounds, std::string_view prefix = {});

// Why a list is not ascending numbers from 0 to `end` - 1, as "key: contains 7; allowed: ...";
// empty if it is.
std::string ascending_error(std::string_view key, const std::vector<std::int64_t>& numbers,
                            std::int64_t end);

}  // namespace metronome
