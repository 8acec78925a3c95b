// SPDX-License-Identifier: Apache-2.0
// Requests waiting for admission, in the order of admission.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/engine/request.h"
#include "core/engine/scheduler_config.h"

namespace metronome {

// Orders. fcfs: new requests join at the back, preempted ones mostly at the front. priority: by
// (priority value, arrival, submission). shortest_prefill_first: by (tokens to compute,
// submission). The two ends matter for fcfs only.
class WaitingQueue {
 public:
  explicit WaitingQueue(QueueOrder order) : order_(order) {}

  void push_back(Request& request) {
    back_ = std::max(back_ + 1, turn_of(request));
    push(request, back_);
  }
  void push_front(Request& request) { push(request, --front_); }
  // Back to its submission rank: before every request that joined at the back after it.
  void push_in_turn(Request& request) { push(request, turn_of(request)); }
  Request* front() const { return empty() ? nullptr : heap_[begin_].request; }
  void pop();                           // requires a request
  void remove(const Request& request);  // requires that the request is in this queue; O(n)

  // Sorts by the caller's key; ties keep the order of the queue. O(n).
  void sort_by(const std::function<std::int64_t(const Request&)>& key_of);

  // The requests in order. Cost: O(n log n).
  std::vector<Request*> in_order() const;

  // Calls `visit` for each request, in order, until it returns false. Does not change the queue.
  // Cost: O(k log k) for the first k.
  template <class Visit>
  void visit_in_order(const Visit& visit) const;

  std::size_t size() const { return heap_.size() - begin_; }
  bool empty() const { return size() == 0; }

  // The primary sort key of `request` under `order`.
  static std::int64_t key_of(QueueOrder order, const Request& request);

 private:
  struct Entry {
    std::int64_t key;
    std::int64_t rank;  // among equal keys
    RequestId id;       // a copy: comparisons must not touch the request
    Request* request;
  };
  static bool after(const Entry& a, const Entry& b) {
    if (a.key != b.key) return a.key > b.key;
    return a.rank != b.rank ? a.rank > b.rank : a.id > b.id;
  }
  static std::int64_t turn_of(const Request& request) {
    return static_cast<std::int64_t>(index(request.id)) + 1;
  }
  void push(Request& request, std::int64_t rank);
  void make_heap();
  std::vector<Entry>::iterator first() {
    return heap_.begin() + static_cast<std::ptrdiff_t>(begin_);
  }

  QueueOrder order_;
  std::int64_t front_ = 0;  // ranks of the two ends
  std::int64_t back_ = 0;
  // A heap from begin_ on. As long as requests join at the ends it is in order, so that the first
  // one leaves without moving the others.
  std::vector<Entry> heap_;
  std::size_t begin_ = 0;
  bool is_in_order_ = true;
};

template <class Visit>
void WaitingQueue::visit_in_order(const Visit& visit) const {
  // The next one is a child of a visited one, so the candidates form a heap of their own.
  const auto entry = [this](std::size_t at) -> const Entry& { return heap_[begin_ + at]; };
  const auto is_after = [&](std::size_t a, std::size_t b) { return after(entry(a), entry(b)); };
  std::vector<std::size_t> next;
  const auto add = [&](std::size_t at) {
    if (at >= size()) return;
    next.push_back(at);
    std::push_heap(next.begin(), next.end(), is_after);
  };
  add(0);
  while (!next.empty()) {
    std::pop_heap(next.begin(), next.end(), is_after);
    const std::size_t at = next.back();
    next.pop_back();
    if (!visit(*entry(at).request)) return;
    add(2 * at + 1);
    add(2 * at + 2);
  }
}

}  // namespace metronome
