// SPDX-License-Identifier: Apache-2.0
#include "cpu/rope_table.h"

#include <algorithm>
#include <cmath>

namespace metronome {

void RopeTable::extend(std::int32_t num_positions) {
  const std::size_t n = frequencies_.size();
  if (n == 0) return;
  const auto known = static_cast<std::int32_t>(cos_.size() / n);
  if (num_positions <= known) return;
  // Doubles the table, so that the cost per position is constant while a context grows.
  const std::int32_t end = std::max(num_positions, 2 * known);
  cos_.reserve(static_cast<std::size_t>(end) * n);
  sin_.reserve(static_cast<std::size_t>(end) * n);
  for (std::int32_t position = known; position < end; ++position) {
    for (const float frequency : frequencies_) {
      // The angle is a float product, as in transformers. At position 100,000 a double product
      // would differ by 0.004.
      const double angle = static_cast<double>(static_cast<float>(position) * frequency);
      cos_.push_back(static_cast<float>(std::cos(angle)) * magnitude_);
      sin_.push_back(static_cast<float>(std::sin(angle)) * magnitude_);
    }
  }
}

}  // namespace metronome
