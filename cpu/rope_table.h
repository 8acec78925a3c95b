// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary embeddings by position, computed once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace metronome {

class RopeTable {
 public:
  // Cosines and sines are multiplied by `magnitude`.
  RopeTable(std::vector<float> frequencies, float magnitude)
      : frequencies_(std::move(frequencies)), magnitude_(magnitude) {}

  // Computes positions up to num_positions (exclusive).
  void extend(std::int32_t num_positions);

  // [number of frequencies] each. Requires position < num_positions of extend().
  const float* cos(std::int32_t position) const { return cos_.data() + offset(position); }
  const float* sin(std::int32_t position) const { return sin_.data() + offset(position); }

 private:
  std::size_t offset(std::int32_t position) const {
    return static_cast<std::size_t>(position) * frequencies_.size();
  }

  std::vector<float> frequencies_;  // one for each rotated pair
  float magnitude_ = 1;
  std::vector<float> cos_;  // [num_positions, frequencies]
  std::vector<float> sin_;  // the same shape
};

}  // namespace metronome
