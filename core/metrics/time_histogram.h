// SPDX-License-Identifier: Apache-2.0
// A sample of durations in bounded memory: how many lie between bounds that are a half of a percent
// apart. Its percentiles are within that of the exact ones; count and extremes are exact.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/distribution.h"
#include "core/base/types.h"

namespace metronome {

class TimeHistogram {
 public:
  // Durations below 0 count as 0.
  void add(TimeNs value_ns, std::int64_t count = 1) {
    const std::uint64_t value = value_ns > 0 ? static_cast<std::uint64_t>(value_ns) : 0;
    const Place place = place_of(value);
    if (counts_[place.octave] == nullptr) [[unlikely]]
      counts_[place.octave] = std::make_unique<Octave>();
    (*counts_[place.octave])[place.slot] += count;
    count_ += count;
    const auto number = static_cast<double>(value);
    const double weighted = number * static_cast<double>(count);
    sum_ += weighted;
    squares_ += number * weighted;
    if (value < min_) min_ = value;
    if (value > max_) max_ = value;
  }
  void add(const TimeHistogram& others);
  // Takes out what add() added. The extremes stay.
  void subtract(const TimeHistogram& others);
  void set_extremes(TimeNs min_ns, TimeNs max_ns);

  std::int64_t count() const { return count_; }
  Distribution describe() const;

 private:
  // Values below 2^kBits have a slot each, and every octave above has as many slots.
  static constexpr int kBits = 8;
  static constexpr std::size_t kSlots = std::size_t{1} << kBits;
  static constexpr std::size_t kOctaves = 64 - kBits + 1;
  using Octave = std::array<std::int64_t, kSlots>;
  struct Place {
    std::size_t octave;
    std::size_t slot;
  };
  static Place place_of(std::uint64_t value) {
    const int octave = static_cast<int>(std::bit_width(value)) - kBits;
    if (octave <= 0) return {0, static_cast<std::size_t>(value)};
    return {static_cast<std::size_t>(octave),
            static_cast<std::size_t>(value >> (octave - 1)) - kSlots};
  }
  // The value at a rank, from 0.
  double value_at(double rank) const;

  std::array<std::unique_ptr<Octave>, kOctaves> counts_;
  std::int64_t count_ = 0;
  double sum_ = 0;
  double squares_ = 0;
  std::uint64_t min_ = UINT64_MAX;
  std::uint64_t max_ = 0;
};

}  // namespace metronome
