// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_cut.h"

#include <cstdint>
#include <map>
#include <set>
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

}  // namespace

void keep_first(std::size_t count, Workload& workload) {
  if (count >= workload.requests.size()) return;
  workload.requests.resize(count);
  cut_ranges(count, workload.segments, workload.segment_begin);
  cut_ranges(count, workload.token_ids, workload.token_begin);
  cut_ranges(count, workload.images, workload.image_begin);
  std::set<std::uint64_t> kept;
  for (const EncoderItem& image : workload.images) kept.insert(image.content);
  std::erase_if(workload.pictures, [&](const auto& entry) { return !kept.contains(entry.first); });
}

}  // namespace metronome
