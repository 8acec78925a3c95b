// SPDX-License-Identifier: Apache-2.0
// The order of a Python set of small integers. Schedulers in Python walk such sets, so their order
// is part of decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metronome {

// A set of integers >= 0 that lists them as CPython 3.10 to 3.13 do (Objects/setobject.c): in the
// order of a hash table with open addressing, where an integer is its own hash. The order depends
// on the history; below 8 it is ascending as long as nothing is removed and added again.
class PythonIntSet {
 public:
  bool empty() const { return num_used_ == 0; }
  std::size_t size() const { return num_used_; }
  // Adding what the set has does nothing. Removing requires that the set has it.
  void add(std::int32_t value);
  void remove(std::int32_t value);
  // As Python's list(set).
  std::vector<std::int32_t> list() const;

 private:
  static constexpr std::int32_t kEmpty = -1;
  static constexpr std::int32_t kRemoved = -2;

  void grow();

  std::vector<std::int32_t> slots_ = std::vector<std::int32_t>(8, kEmpty);  // a power of two
  std::size_t num_filled_ = 0;  // slots that are not kEmpty
  std::size_t num_used_ = 0;
};

}  // namespace metronome
