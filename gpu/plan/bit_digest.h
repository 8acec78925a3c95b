// SPDX-License-Identifier: Apache-2.0
// A fingerprint of data too large to keep. No device code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace metronome {

class BitDigest {
 public:
  // The value depends on every bit, and on how the data are divided into pieces.
  void add(std::span<const std::byte> piece);
  std::uint64_t value() const;  // of all pieces so far

 private:
  // Independent chains, so that one multiplication does not wait for another.
  static constexpr std::size_t kNumLanes = 8;
  std::array<std::uint64_t, kNumLanes> lanes_{};
};

}  // namespace metronome
