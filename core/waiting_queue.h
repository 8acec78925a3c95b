// Requests that wait for admission, in the order they will be taken.
#pragma once

#include <cstdint>
#include <vector>

#include "core/request.h"
#include "core/scenario.h"

namespace metronome {

// Orders: fcfs by submission (a preempted request, submitted before all that wait, goes to the
// front); priority by (priority value, submission); shortest_prefill_first by (tokens to compute,
// submission).
class WaitingQueue {
 public:
  explicit WaitingQueue(QueueOrder order) : order_(order) {}

  void push(Request& request);
  Request* front() const { return heap_.empty() ? nullptr : heap_.front().request; }
  void pop();                           // requires a request
  void remove(const Request& request);  // requires that it waits here; O(n), for rare aborts

  std::size_t size() const { return heap_.size(); }
  bool empty() const { return heap_.empty(); }

  // The primary sort key of `request` under `order`; ties break by id.
  static std::int64_t key_of(QueueOrder order, const Request& request);

 private:
  struct Entry {
    std::int64_t key;
    RequestId id;  // a copy: comparing must not touch the request
    Request* request;
  };
  static bool after(const Entry& a, const Entry& b);

  QueueOrder order_;
  std::vector<Entry> heap_;
};

}  // namespace metronome
