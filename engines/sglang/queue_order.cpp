// SPDX-License-Identifier: Apache-2.0
#include "engines/sglang/queue_order.h"

#include <algorithm>
#include <cstddef>
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

void SglangQueueOrder::sort(Books& books) {
  books_ = &books;
  Policy policy = settings_.schedule_policy;
  if (policy == Policy::Lof) {
    sort_by_output();
    return refresh_prefixes();
  }
  if (!books_->kv_cache().caches_prefixes()) policy = Policy::Fcfs;
  if (policy == Policy::Fcfs) {
    if (settings_.enable_priority_scheduling) sort_by_priority();
    return refresh_prefixes();
  }
  const bool has_limit = policy == Policy::Lpm || policy == Policy::Hrrn;
  if (has_limit && books_->waiting().size() > kMaxSortedQueue) return refresh_prefixes();
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
  if (books_->waiting().empty() || !books_->kv_cache().caches_prefixes()) return;
  if (num_refreshes_++ % kPlansPerRefresh != 0) return;
  std::vector<const Request*> first;
  books_->waiting().visit_in_order([&](const Request& request) {
    first.push_back(&request);
    return first.size() < kMaxSortedQueue;
  });
  for (auto it = first.rbegin(); it != first.rend(); ++it) {
    books_->kv_cache().find_prefix(**it, (*it)->num_tokens());
  }
}

void SglangQueueOrder::sort_by_priority() {
  std::vector<Request*> order = books_->waiting().in_order();
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
    return std::pair(first, -request->limit_tokens());
  };
  std::vector<Request*> order = books_->waiting().in_order();
  std::stable_sort(order.begin(), order.end(),
                   [&](const Request* a, const Request* b) { return key(a) < key(b); });
  set_order(order);
}

// Of requests with the same uncached beginning, one is not late: the others will hit the blocks
// that it computes.
void SglangQueueOrder::match_all() {
  std::vector<Match> matches;
  std::vector<const Request*> requests;
  matches.reserve(books_->waiting().size());
  for (Request* request : books_->waiting().in_order()) {
    const std::size_t id = index(request->id);
    const std::uint32_t place = id < places_.size() ? places_[id] : kNoPlace;
    if (place < matches_.size() && matches_[place].request == request) {
      matches.push_back(matches_[place]);
    } else {
      matches.push_back({request,
                         entries_.at(request->id),
                         books_->kv_cache().name_of_prefix(*request, kInBatchPrefixTokens),
                         {}});
    }
    requests.push_back(request);
  }
  matches_ = std::move(matches);
  std::vector<RadixTree::Known*> known;
  for (Match& match : matches_) known.push_back(&match.known);
  books_->kv_cache().find_prefix_ends(requests, known);
  std::set<BlockHash> beginnings;
  for (Match& match : matches_) {
    const auto num_hit =
        static_cast<std::int32_t>(match.known.match.num_blocks) * books_->kv_cache().block_size();
    match.num_tokens = std::min(num_hit, match.request->num_tokens() - 1);
    match.is_late = num_hit <= kInBatchPrefixTokens && match.beginning != kNoHash &&
                    !beginnings.insert(match.beginning).second;
  }
}

void SglangQueueOrder::sort_by_cache(Policy policy) {
  match_all();
  const std::vector<std::size_t> places =
      policy == Policy::DfsWeight ? tree_order() : key_order(policy);
  std::vector<Request*> order;
  std::vector<Match> sorted;
  sorted.reserve(matches_.size());
  uncached_.clear();
  for (const std::size_t place : places) {
    sorted.push_back(matches_[place]);
    const Match& match = sorted.back();
    order.push_back(match.request);
    if (policy == Policy::DfsWeight) continue;
    uncached_.push_back(std::max(1, match.request->num_tokens() - match.num_tokens));
  }
  matches_ = std::move(sorted);
  set_order(order);
}

std::vector<std::size_t> SglangQueueOrder::key_order(Policy policy) const {
  using Key = std::tuple<bool, double, std::int64_t>;
  const auto key_of = [&](const Match& match) -> Key {
    const Request& request = *match.request;
    const auto id = static_cast<std::int64_t>(index(request.id));
    if (policy == Policy::ShortestPrefillFirst) {
      return {match.is_late, std::max(1, request.num_tokens() - match.num_tokens),
              match.entry.turn};
    }
    if (policy == Policy::Lpm) return {match.is_late, match.is_late ? 0 : -match.num_tokens, 0};
    const std::int32_t num_left = request.num_prompt_tokens - match.num_tokens;
    if (match.is_late) return {true, 0, id};
    if (num_left <= 0) return {false, -std::numeric_limits<double>::infinity(), id};
    return {false, -static_cast<double>(num_computed_ - match.entry.num_computed) / num_left, id};
  };
  std::vector<std::pair<Key, std::size_t>> keys;  // places make them a stable order
  for (std::size_t i = 0; i < matches_.size(); ++i) keys.emplace_back(key_of(matches_[i]), i);
  if (!std::is_sorted(keys.begin(), keys.end())) std::sort(keys.begin(), keys.end());
  std::vector<std::size_t> places;
  for (const auto& [key, place] : keys) places.push_back(place);
  return places;
}

std::vector<std::size_t> SglangQueueOrder::tree_order() const {
  std::vector<RadixTree::Node> ends;
  for (const Match& match : matches_) ends.push_back(match.known.match.node);
  return books_->kv_cache().depth_first_order(ends);
}

std::int64_t SglangQueueOrder::chunk_limit(std::int64_t num_left, std::int64_t budget) const {
  const std::int64_t page_size = books_->kv_cache().block_size();
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
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t id = index(order[i]->id);
    if (id >= places_.size()) places_.resize(id + 1, kNoPlace);
    places_[id] = static_cast<std::uint32_t>(i);
  }
  books_->waiting().sort_by([&](const Request& request) {
    return std::int64_t{places_[index(request.id)]} - std::ssize(order);
  });
}

}  // namespace metronome
