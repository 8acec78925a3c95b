// KV-cache bookkeeping: which positions of a request have room, in which blocks, and which prefixes
// are there already.
//
// Both backends are one pool: a slotted cache is a pool whose blocks are max_model_len tokens
// long, so that a request never needs more than one. A hybrid model's sliding-window layers have a
// block table of their own over the same pool, whose blocks behind the window are given back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/engine/engine_config.h"
#include "core/engine/kv/block_pool.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/request.h"

namespace metronome {

// When a full block becomes visible to other requests.
enum class HashTime : std::uint8_t {
  Plan,    // when the step that fills it is planned: a request of the same step can hit it (vLLM)
  Commit,  // when that step's result is taken (nano-vllm)
  // A prompt's blocks when the step's result is taken, those with output when the request ends
  // (SGLang).
  CommitPrompt,
};

struct KvCacheLayout {
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0;  // tokens
  KvAllocation allocation = KvAllocation::Incremental;
  std::int64_t watermark_blocks = 0;  // kept free when admitting beside running requests

  // Where engines differ; see BlockPoolOptions.
  bool has_null_block = false;
  bool enable_prefix_caching = false;
  HashTime hash_time = HashTime::Plan;
  DuplicateRule duplicates = DuplicateRule::KeepAll;
  bool reuses_unhashed_first = false;
  // A step is planned while another is in flight. Under HashTime::Plan a block whose last token was
  // not known when it was planned is hashed when its step's result is taken (vLLM's
  // AsyncScheduler).
  bool plans_ahead = false;

  // Blocks are hashed when a step is planned. If that step is not computed after all, because its
  // request is preempted by the same plan or aborted, vLLM leaves the hashes: a later request may
  // reuse blocks that were never filled. Decisions alone are to be the engine's, mistakes included;
  // an executor that computes needs such blocks forgotten.
  bool forgets_unfilled_blocks = false;

  // Window of a second group of layers, tokens; 0 = none. Needs the null block.
  std::int32_t sliding_window = 0;
  // Blocks that this group of one request can hold at most, since a step computes a limited number
  // of tokens (vLLM's admission cap).
  std::int64_t max_window_blocks = INT64_MAX;
};

// The longest cached prefix of a request.
struct PrefixHit {
  std::int32_t num_tokens = 0;  // whole blocks
  BlockTable blocks;
  BlockTable window_blocks;  // of the sliding-window group; null blocks where none is needed
};

class KvCacheManager {
 public:
  // `hasher` outlives the manager; needed with prefix caching only.
  explicit KvCacheManager(const KvCacheLayout& layout, const PrefixHasher* hasher = nullptr);

  // Room for positions [0, num_positions) of a running request. False when the pool lacks the
  // blocks; none is taken then. Blocks behind the sliding window are given back in either case.
  [[nodiscard]] bool grow(Request& request, std::int32_t num_positions) {
    return num_positions <= request.kv_ready_tokens || grow_slowly(request, num_positions);
  }

  // Room for the first chunk of a request that owns nothing: for its `chunk_tokens`, or under
  // eager allocation for all tokens it has. False when the blocks of all its tokens would not leave
  // `num_kept` free (a prompt that is begun must be able to go on); nothing is taken then.
  [[nodiscard]] bool admit(Request& request, std::int32_t chunk_tokens, std::int64_t num_kept);

  // The longest prefix of at most `max_tokens` tokens that is cached; empty without prefix caching.
  // Valid until the next call or any change of the cache.
  const PrefixHit& find_prefix(const Request& request, std::int32_t max_tokens);
  // The prefix that leaves at least one token to compute, since its output is needed.
  const PrefixHit& find_prefix(const Request& request) {
    return find_prefix(request, request.num_tokens() - 1);
  }

  // The hashes of the full blocks of the tokens that `request` has, in order. Valid until the next
  // call. Requires prefix caching.
  const HashChain& block_hashes(const Request& request) {
    return chain_of(request, request.num_tokens() / block_size_);
  }

  // Names the first `num_tokens` tokens of a request: among prefixes of one length, equal names
  // mean equal tokens. kNoHash when it has fewer, or without prefix caching.
  BlockHash name_of_prefix(const Request& request, std::int32_t num_tokens) const;

  // Free blocks that positions [0, num_positions) of a request that owns nothing would take beside
  // `hit`, those of the hit that are free now included. `is_capped` applies max_window_blocks.
  std::int64_t num_blocks_to_take(const PrefixHit& hit, std::int64_t num_positions,
                                  bool is_capped = false) const;
  // Takes the blocks of `hit` and new ones for positions [0, num_positions). Requires that the
  // request owns nothing and that num_blocks_to_take(hit, num_positions) blocks are free.
  void take(Request& request, const PrefixHit& hit, std::int32_t num_positions);

