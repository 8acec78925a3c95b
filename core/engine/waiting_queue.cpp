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

bool WaitingQueue::after(const Entry& a, const Entry& b) {
  if (a.key != b.key) return a.key > b.key;
  return a.rank != b.rank ? a.rank > b.rank : a.id > b.id;
}

void WaitingQueue::push(Request& request, std::int64_t rank) {
  if (order_ == QueueOrder::Priority) rank = request.arrival;
  if (order_ == QueueOrder::ShortestPrefillFirst) rank = 0;
  heap_.push_back({key_of(order_, request), rank, request.id, &request});
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

void WaitingQueue::sort_by(const std::function<std::int64_t(const Request&)>& key_of) {
  for (Entry& entry : heap_) entry.key = key_of(*entry.request);
  std::make_heap(heap_.begin(), heap_.end(), after);
}

std::vector<Request*> WaitingQueue::in_order() const {
  std::vector<Entry> entries = heap_;
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return after(b, a); });
  std::vector<Request*> requests;
  requests.reserve(entries.size());
  for (const Entry& entry : entries) requests.push_back(entry.request);
  return requests;
}

}  // namespace metronome
