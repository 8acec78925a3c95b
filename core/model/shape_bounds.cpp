#include "core/model/shape_bounds.h"

namespace metronome {

std::string bounds_error(std::span<const IntegerBound> bounds, std::string_view prefix) {
  for (const IntegerBound& bound : bounds) {
    if (bound.value >= bound.min && bound.value <= bound.max) continue;
    return std::string(prefix) + bound.key + ": is " + std::to_string(bound.value) +
           "; allowed: " + std::to_string(bound.min) + " to " + std::to_string(bound.max);
  }
  return {};
}

std::string ascending_error(std::string_view key, const std::vector<std::int64_t>& numbers,
                            std::int64_t end) {
  std::int64_t last = -1;
  for (const std::int64_t number : numbers) {
    if (number <= last || number >= end) {
      return std::string(key) + ": contains " + std::to_string(number) + "; allowed: 0 to " +
             std::to_string(end - 1) + ", ascending";
    }
    last = number;
  }
  return {};
}

}  // namespace metronome