  // Blocks that a request does not own of those for positions [0, num_positions), or for the tokens
  // it has. Full attention only.
  std::int64_t num_missing_blocks(const Request& request, std::int64_t num_positions) const {
    const auto num_owned = static_cast<std::int64_t>(request.block_table.size());
    return std::max<std::int64_t>(0, blocks_for(num_positions) - num_owned);
  }
  std::int64_t num_missing_blocks(const Request& request) const {
    return num_missing_blocks(request, request.num_tokens());
  }

  // Makes the full blocks among the cached tokens visible, where that is for the commit to do:
  // under HashTime::Commit and CommitPrompt, and with plans_ahead.
  bool hashes_at_commit() const { return hashes_at_commit_; }
  void commit(Request& request);

  // Returns every block of the request to the pool. The request is preempted.
  void release(Request& request);
  // The same for a request that has ended: forgets its hash chain too.
  void release_ended(Request& request);

  // The chunk that begins at `first_position` of the request will not be computed.
  void unplan(const Request& request, std::int32_t first_position) {
    if (forgets_unfilled_blocks_) forget_from(request, first_position);
  }
  // A step failed: makes everything unfindable that it may have been meant to fill, beside the
  // blocks of living requests. Those of the requests it computed are forgotten by forget_from,
  // which returns them: whoever shares one computes on nothing.
  void forget_free_blocks();
  std::vector<BlockId> forget_from(const Request& request, std::int32_t first_position);

  // Nobody will name the requests of this group of ids (RequestTable::kGroupSize) again.
  void forget_group(std::size_t group) {
    if (states_.has_chunk(group)) states_.forget_chunk(group);
  }

  // Makes blocks that are free now unfindable, as if they had been overwritten.
  void forget(const BlockTable& blocks);

  std::int64_t blocks_for(std::int64_t num_positions) const {
    return ceil_div(num_positions, block_size_);
  }
  std::int32_t block_size() const { return block_size_; }
  std::int64_t num_blocks() const { return pool_.num_usable(); }  // without the null block
  std::int64_t num_free_blocks() const { return pool_.num_free(); }
  std::int64_t num_used_blocks() const { return pool_.num_used(); }
  std::int64_t watermark_blocks() const { return watermark_blocks_; }
  bool has_window() const { return sliding_window_ > 0; }
  bool caches_prefixes() const { return pool_.caches_prefixes(); }
  const BlockPool& pool() const { return pool_; }
  // Blocks that a request of so many tokens holds at most at a time.
  std::int64_t max_blocks_of(std::int64_t num_tokens) const;

  // Throws InvariantError unless pool and tables agree and every request's capacity and cached
  // length lie within its table. Cost: O(blocks + requests).
  void check_integrity(const RequestTable& requests) const;

 private:
  // What prefix caching knows of a request.
  struct PrefixState {
    HashChain chain;                     // of its full blocks, as far as they were asked for
    std::int32_t num_hashed = 0;         // leading blocks of its table that are in the index
    std::int32_t num_hashed_window = 0;  // the same of its window table
  };

  bool grow_slowly(Request& request, std::int32_t num_positions);
  void slide_window(Request& request);
  void forget_unfilled(const Request& request, const BlockTable& table, std::int64_t first,
                       std::int64_t last);
  void settle(Request& request, std::int32_t num_positions);
  void hash_blocks(Request& request, std::int32_t num_tokens);
  void hash_table(BlockTable& table, const HashChain& chain, std::int32_t& num_hashed,
                  std::int64_t num_blocks, std::uint64_t group);
  const HashChain& chain_of(const Request& request, std::int64_t num_blocks);
  PrefixState& state_of(const Request& request);
  std::int64_t num_skipped_blocks(std::int64_t num_computed) const;
  std::int64_t find_full(const HashChain& chain, std::int64_t num_blocks);
  std::int64_t find_window(const HashChain& chain, std::int64_t num_blocks);

  BlockPool pool_;
  const PrefixHasher* hasher_;
  std::int32_t block_size_;
  KvAllocation allocation_;
  std::int64_t watermark_blocks_;
  HashTime hash_time_;
  bool hashes_at_plan_;
  bool hashes_at_commit_;
  bool shares_duplicates_;
  bool forgets_unfilled_blocks_;
  std::int32_t sliding_window_;
  std::int64_t max_window_blocks_;

  PrefixHit hit_;  // of find_prefix
  PrefixHit no_hit_;
  ChunkedVector<PrefixState, RequestTable::kGroupSize> states_;  // by request id, as far as needed
  std::vector<HashChain> spare_chains_;  // keep the memory of what ended in use
  std::vector<BlockTable> spare_tables_;
};

}  // namespace metronome
