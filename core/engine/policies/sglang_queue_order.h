// The order in which policy `sglang` admits and preempts requests (SGLang 0.5.23:
// managers/schedule_policy.py).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/engine/kv/kv_cache.h"
#include "core/engine/scheduler_config.h"
#include "core/engine/waiting_queue.h"

namespace metronome {

class SglangQueueOrder {
 public:
  // The references must outlive it.
  SglangQueueOrder(const SglangConfig& settings, WaitingQueue& queue, KvCacheManager& kv_cache)
      : settings_(settings), queue_(queue), kv_cache_(kv_cache) {}

  // Reports that a request joins the queue, at first or after a retraction.
  void note_entry(const Request& request) { entries_[request.id] = ++num_entries_; }
  void forget(const Request& request) { entries_.erase(request.id); }

  // Sorts the queue before a prefill, and touches cached prefixes as SGLang does.
  void sort();

  // Lower values go first.
  std::int64_t rank(const Request& request) const {
    const std::int64_t priority = request.priority;
    return settings_.schedule_low_priority_values_first ? priority : -priority;
  }
  // Running requests by falling rank, of equal ones the last to join first.
  std::vector<Request*> worst_first(std::vector<Request*> batch) const;

 private:
  void refresh_prefixes();
  void sort_by_priority();
  void sort_by_longest_prefix();
  void set_order(const std::vector<Request*>& order);

  const SglangConfig& settings_;
  WaitingQueue& queue_;
  KvCacheManager& kv_cache_;
  std::int64_t num_refreshes_ = 0;
  std::int64_t num_entries_ = 0;
  std::map<RequestId, std::int64_t> entries_;  // when a request joined the queue last
};

}  // namespace metronome
