// SPDX-License-Identifier: Apache-2.0
// Removal of several elements of a vector in one pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/error.h"

namespace metronome {

// Removes each value of `gone` from `all`, where it is once. Calls on_erase(place) for each; the
// place is that without the values removed before. Takes one pass if `gone` is in the order of
// `all`, and one more for each value that is not.
template <class T, class U, class OnErase>
void erase_each(std::vector<T>& all, std::span<U> gone, const OnErase& on_erase) {
  auto next = gone.begin();
  while (next != gone.end()) {
    auto from = std::find(all.begin(), all.end(), *next);
    METRONOME_CHECK(from != all.end(), "what is erased is there");
    auto to = from;
    while (from != all.end()) {
      on_erase(static_cast<std::size_t>(to - all.begin()));
      ++from;
      ++next;
      const auto stop = next != gone.end() ? std::find(from, all.end(), *next) : all.end();
      to = std::move(from, stop, to);
      from = stop;
    }
    all.erase(to, all.end());
  }
}

}  // namespace metronome
