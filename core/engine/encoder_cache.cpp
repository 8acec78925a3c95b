// SPDX-License-Identifier: Apache-2.0
#include "core/engine/encoder_cache.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

EncoderCache::EncoderCache(const EncoderSetup& setup)
    : setup_(setup), num_free_(setup.cache_size), num_reclaimable_(setup.cache_size) {
  METRONOME_CHECK(setup.items != nullptr, "the encoder has a source of items");
  METRONOME_CHECK(setup.compute_budget > 0 && setup.cache_size > 0,
                  "the encoder's sizes were checked before");
}

void EncoderCache::begin_plan() {
  budget_left_ = setup_.compute_budget;
  fitted_ = kNoRequest;
}

const EncoderItem& EncoderCache::item_of(RequestId request, std::int32_t item) const {
  return setup_.items->encoder_items(request)[static_cast<std::size_t>(item)];
}

bool EncoderCache::has_content(RequestId request, const Items& items, std::uint64_t content) const {
  return std::any_of(items.begin(), items.end(),
                     [&](std::int32_t item) { return item_of(request, item).content == content; });
}

std::int32_t EncoderCache::fit(RequestId request, std::int32_t first, std::int32_t num_tokens,
                               std::int32_t num_lookahead) {
  fitted_ = request;
  num_returned_ = 0;
  to_encode_.clear();
  repeated_.clear();
  const std::span<const EncoderItem> items = setup_.items->encoder_items(request);
  if (items.empty() || num_tokens == 0) return num_tokens;
  const std::int32_t window_end = first + num_tokens + num_lookahead;
  const auto begin = std::partition_point(
      items.begin(), items.end(), [&](const EncoderItem& item) { return item.end() <= first; });
  std::int64_t num_planned = 0;
  for (auto it = begin; it != items.end() && it->begin < window_end; ++it) {
    const EncoderItem& item = *it;
    const auto i = static_cast<std::int32_t>(it - items.begin());
    if (setup_.disable_chunked_mm_input && first <= item.begin && first + num_tokens < item.end()) {
      return std::max(0, item.begin - first - num_lookahead);
    }
    if (has_content(request, to_encode_, item.content)) {
      repeated_.push_back(i);
      continue;
    }
    if (const auto entry = entries_.find(item.content); entry != entries_.end()) {
      METRONOME_CHECK(entry->second.num_embeddings == item.num_embeddings,
                      "equal contents have equally many embeddings");
      refer(request, i, entry->second);
      continue;
    }
    if (!make_room(item.num_embeddings, num_planned)) {
      return first < item.begin ? std::min(num_tokens, item.begin - first) : 0;
    }
    if (!item.has_embedding_in(first, window_end)) continue;
    num_planned += item.num_embeddings;
    to_encode_.push_back(i);
  }
  return num_tokens;
}

// Drops the oldest entries without references until there is room beside `num_planned` embeddings.
bool EncoderCache::make_room(std::int32_t num_embeddings, std::int64_t num_planned) {
  const std::int64_t num_needed = num_planned + num_embeddings;
  if (setup_.limits_chunks && (num_needed > budget_left_ || num_needed > num_reclaimable_)) {
    return false;
  }
  while (num_needed > num_free_ && !released_.empty()) {
    drop(entries_.find(released_.begin()->second));
  }
  return true;
}

void EncoderCache::take(RequestId request, std::vector<PlannedEncoding>& encodings) {
  METRONOME_CHECK(is_fitted(request), "fit() comes before take()");
  fitted_ = kNoRequest;
  // vLLM sets the budget to what fit() left of it, so what victims gave back since then is lost
  // (Scheduler.schedule: encoder_compute_budget = new_encoder_compute_budget).
  if (!to_encode_.empty() && setup_.limits_chunks) budget_left_ -= num_returned_;
  num_returned_ = 0;
  for (const std::int32_t i : to_encode_) {
    const EncoderItem& item = item_of(request, i);
    Entry& entry = entries_[item.content];
    entry.num_embeddings = item.num_embeddings;
    entry.num_holders = 1;
    held_[request].add(i);
    num_free_ -= item.num_embeddings;
    num_reclaimable_ -= item.num_embeddings;
    budget_left_ -= item.num_embeddings;
    encodings.push_back({request, i, item.num_embeddings});
  }
  for (const std::int32_t i : repeated_) {
    refer(request, i, entries_.at(item_of(request, i).content));
  }
}

void EncoderCache::refer(RequestId request, std::int32_t item, Entry& entry) {
  // A request that repeats an item holds it once.
  HeldItems& held = held_[request];
  if (!has_content(request, held.list(), item_of(request, item).content)) {
    if (entry.num_holders++ == 0) {
      released_.erase(entry.released_order);
      num_reclaimable_ -= entry.num_embeddings;
    }
  }
  held.add(item);
}

