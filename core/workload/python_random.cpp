// SPDX-License-Identifier: Apache-2.0
#include "core/workload/python_random.h"

#include <algorithm>
#include <bit>

#include "core/base/error.h"

namespace metronome {

// The functions of the Mersenne Twister's authors, Matsumoto and Nishimura (mt19937ar.c), as in
// CPython.

PythonRandom::PythonRandom(std::uint64_t seed) {
  std::vector<std::uint32_t> key = {static_cast<std::uint32_t>(seed)};
  if (seed >> 32 != 0) key.push_back(static_cast<std::uint32_t>(seed >> 32));
  seed_with(key);
}

// init_by_array
void PythonRandom::seed_with(const std::vector<std::uint32_t>& key) {
  state_[0] = 19650218u;
  for (std::uint32_t i = 1; i < kStateWords; ++i) {
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + i;
  }
  std::size_t i = 1;
  std::size_t j = 0;
  const auto advance = [this, &i] {
    if (++i < kStateWords) return;
    state_[0] = state_[kStateWords - 1];
    i = 1;
  };
  for (std::size_t k = std::max(kStateWords, key.size()); k > 0; --k) {
    const std::uint32_t mixed = (state_[i - 1] ^ (state_[i - 1] >> 30)) * 1664525u;
    state_[i] = (state_[i] ^ mixed) + key[j] + static_cast<std::uint32_t>(j);
    advance();
    j = j + 1 < key.size() ? j + 1 : 0;
  }
  for (std::size_t k = kStateWords - 1; k > 0; --k) {
    const std::uint32_t mixed = (state_[i - 1] ^ (state_[i - 1] >> 30)) * 1566083941u;
    state_[i] = (state_[i] ^ mixed) - static_cast<std::uint32_t>(i);
    advance();
  }
  state_[0] = 0x80000000u;
}

void PythonRandom::refill() {
  constexpr std::size_t kShift = 397;
  for (std::size_t i = 0; i < kStateWords; ++i) {
    const std::uint32_t word =
        (state_[i] & 0x80000000u) | (state_[(i + 1) % kStateWords] & 0x7fffffffu);
    state_[i] = state_[(i + kShift) % kStateWords] ^ (word >> 1) ^ (word & 1 ? 0x9908b0dfu : 0);
  }
  next_ = 0;
}

std::uint32_t PythonRandom::next() {
  if (next_ == kStateWords) refill();
  std::uint32_t word = state_[next_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680u;
  word ^= (word << 15) & 0xefc60000u;
  return word ^ (word >> 18);
}

std::uint32_t PythonRandom::below(std::uint32_t count) {
  METRONOME_CHECK(count >= 1, "a choice needs something to choose from");
  const int num_bits = static_cast<int>(std::bit_width(count));
  std::uint32_t drawn = count;
  while (drawn >= count) drawn = next() >> (32 - num_bits);
  return drawn;
}

}  // namespace metronome
