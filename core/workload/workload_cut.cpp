// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_cut.h"

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace metronome {
namespace {

// Keeps the first `count` ranges items[begin[i] .. begin[i + 1]).
template <class Item, class Offset>
void cut_ranges(std::size_t count, std::vector<Item>& items, std::vector<Offset>& begin) {
  if (begin.empty()) return;
  begin.resize(count + 1);
  items.resize(static_cast<std::size_t>(begin.back()));
}

// Puts the ranges items[begin[i] .. begin[i + 1]) into `order`.
template <class Item, class Offset>
void reorder_ranges(const std::vector<std::size_t>& order, std::vector<Item>& items,
                    std::vector<Offset>& begin) {
  if (begin.empty()) return;
  std::vector<Item> sorted;
  std::vector<Offset> sorted_begin;
  sorted.reserve(items.size());
  sorted_begin.reserve(begin.size());
  for (const std::size_t i : order) {
    sorted_begin.push_back(static_cast<Offset>(sorted.size()));
    for (Offset k = begin[i]; k < begin[i + 1]; ++k) {
      sorted.push_back(items[static_cast<std::size_t>(k)]);
    }
  }
  sorted_begin.push_back(static_cast<Offset>(sorted.size()));
  items = std::move(sorted);
  begin = std::move(sorted_begin);
}

}  // namespace

void reorder_requests(const std::vector<std::size_t>& order, Workload& workload) {
  std::vector<RequestSpec> sorted;
  sorted.reserve(workload.requests.size());
  for (const std::size_t i : order) sorted.push_back(workload.requests[i]);
  workload.requests = std::move(sorted);
  reorder_ranges(order, workload.segments, workload.segment_begin);
  reorder_ranges(order, workload.token_ids, workload.token_begin);
  reorder_ranges(order, workload.images, workload.image_begin);
}

void keep_first(std::size_t count, Workload& workload) {
  if (count >= workload.requests.size()) return;
  workload.requests.resize(count);
  cut_ranges(count, workload.segments, workload.segment_begin);
  cut_ranges(count, workload.token_ids, workload.token_begin);
  cut_ranges(count, workload.images, workload.image_begin);
  if (!workload.has_whole_prompt.empty()) workload.has_whole_prompt.resize(count);
  std::set<std::uint64_t> kept;
  for (const EncoderItem& image : workload.images) kept.insert(image.content);
  std::erase_if(workload.pictures, [&](const auto& entry) { return !kept.contains(entry.first); });
}

}  // namespace metronome
