// SPDX-License-Identifier: Apache-2.0
// When something may happen next at each of many replicas.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/types.h"
#include "fleet/router.h"

namespace metronome {

// A heap of replicas by time, and by number where times are equal.
class NextTimes {
 public:
  // For all replicas kNever.
  explicit NextTimes(std::size_t num_replicas) : times_(num_replicas, kNever) {
    for (std::size_t i = 0; i < num_replicas; ++i) {
      heap_.push_back(static_cast<ReplicaId>(i));
      places_.push_back(i);
    }
  }

  TimeNs time_of(ReplicaId replica) const { return times_[index_of(replica)]; }
  ReplicaId first() const { return heap_.front(); }
  TimeNs first_time() const { return time_of(first()); }
  void set(ReplicaId replica, TimeNs time) {
    times_[index_of(replica)] = time;
    sink(rise(places_[index_of(replica)]));
  }

 private:
  static std::size_t index_of(ReplicaId replica) { return static_cast<std::size_t>(replica); }
  bool comes_before(std::size_t a, std::size_t b) const {
    return std::pair(time_of(heap_[a]), heap_[a]) < std::pair(time_of(heap_[b]), heap_[b]);
  }
  void exchange(std::size_t a, std::size_t b) {
    std::swap(heap_[a], heap_[b]);
    places_[index_of(heap_[a])] = a;
    places_[index_of(heap_[b])] = b;
  }
  std::size_t rise(std::size_t at) {
    while (at > 0 && comes_before(at, (at - 1) / 2)) {
      exchange(at, (at - 1) / 2);
      at = (at - 1) / 2;
    }
    return at;
  }
  void sink(std::size_t at) {
    while (true) {
      std::size_t least = at;
      for (const std::size_t child : {2 * at + 1, 2 * at + 2}) {
        if (child < heap_.size() && comes_before(child, least)) least = child;
      }
      if (least == at) return;
      exchange(at, least);
      at = least;
    }
  }

  std::vector<TimeNs> times_;        // by replica
  std::vector<ReplicaId> heap_;      // each is not before its parent
  std::vector<std::size_t> places_;  // in the heap, by replica
};

}  // namespace metronome
