// Removal of several elements of a vector in one pass.
#pragma once

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
  for (std::size_t next = 0; next < gone.size();) {
    const std::size_t num_before = next;
    std::size_t kept = 0;
    while (kept < all.size() && all[kept] != gone[next]) ++kept;
    for (std::size_t i = kept; i < all.size(); ++i) {
      if (next < gone.size() && all[i] == gone[next]) {
        on_erase(kept);
        ++next;
      } else {
        all[kept++] = all[i];
      }
    }
    METRONOME_CHECK(next > num_before, "what is erased is there");
    all.resize(kept);
  }
}

}  // namespace metronome
