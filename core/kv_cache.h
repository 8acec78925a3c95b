// KV-cache bookkeeping: which positions of a request have room, and in which blocks.
//
// Both backends are one pool: a slotted cache is a pool whose blocks are max_model_len tokens
// long, so that a request never needs more than one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/block_pool.h"
#include "core/request.h"
#include "core/scenario.h"

namespace metronome {

struct KvCacheLayout {
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0;  // tokens
  KvAllocation allocation = KvAllocation::Incremental;
  std::int64_t watermark_blocks = 0;  // kept free when admitting beside running requests
};

class KvCacheManager {
 public:
  explicit KvCacheManager(const KvCacheLayout& layout);

  // Room for positions [0, num_positions) of a running request. False when the pool lacks the
  // blocks; nothing is taken then.
  [[nodiscard]] bool grow(Request& request, std::int32_t num_positions) {
    return num_positions <= request.kv_capacity_tokens || grow_slowly(request, num_positions);
  }

  // Room for the first chunk of a request that owns nothing: for its `chunk_tokens`, or under
  // eager allocation for all tokens it has. False when the blocks of all its tokens would not leave
  // `num_kept` free (a prompt that is begun must be able to go on); nothing is taken then.
  [[nodiscard]] bool admit(Request& request, std::int32_t chunk_tokens, std::int64_t num_kept);

  // Blocks that a running request still needs for the tokens it has.
  std::int64_t num_missing_blocks(const Request& request) const {
    return blocks_for(request.num_tokens()) - static_cast<std::int64_t>(request.block_table.size());
  }

  // Returns every block of the request to the pool.
  void release(Request& request);

  std::int64_t blocks_for(std::int64_t num_positions) const {
    return ceil_div(num_positions, block_size_);
  }
  std::int32_t block_size() const { return block_size_; }
  std::int64_t num_blocks() const { return pool_.num_blocks(); }
  std::int64_t num_free_blocks() const { return pool_.num_free(); }
  std::int64_t num_used_blocks() const { return pool_.num_used(); }
  std::int64_t watermark_blocks() const { return watermark_blocks_; }

  // Throws InvariantError unless pool and tables agree and every request's capacity and cached
  // length lie within its table. Cost: O(blocks + requests).
  void check_integrity(const RequestTable& requests) const;

 private:
  bool grow_slowly(Request& request, std::int32_t num_positions);

  BlockPool pool_;
  std::int32_t block_size_;
  KvAllocation allocation_;
  std::int64_t watermark_blocks_;
  std::vector<BlockTable> spare_tables_;  // keeps the memory of ended requests' tables in use
};

}  // namespace metronome
