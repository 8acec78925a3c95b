// SPDX-License-Identifier: Apache-2.0
// The order in which policy `sglang` admits and preempts requests (SGLang 0.5.23:
// managers/schedule_policy.py).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/engine/books.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/scheduler_config.h"
#include "engines/sglang/settings.h"

namespace metronome {

class SglangQueueOrder {
 public:
  using Policy = SglangConfig::SchedulePolicy;

  // `settings` must outlive it.
  explicit SglangQueueOrder(const SglangConfig& settings) : settings_(settings) {}

  // Reports that a request joins the queue, at first or after a retraction.
  void note_entry(const Request& request) {
    entries_[request.id] = {++num_entries_, num_computed_};
    if (index(request.id) < places_.size()) places_[index(request.id)] = kNoPlace;
  }
  void forget(const Request& request) { entries_.erase(request.id); }

  // Reports a step, of so many tokens by SGLang's count.
  void note_step(std::int64_t num_tokens) { num_computed_ += num_tokens; }

  // Sorts the queue before a prefill, and touches cached prefixes as SGLang does.
  void sort(Books& books);

  // Under shortest-prefill-first: at most so many of the `budget` tokens are for a prompt in
  // progress that lacks `num_left` tokens. The others are for shorter prompts that wait.
  std::int64_t chunk_limit(std::int64_t num_left, std::int64_t budget) const;
  bool takes_shorter_prompts() const {
    return settings_.schedule_policy == Policy::ShortestPrefillFirst;
  }

  // Lower values go first.
  std::int64_t rank(const Request& request) const {
    const std::int64_t priority = request.priority;
    return settings_.schedule_low_priority_values_first ? priority : -priority;
  }
  // Running requests by falling rank, of equal ones the last to join first.
  std::vector<Request*> worst_first(std::vector<Request*> batch) const;

 private:
  struct Entry {  // of a request into the queue
    std::int64_t turn = 0;
    std::int64_t num_computed = 0;  // tokens of all steps before
  };
  // A waiting request and what of it is cached.
  struct Match {
    Request* request;
    Entry entry;
    BlockHash beginning;
    RadixTree::Known known;
    std::int32_t num_tokens = 0;
    bool is_late = false;  // another one computes the beginning that both share
  };
  static constexpr std::uint32_t kNoPlace = UINT32_MAX;

  void refresh_prefixes();
  void sort_by_priority();
  void sort_by_output();
  void match_all();
  void sort_by_cache(Policy policy);
  std::vector<std::size_t> tree_order() const;
  std::vector<std::size_t> key_order(Policy policy) const;
  void set_order(const std::vector<Request*>& order);

  const SglangConfig& settings_;
  Books* books_ = nullptr;  // while it sorts
  std::int64_t num_refreshes_ = 0;
  std::int64_t num_entries_ = 0;
  std::int64_t num_computed_ = 0;       // tokens of all steps
  std::map<RequestId, Entry> entries_;  // the last of each request
  std::vector<std::int64_t> uncached_;  // tokens of the requests in the last order
  std::vector<Match> matches_;          // in the last order, some of which left the queue
  std::vector<std::uint32_t> places_;   // by RequestId: in the last order
};

}  // namespace metronome
