#include "core/engine/policies/sglang_queue_order.h"

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace metronome {
namespace {

// Bounds of the work on the waiting queue.
constexpr std::size_t kMaxSortedQueue = 128;
constexpr std::int32_t kInBatchPrefixTokens = 32;
constexpr std::int64_t kPlansPerRefresh = 32;

}  // namespace

void SglangQueueOrder::sort() {
  Policy policy = settings_.schedule_policy;
  if (policy == Policy::Lof) {
    sort_by_output();
    return refresh_prefixes();
  }
  if (!kv_cache_.caches_prefixes()) policy = Policy::Fcfs;
  if (policy == Policy::Fcfs) {
    if (settings_.enable_priority_scheduling) sort_by_priority();
    return refresh_prefixes();
  }
  const bool has_limit = policy == Policy::Lpm || policy == Policy::Hrrn;
  if (has_limit && queue_.size() > kMaxSortedQueue) return refresh_prefixes();
  sort_by_cache(policy);
}

std::vector<Request*> SglangQueueOrder::worst_first(std::vector<Request*> batch) const {
  std::stable_sort(batch.begin(), batch.end(), [this](const Request* a, const Request* b) {
    const std::int64_t rank_a = rank(*a);
    const std::int64_t rank_b = rank(*b);
    return rank_a != rank_b ? rank_a > rank_b : entries_.at(a->id).turn > entries_.at(b->id).turn;
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
    return rank_a != rank_b ? rank_a < rank_b : entries_.at(a->id).turn < entries_.at(b->id).turn;
  });
  set_order(order);
}

// The longest output first.
void SglangQueueOrder::sort_by_output() {
  const auto key = [this](const Request* request) {
    const std::int64_t first = settings_.enable_priority_scheduling ? rank(*request) : 0;
    return std::pair(first, -request->max_output_tokens);
  };
  std::vector<Request*> order = queue_.in_order();
  std::stable_sort(order.begin(), order.end(),
                   [&](const Request* a, const Request* b) { return key(a) < key(b); });
  set_order(order);
}

// Of requests with the same uncached beginning, one is not late: the others will hit the blocks
// that it computes.
std::vector<SglangQueueOrder::Match> SglangQueueOrder::match_all() {
  std::vector<Match> matches;
  std::set<BlockHash> beginnings;
  for (Request* request : queue_.in_order()) {
    const std::int32_t num_tokens = request->num_tokens();
    const PrefixHit& hit = kv_cache_.find_prefix(*request, num_tokens);
    bool is_late = false;
    if (hit.num_tokens <= kInBatchPrefixTokens) {
      const BlockHash beginning = kv_cache_.name_of_prefix(*request, kInBatchPrefixTokens);
      is_late = beginning != kNoHash && !beginnings.insert(beginning).second;
    }
    matches.push_back({request, hit.node, std::min(hit.num_tokens, num_tokens - 1), is_late});
  }
  return matches;
}

void SglangQueueOrder::sort_by_cache(Policy policy) {
  std::vector<Match> matches = match_all();
  if (policy == Policy::DfsWeight) return sort_by_tree(matches);
  using Key = std::tuple<bool, double, std::int64_t>;
  const auto key_of = [&](const Match& match) -> Key {
    const Request& request = *match.request;
    const Entry& entry = entries_.at(request.id);
    const auto id = static_cast<std::int64_t>(index(request.id));
    if (policy == Policy::ShortestPrefillFirst) {
      return {match.is_late, std::max(1, request.num_tokens() - match.num_tokens), entry.turn};
    }
    if (policy == Policy::Lpm) return {match.is_late, match.is_late ? 0 : -match.num_tokens, 0};
    const std::int32_t num_left = request.num_prompt_tokens - match.num_tokens;
    if (match.is_late) return {true, 0, id};
    if (num_left <= 0) return {false, -std::numeric_limits<double>::infinity(), id};
    return {false, -static_cast<double>(num_computed_ - entry.num_computed) / num_left, id};
  };
  std::map<RequestId, Key> keys;
  for (const Match& match : matches) keys[match.request->id] = key_of(match);
  std::stable_sort(matches.begin(), matches.end(), [&](const Match& a, const Match& b) {
    return keys.at(a.request->id) < keys.at(b.request->id);
  });
  std::vector<Request*> order;
  uncached_.clear();
  for (const Match& match : matches) {
    order.push_back(match.request);
    uncached_.push_back(std::max(1, match.request->num_tokens() - match.num_tokens));
  }
  set_order(order);
}

void SglangQueueOrder::sort_by_tree(const std::vector<Match>& matches) {
  std::vector<RadixTree::Node> ends;
  for (const Match& match : matches) ends.push_back(match.node);
  std::vector<Request*> order;
  for (const std::size_t i : kv_cache_.depth_first_order(ends)) order.push_back(matches[i].request);
  set_order(order);
}

std::int64_t SglangQueueOrder::chunk_limit(std::int64_t num_left, std::int64_t budget) const {
  const std::int64_t page_size = kv_cache_.block_size();
  if (settings_.schedule_policy != Policy::ShortestPrefillFirst || budget < 2 * page_size) {
    return INT64_MAX;
  }
  std::int64_t num_reserved = 0;
  for (const std::int64_t num_tokens : uncached_) {
    const std::int64_t charge = ceil_div(num_tokens, page_size) * page_size;
    if (num_tokens >= num_left || num_reserved + charge > budget - page_size) break;
    num_reserved += charge;
  }
  return num_reserved == 0 ? INT64_MAX : (budget - num_reserved) / page_size * page_size;
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