// Releases the request's items that `is_over` names, in the order of its set.
template <class IsOver>
void EncoderCache::release_items(RequestId request, const IsOver& is_over) {
  const auto held = held_.find(request);
  if (held == held_.end()) return;
  for (const std::int32_t item : held->second.list()) {
    if (!is_over(item_of(request, item))) continue;
    held->second.remove(item);
    const std::uint64_t content = item_of(request, item).content;
    if (has_content(request, held->second.list(), content)) continue;
    Entry& entry = entries_.at(content);
    if (--entry.num_holders > 0) continue;
    entry.released_order = next_order_++;
    released_.emplace(entry.released_order, content);
    num_reclaimable_ += entry.num_embeddings;
  }
  if (held->second.empty()) held_.erase(held);
}

void EncoderCache::release_computed(RequestId request, std::int32_t num_computed) {
  release_items(request,
                [num_computed](const EncoderItem& item) { return item.end() <= num_computed; });
}

void EncoderCache::release(RequestId request) {
  release_items(request, [](const EncoderItem&) { return true; });
}

void EncoderCache::drop(Entries::iterator entry) {
  METRONOME_CHECK(entry != entries_.end() && entry->second.num_holders == 0,
                  "only entries without references are dropped");
  released_.erase(entry->second.released_order);
  num_free_ += entry->second.num_embeddings;
  freed_.push_back(entry->first);
  entries_.erase(entry);
}

void EncoderCache::unplan(RequestId request, std::vector<PlannedEncoding>& encodings) {
  release(request);
  std::erase_if(encodings, [&](const PlannedEncoding& encoding) {
    if (setup_.forgets_unfilled) {
      const auto entry = entries_.find(item_of(encoding.request, encoding.item).content);
      METRONOME_CHECK(entry != entries_.end(), "this plan made the entry");
      if (entry->second.num_holders > 0) return false;
      drop(entry);
    } else if (encoding.request != request) {
      return false;
    }
    budget_left_ += encoding.num_embeddings;
    num_returned_ += encoding.num_embeddings;
    return true;
  });
}

bool EncoderCache::holds_any(RequestId request, std::span<const PlannedEncoding> encodings) const {
  const auto held = held_.find(request);
  if (held == held_.end()) return false;
  const Items items = held->second.list();
  return std::any_of(encodings.begin(), encodings.end(), [&](const PlannedEncoding& encoding) {
    return has_content(request, items, item_of(encoding.request, encoding.item).content);
  });
}

void EncoderCache::forget(std::span<const PlannedEncoding> encodings) {
  for (const PlannedEncoding& encoding : encodings) {
    const std::uint64_t content = item_of(encoding.request, encoding.item).content;
    const auto entry = entries_.find(content);
    if (entry == entries_.end()) continue;
    for (auto held = held_.begin(); held != held_.end();) {
      const RequestId holder = (held++)->first;  // it may lose its last item
      release_items(holder, [content](const EncoderItem& item) { return item.content == content; });
    }
    drop(entry);
  }
}

void EncoderCache::drain_freed(std::vector<std::uint64_t>& out) {
  for (const std::uint64_t content : freed_) {
    if (setup_.forgets_unfilled || !entries_.contains(content)) out.push_back(content);
  }
  freed_.clear();
}

void EncoderCache::check_integrity() const {
  std::map<std::uint64_t, std::int32_t> num_holders;
  for (const auto& [request, items] : held_) {
    METRONOME_CHECK(!items.empty(), "who holds nothing is not listed");
    std::vector<std::uint64_t> contents;
    for (const std::int32_t item : items.list()) contents.push_back(item_of(request, item).content);
    std::sort(contents.begin(), contents.end());
    contents.erase(std::unique(contents.begin(), contents.end()), contents.end());
    for (const std::uint64_t content : contents) ++num_holders[content];
  }
  std::int64_t num_cached = 0;
  std::int64_t num_held = 0;
  std::size_t num_released = 0;
  for (const auto& [content, entry] : entries_) {
    const auto found = num_holders.find(content);
    METRONOME_CHECK(entry.num_holders == (found == num_holders.end() ? 0 : found->second),
                    "an encoder entry counts the requests that refer to it");
    num_cached += entry.num_embeddings;
    if (entry.num_holders > 0) {
      num_held += entry.num_embeddings;
      num_holders.erase(content);
      continue;
    }
    const auto released = released_.find(entry.released_order);
    METRONOME_CHECK(released != released_.end() && released->second == content,
                    "an entry without references can be dropped");
    ++num_released;
  }
  METRONOME_CHECK(num_holders.empty(), "references have entries");
  METRONOME_CHECK(num_released == released_.size(), "entries to drop exist");
  METRONOME_CHECK(num_free_ == setup_.cache_size - num_cached &&
                      num_reclaimable_ == setup_.cache_size - num_held,
                  "the encoder cache counts its embeddings");
  METRONOME_CHECK(!setup_.limits_chunks || num_free_ >= 0, "the encoder cache has room");
}

}  // namespace metronome
