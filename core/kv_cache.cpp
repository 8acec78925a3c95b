#include "core/kv_cache.h"

#include <utility>

#include "core/error.h"

namespace metronome {

KvCacheManager::KvCacheManager(const KvCacheLayout& layout)
    : pool_(layout.num_blocks),
      block_size_(layout.block_size),
      allocation_(layout.allocation),
      watermark_blocks_(layout.watermark_blocks) {
  METRONOME_CHECK(block_size_ > 0, "a block holds at least one token");
}

bool KvCacheManager::grow_slowly(Request& request, std::int32_t num_positions) {
  BlockTable& table = request.block_table;
  const auto num_owned = static_cast<std::int64_t>(table.size());
  if (!pool_.allocate(blocks_for(num_positions) - num_owned, table)) return false;
  request.kv_capacity_tokens = static_cast<std::int32_t>(table.size()) * block_size_;
  return true;
}

bool KvCacheManager::admit(Request& request, std::int32_t chunk_tokens, std::int64_t num_kept) {
  METRONOME_CHECK(request.block_table.empty(), "an admitted request owns no blocks yet");
  if (blocks_for(request.num_tokens()) + num_kept > pool_.num_free()) return false;
  if (!spare_tables_.empty()) {
    request.block_table = std::move(spare_tables_.back());
    spare_tables_.pop_back();
  }
  const bool is_eager = allocation_ == KvAllocation::Eager;
  return grow_slowly(request, is_eager ? request.num_tokens() : chunk_tokens);
}

void KvCacheManager::release(Request& request) {
  pool_.release(request.block_table);
  request.kv_capacity_tokens = 0;
  if (request.block_table.capacity() > 0) {
    spare_tables_.push_back(std::exchange(request.block_table, {}));
  }
}

void KvCacheManager::check_integrity(const RequestTable& requests) const {
  std::vector<const BlockTable*> tables;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& request = requests[static_cast<RequestId>(i)];
    if (!request.block_table.empty()) tables.push_back(&request.block_table);
    const auto capacity = static_cast<std::int64_t>(request.block_table.size()) * block_size_;
    METRONOME_CHECK(request.kv_capacity_tokens == capacity, "capacity differs from the table");
    METRONOME_CHECK(request.has_ended() || request.num_computed_tokens <= capacity,
                    "computed tokens have no room");
    METRONOME_CHECK(request.num_cached_tokens <= request.num_computed_tokens,
                    "more tokens cached than computed");
  }
  pool_.check_integrity(tables);
}

}  // namespace metronome
