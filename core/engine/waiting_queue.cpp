// SPDX-License-Identifier: Apache-2.0
#include "core/engine/waiting_queue.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

std::int64_t WaitingQueue::key_of(QueueOrder order, const Request& request) {
  switch (order) {
    case QueueOrder::Fcfs: return 0;
    case QueueOrder::Priority: return request.priority;
    case QueueOrder::ShortestPrefillFirst: return request.num_uncomputed_tokens();
  }
  return 0;
}

void WaitingQueue::push(Request& request, std::int64_t rank) {
  if (order_ == QueueOrder::Priority) rank = request.arrival;
  if (order_ == QueueOrder::ShortestPrefillFirst) rank = 0;
  const Entry entry{key_of(order_, request), rank, request.id, &request};
  if (is_in_order_ && !empty() && after(heap_[begin_], entry)) {
    if (begin_ == 0) {  // as much room as for a quarter of the queue
      begin_ = 1 + size() / 4;
      heap_.insert(heap_.begin(), begin_, entry);
    }
    heap_[--begin_] = entry;
    return;
  }
  is_in_order_ = is_in_order_ && (empty() || after(entry, heap_.back()));
  if (begin_ > size()) {  // most of the memory is of requests that left
    heap_.erase(heap_.begin(), first());
    begin_ = 0;
  }
  heap_.push_back(entry);
  if (!is_in_order_) std::push_heap(first(), heap_.end(), after);
}

void WaitingQueue::pop() {
  METRONOME_CHECK(!empty(), "pop from an empty queue");
  if (is_in_order_) {
    ++begin_;
  } else {
    std::pop_heap(first(), heap_.end(), after);
    heap_.pop_back();
  }
  if (empty()) make_heap();
}

void WaitingQueue::make_heap() {
  std::make_heap(first(), heap_.end(), after);
  is_in_order_ = size() <= 1;
}

void WaitingQueue::remove(const Request& request) {
  const auto it = std::find_if(first(), heap_.end(),
                               [&](const Entry& entry) { return entry.request == &request; });
  METRONOME_CHECK(it != heap_.end(), "the request does not wait in this queue");
  if (is_in_order_ && it == first()) return pop();
  heap_.erase(it);
  if (!is_in_order_) make_heap();
}

void WaitingQueue::sort_by(const std::function<std::int64_t(const Request&)>& key_of) {
  for (auto it = first(); it != heap_.end(); ++it) it->key = key_of(*it->request);
  const auto before = [](const Entry& a, const Entry& b) { return after(b, a); };
  // Often the order is that of the last time.
  if (!std::is_sorted(first(), heap_.end(), before)) std::sort(first(), heap_.end(), before);
  is_in_order_ = true;
}

std::vector<Request*> WaitingQueue::in_order() const {
  std::vector<Request*> requests;
  requests.reserve(size());
  if (is_in_order_) {
    for (std::size_t i = begin_; i < heap_.size(); ++i) requests.push_back(heap_[i].request);
    return requests;
  }
  visit_in_order([&](Request& request) {
    requests.push_back(&request);
    return true;
  });
  return requests;
}

}  // namespace metronome
