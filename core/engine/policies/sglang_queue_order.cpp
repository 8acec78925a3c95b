#include "core/engine/policies/sglang_queue_order.h"

#include <algorithm>
#include <set>

namespace metronome {
namespace {

// Bounds of the work on the waiting queue.
constexpr std::size_t kMaxSortedQueue = 128;
constexpr std::int32_t kInBatchPrefixTokens = 32;
constexpr std::int64_t kPlansPerRefresh = 32;

}  // namespace

void SglangQueueOrder::sort() {
  const bool is_lpm = settings_.schedule_policy == SglangConfig::SchedulePolicy::Lpm &&
                      kv_cache_.caches_prefixes();
  if (is_lpm && queue_.size() <= kMaxSortedQueue) return sort_by_longest_prefix();
  if (!is_lpm && settings_.enable_priority_scheduling) sort_by_priority();
  refresh_prefixes();
}

std::vector<Request*> SglangQueueOrder::worst_first(std::vector<Request*> batch) const {
  std::stable_sort(batch.begin(), batch.end(), [this](const Request* a, const Request* b) {
    const std::int64_t rank_a = rank(*a);
    const std::int64_t rank_b = rank(*b);
    return rank_a != rank_b ? rank_a > rank_b : entries_.at(a->id) > entries_.at(b->id);
  });
  return batch;
}

// Every 32nd time the prefixes of waiting requests are touched, that of the head last.
void SglangQueueOrder::refresh_prefixes() {
  if (queue_.empty() || !kv_cache_.caches_prefixes()) return;
  if (num_refreshes_++ % kPlansPerRefresh != 0) return;
  std::vector<const Request*> first;
  queue_.visit_in_order([&](const Request& request) {
    first.push_back(&request);
    return first.size() < kMaxSortedQueue;
  });
  for (auto it = first.rbegin(); it != first.rend(); ++it) {
    kv_cache_.find_prefix(**it, (*it)->num_tokens());
  }
}

void SglangQueueOrder::sort_by_priority() {
  std::vector<Request*> order = queue_.in_order();
  std::stable_sort(order.begin(), order.end(), [this](const Request* a, const Request* b) {
    const std::int64_t rank_a = rank(*a);
    const std::int64_t rank_b = rank(*b);
    return rank_a != rank_b ? rank_a < rank_b : entries_.at(a->id) < entries_.at(b->id);
  });
  set_order(order);
}

// Sorts by longest cached prefix. Of requests with the same uncached beginning, one goes first and
// the others last: they will hit the blocks it computes.
void SglangQueueOrder::sort_by_longest_prefix() {
  std::vector<Request*> order = queue_.in_order();
  std::map<RequestId, std::int64_t> keys;
  std::set<BlockHash> beginnings;
  for (const Request* request : order) {
    const std::int32_t num_tokens = request->num_tokens();
    const std::int32_t matched = kv_cache_.find_prefix(*request, num_tokens).num_tokens;
    keys[request->id] = -std::min(matched, num_tokens - 1);
    if (matched > kInBatchPrefixTokens) continue;
    const BlockHash beginning = kv_cache_.name_of_prefix(*request, kInBatchPrefixTokens);
    if (beginning == kNoHash || beginnings.insert(beginning).second) continue;
    keys[request->id] = INT64_MAX;
  }
  std::stable_sort(order.begin(), order.end(), [&](const Request* a, const Request* b) {
    return keys.at(a->id) < keys.at(b->id);
  });
  set_order(order);
}

// The order persists until the next sort. New requests have key 0, so they join at the back.
void SglangQueueOrder::set_order(const std::vector<Request*>& order) {
  std::map<RequestId, std::int64_t> places;
  for (const Request* request : order) {
    const std::int64_t place = std::ssize(places) - std::ssize(order);
    places[request->id] = place;
  }
  queue_.sort_by([&](const Request& request) { return places.at(request.id); });
}

}  // namespace metronome
