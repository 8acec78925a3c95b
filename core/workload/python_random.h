// SPDX-License-Identifier: Apache-2.0
// Python's `random` module, for selections that equal those of programs in Python: the Mersenne
// Twister as `random.seed(n)` sets it, `random.shuffle` and `random.choice` (Lib/random.py and
// Modules/_randommodule.c of CPython 3.9 and later).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace metronome {

class PythonRandom {
 public:
  // As random.seed(seed).
  explicit PythonRandom(std::uint64_t seed);

  // A number in [0, count), as random._randbelow(count). Requires 1 <= count < 2^32.
  std::uint32_t below(std::uint32_t count);

  // As random.shuffle(items).
  template <class Item>
  void shuffle(std::vector<Item>& items) {
    for (std::size_t i = items.size(); i-- > 1;) {
      std::swap(items[i], items[below(static_cast<std::uint32_t>(i) + 1)]);
    }
  }

 private:
  static constexpr std::size_t kStateWords = 624;

  void seed_with(const std::vector<std::uint32_t>& key);
  void refill();
  std::uint32_t next();  // genrand_uint32

  std::array<std::uint32_t, kStateWords> state_;
  std::size_t next_ = kStateWords;  // the first word that is not used up
};

}  // namespace metronome
