#include "core/waiting_queue.h"

#include <algorithm>

#include "core/error.h"

namespace metronome {

std::int64_t WaitingQueue::key_of(QueueOrder order, const Request& request) {
  switch (order) {
    case QueueOrder::Fcfs: return 0;
    case QueueOrder::Priority: return request.priority;
    case QueueOrder::ShortestPrefillFirst: return request.num_uncomputed_tokens();
  }
  return 0;
}

bool WaitingQueue::after(const Entry& a, const Entry& b) {
  return a.key != b.key ? a.key > b.key : a.id > b.id;
}

void WaitingQueue::push(Request& request) {
  heap_.push_back({key_of(order_, request), request.id, &request});
  std::push_heap(heap_.begin(), heap_.end(), after);
}

void WaitingQueue::pop() {
  METRONOME_CHECK(!heap_.empty(), "pop from an empty queue");
  std::pop_heap(heap_.begin(), heap_.end(), after);
  heap_.pop_back();
}

void WaitingQueue::remove(const Request& request) {
  const auto it = std::find_if(heap_.begin(), heap_.end(),
                               [&](const Entry& entry) { return entry.request == &request; });
  METRONOME_CHECK(it != heap_.end(), "the request does not wait in this queue");
  heap_.erase(it);
  std::make_heap(heap_.begin(), heap_.end(), after);
}

}  // namespace metronome
