// SPDX-License-Identifier: Apache-2.0
#include "core/base/python_int_set.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "core/base/error.h"

namespace metronome {
namespace {

constexpr std::size_t kLinearProbes = 9;  // behind the first of a round
constexpr unsigned kPerturbShift = 5;

// Visits the slots of a value in the order in which CPython probes them, until visit(slot) says
// true.
template <class Visit>
void probe(std::int32_t value, std::size_t mask, const Visit& visit) {
  auto perturb = static_cast<std::size_t>(value);
  std::size_t at = perturb & mask;
  while (true) {
    const std::size_t num_more = at + kLinearProbes <= mask ? kLinearProbes : 0;
    for (std::size_t slot = at; slot <= at + num_more; ++slot) {
      if (visit(slot)) return;
    }
    perturb >>= kPerturbShift;
    at = (at * 5 + 1 + perturb) & mask;
  }
}

}  // namespace

void PythonIntSet::add(std::int32_t value) {
  METRONOME_CHECK(value >= 0, "the set is of integers from 0 on");
  const std::size_t mask = slots_.size() - 1;
  std::size_t place = slots_.size();  // a slot whose value was removed; the last on the way
  probe(value, mask, [&](std::size_t slot) {
    const std::int32_t there = slots_[slot];
    if (there == value) {
      place = slot;
      return true;
    }
    if (there == kRemoved) place = slot;
    if (there != kEmpty) return false;
    if (place == slots_.size()) {
      place = slot;
      ++num_filled_;
    }
    ++num_used_;
    return true;
  });
  slots_[place] = value;
  if (num_filled_ * 5 >= mask * 3) grow();
}

// Leaves out the slots of removed values.
void PythonIntSet::grow() {
  constexpr std::size_t kLarge = 50'000;
  const std::size_t wanted = num_used_ > kLarge ? num_used_ * 2 : num_used_ * 4;
  std::vector<std::int32_t> slots(std::max<std::size_t>(8, std::bit_ceil(wanted + 1)), kEmpty);
  for (const std::int32_t value : slots_) {
    if (value < 0) continue;
    probe(value, slots.size() - 1, [&](std::size_t slot) {
      if (slots[slot] != kEmpty) return false;
      slots[slot] = value;
      return true;
    });
  }
  slots_ = std::move(slots);
  num_filled_ = num_used_;
}

void PythonIntSet::remove(std::int32_t value) {
  const auto found = std::find(slots_.begin(), slots_.end(), value);
  METRONOME_CHECK(value >= 0 && found != slots_.end(), "the set has the value");
  *found = kRemoved;
  --num_used_;
}

std::vector<std::int32_t> PythonIntSet::list() const {
  std::vector<std::int32_t> values;
  std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(values),
               [](std::int32_t value) { return value >= 0; });
  return values;
}

}  // namespace metronome
