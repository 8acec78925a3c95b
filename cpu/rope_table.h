// Cosines and sines of rotary embeddings by position, computed once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace metronome {

class RopeTable {
 public:
  explicit RopeTable(std::vector<float> frequencies) : frequencies_(std::move(frequencies)) {}

  // Computes positions up to num_positions (exclusive).
  void extend(std::int32_t num_positions);

  // [head_dim / 2] each. Requires position < num_positions of extend().
  const float* cos(std::int32_t position) const { return cos_.data() + offset(position); }
  const float* sin(std::int32_t position) const { return sin_.data() + offset(position); }

 private:
  std::size_t offset(std::int32_t position) const {
    return static_cast<std::size_t>(position) * frequencies_.size();
  }

  std::vector<float> frequencies_;  // [head_dim / 2]
  std::vector<float> cos_;          // [num_positions, head_dim / 2]
  std::vector<float> sin_;          // the same shape
};

}  // namespace metronome
