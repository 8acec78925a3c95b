// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kv/state_groups.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/types.h"

namespace metronome {

std::int32_t prefill_end_of(std::int32_t num_prompt_tokens, std::int32_t num_known) {
  return std::max(num_prompt_tokens, num_known - 1);
}

std::int32_t last_state_position(std::int32_t num_tokens, std::int32_t unit,
                                 std::int32_t num_hash_lookahead) {
  const std::int32_t num_proven = num_tokens - std::max(1, num_hash_lookahead);
  return std::max(0, num_proven / unit * unit);
}

bool can_export_state(const StateLayout& layout, std::int32_t block_size, std::int32_t begin,
                      std::int32_t end, std::int32_t position) {
  if (layout.checkpoint_alignment == 0) return false;
  // The blocks of the state before the chunk and of the exported one. The latter is the block
  // before that of the chunk's last state.
  const std::int64_t first_block = begin == 0 ? -1 : (begin - 1) / block_size;
  const std::int64_t export_block = ceil_div(end, block_size) - 2;
  const std::int32_t unit = layout.export_unit > 0 ? layout.export_unit : layout.hash_unit;
  return begin % unit == 0 && export_block > first_block && begin + unit <= position &&
         position < end && (position - begin) % layout.checkpoint_alignment == 0;
}

StateGroups::StateGroups(const Options& options, BlockPool& pool)
    : options_(options), pool_(pool), copies_(static_cast<std::size_t>(options.layout.num_groups)) {
  const StateLayout& layout = options_.layout;
  METRONOME_CHECK(layout.num_groups > 0, "a model with states has groups of them");
  METRONOME_CHECK(!layout.caches_states || pool.caches_prefixes(), "states are cached as blocks");
  METRONOME_CHECK(unit() > 0 && options.block_size % unit() == 0, "a block is whole units");
}

StateGroups::Tracks& StateGroups::tracks_of(const Request& request) {
  tracks_.grow_to(index(request.id) + 1);
  Tracks& tracks = tracks_[index(request.id)];
  tracks.resize(num_groups());
  return tracks;
}

const StateGroups::Track& StateGroups::track_of(const Request& request, std::size_t group) const {
  static const Track kNone;
  if (tracks_.size() <= index(request.id)) return kNone;
  const Tracks& tracks = tracks_[index(request.id)];
  return tracks.empty() ? kNone : tracks[group];
}

bool StateGroups::index_in(const BlockTable& table, std::int32_t at) {
  return at >= 0 && static_cast<std::size_t>(at) < table.size();
}

BlockHash StateGroups::hash_at(const HashChain& chain, std::int64_t num_tokens,
                               std::size_t group) const {
  const auto at = static_cast<std::size_t>(num_tokens / unit() - 1);
  METRONOME_CHECK(at < chain.size(), "a state is cached when its tokens are known");
  return in_group(chain[at], kFirstFurtherGroup + table_index(group));
}

std::int32_t StateGroups::find(const HashChain& chain, std::int32_t max_tokens,
                               std::vector<BlockTable>& tables) const {
  for (std::size_t g = 0; g < num_groups(); ++g) tables[table_index(g)].clear();
  const auto state_at = [&](std::int32_t end, std::size_t group) {
    return pool_.contents().find(hash_at(chain, end, group));
  };
  for (std::int32_t end = max_tokens / unit() * unit(); end > 0; end -= unit()) {
    std::size_t num_found = 0;
    while (num_found < num_groups() && state_at(end, num_found) != kNoBlock) ++num_found;
    if (num_found < num_groups()) continue;
    for (std::size_t g = 0; g < num_groups(); ++g) {
      BlockTable& table = tables[table_index(g)];
      table.assign(static_cast<std::size_t>((end - 1) / options_.block_size), kNullBlock);
      table.push_back(state_at(end, g));
    }
    return end;
  }
  return 0;
}

// Where the step exports a state from inside its chunk; 0 = nowhere.
std::int32_t StateGroups::checkpoint_of(const Request& request, std::size_t group,
                                        Span span) const {
  if (!caches_states()) return 0;
  // With sparse retention only the chunk that ends the prompt leaves one.
  if (options_.retention_interval == 0 &&
      span.end < prefill_end_of(request.num_prompt_tokens, request.num_tokens())) {
    return 0;
  }
  const std::int32_t position = last_state_position(span.end, unit(), options_.num_hash_lookahead);
  if (!can_export_state(options_.layout, options_.block_size, span.begin, span.end, position)) {
    return 0;
  }
  const BlockTable no_table;
  const BlockTable& table = request.group_tables.empty() ? no_table : table_of(request, group);
  const auto num_blocks = static_cast<std::int64_t>(table.size());
  const std::int64_t block = ceil_div(span.end, options_.block_size) - 2;
  if (block < 0) return 0;
  const bool is_free_place =
      block >= num_blocks || pool_.is_null(table[static_cast<std::size_t>(block)]) ||
      (track_of(request, group).has_allocated && block >= num_blocks - options_.layout.num_drafts);
  return is_free_place ? position : 0;
}

std::int64_t StateGroups::num_to_take(const Request& request, std::size_t group,
                                      const BlockTable& hit, std::int32_t num_hit_tokens,
                                      Span span) const {
  const std::int64_t num_drafts = options_.layout.num_drafts;
  const auto num_owned =
      static_cast<std::int64_t>(request.group_tables.empty() ? 0 : table_of(request, group).size());
  if (!caches_states()) return std::max<std::int64_t>(0, 1 + num_drafts - num_owned);
  if (!hit.empty() && fresh_hashes_.contains(pool_.contents().hash_of(hit.back()))) {
    return pool_.num_blocks() + 1;
  }
  const Track& track = track_of(request, group);
  std::int64_t num_new = ceil_div(span.end, options_.block_size) + num_drafts -
                         static_cast<std::int64_t>(hit.size()) - num_owned;
  const bool is_partial =
      (!hit.empty() && num_hit_tokens % options_.block_size != 0) || track.partial_block >= 0;
  if (is_partial) num_new = std::max<std::int64_t>(num_new, 0) + 1;
  if (num_new > 0) {
    const bool has_checkpoint = checkpoint_of(request, group, span) > 0;
    const std::int64_t limit = 1 + (is_partial ? 1 : 0) + (has_checkpoint ? 1 : 0) +
                               (track.has_allocated ? 0 : num_drafts);
    num_new = std::min(num_new, limit);
  }
  return num_new +
         std::count_if(hit.begin(), hit.end(), [this](BlockId id) { return pool_.is_free(id); });
}

std::int64_t StateGroups::num_blocks_to_take(const Request& request, const Hit& hit,
                                             Span span) const {
  const BlockTable no_hit;
  std::int64_t num_blocks = 0;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const BlockTable& table = hit.tables.empty() ? no_hit : hit.tables[table_index(g)];
    num_blocks += num_to_take(request, g, table, hit.num_tokens, span);
  }
  return num_blocks;
}

std::int64_t StateGroups::num_blocks_to_take(const Request& request, Span span) const {
  std::int64_t num_blocks = 0;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    num_blocks += num_to_take(request, g, {}, 0, span);
  }
  return num_blocks;
}

void StateGroups::retire(Request& request, std::size_t group) {
  if (!caches_states()) return;
  retire_blocks(tracks_of(request)[group], table_of(request, group), request.num_cached_tokens());
}

// A step in flight may read the state before it, so only collected tokens count.
void StateGroups::retire_blocks(Track& track, BlockTable& table, std::int32_t num_processed) {
  const auto num_blocks = static_cast<std::int32_t>(table.size());
  const std::int32_t end = std::min((num_processed - 1) / options_.block_size, num_blocks);
  if (num_processed > 1 && end > track.num_retired) {
    BlockTable retired;
    for (std::int32_t i = track.num_retired; i < end; ++i) {
      BlockId& block = table[static_cast<std::size_t>(i)];
      if (!pool_.is_null(block)) retired.push_back(std::exchange(block, kNullBlock));
    }
    pool_.release(retired);
    track.num_retired = end;
  }
}

void StateGroups::adopt_hit(Request& request, const Hit& hit) {
  if (!caches_states()) return;
  Tracks& tracks = tracks_of(request);
  if (hit.tables.empty()) return;
  for (std::size_t g = 0; g < num_groups(); ++g) {
    BlockTable& table = table_of(request, g);
    METRONOME_CHECK(table.empty(), "a request takes a hit when it owns no blocks");
    table = hit.tables[table_index(g)];
    for (const BlockId id : table) {
      if (!pool_.is_null(id)) pool_.retain(id);
    }
    Track& track = tracks[g];
    track.num_hashed = static_cast<std::int32_t>(table.size());
    if (table.empty() || hit.num_tokens % options_.block_size == 0) continue;
    track.partial_block = hit.num_tokens / options_.block_size;
    track.partial_source = table.back();
    track.num_hashed = track.partial_block;
  }
}

void StateGroups::place_checkpoint(const Request& request, Span span) {
  if (!caches_states()) return;
  Tracks& tracks = tracks_of(request);
  for (std::size_t g = 0; g < num_groups(); ++g) {
    tracks[g].checkpoint = checkpoint_of(request, g, span);
    tracks[g].checkpoint_block =
        static_cast<std::int32_t>(ceil_div(span.end, options_.block_size) - 2);
  }
}

void StateGroups::allocate(Request& request, std::size_t group, std::int32_t end) {
  BlockTable& table = table_of(request, group);
  if (caches_states()) {
    move_state(tracks_of(request)[group], table, end, copies_[group]);
    return;
  }
  const std::int64_t num_wanted = 1 + options_.layout.num_drafts;
  const auto num_missing =
      std::max<std::int64_t>(0, num_wanted - static_cast<std::int64_t>(table.size()));
  const bool has_blocks = pool_.allocate(num_missing, table);
  METRONOME_CHECK(has_blocks, "free blocks were counted before");
}

void StateGroups::move_copies(std::size_t group, BlockTable& blocks) {
  blocks.insert(blocks.end(), copies_[group].begin(), copies_[group].end());
  copies_[group].clear();
}

void StateGroups::move_state(Track& track, BlockTable& table, std::int32_t end,
                             BlockTable& copies) {
  const std::int64_t num_drafts = options_.layout.num_drafts;
  const auto num_before = static_cast<std::int64_t>(table.size());
  const std::int64_t num_required = ceil_div(end, options_.block_size) + num_drafts;
  const std::int64_t num_checkpoints = track.checkpoint > 0 ? 1 : 0;
  const bool is_partial = track.partial_block >= 0;
  const bool had_allocated = std::exchange(track.has_allocated, true);
  if (num_required <= num_before && !is_partial && num_checkpoints == 0) return;

  // The step passes over the blocks before that of its last state, except for a checkpoint's.
  const std::int64_t num_passed = num_required - num_drafts - 1 - num_checkpoints;
  while (static_cast<std::int64_t>(table.size()) < num_passed) table.push_back(kNullBlock);
  if (had_allocated) {
    for (std::int64_t i = num_before - num_drafts; i < std::min(num_before, num_passed); ++i) {
      const BlockId moved = std::exchange(table[static_cast<std::size_t>(i)], kNullBlock);
      METRONOME_CHECK(pool_.ref_count(moved) == 1 && pool_.contents().hash_of(moved) == kNoHash,
                      "a draft's state has a block of its own");
      table.push_back(moved);
    }
  }
  if (is_partial) {
    BlockTable copy;
    const bool has_block = pool_.allocate(1, copy);
    METRONOME_CHECK(has_block, "free blocks were counted before");
    copy_partial(track, table, copy.front(), had_allocated, copies);
  }
  const std::int64_t num_new =
      std::max<std::int64_t>(0, num_required - static_cast<std::int64_t>(table.size()));
  const bool has_blocks = pool_.allocate(num_new, table);
  METRONOME_CHECK(has_blocks, "free blocks were counted before");
}

// Before the request writes a block that others can hit, the block's content is copied. A request
// that runs already keeps its block, and the hashes go to the copy. Another one gets the copy.
void StateGroups::copy_partial(Track& track, BlockTable& table, BlockId copy, bool is_running,
                               BlockTable& copies) {
  const BlockId source = std::exchange(track.partial_source, kNoBlock);
  const auto at = static_cast<std::size_t>(std::exchange(track.partial_block, -1));
  METRONOME_CHECK(table[at] == source, "the block to copy is in the table");
  copies.insert(copies.end(), {source, copy});
  if (!is_running) {
    table[at] = copy;
    pool_.retain(copy);
    return;
  }
  pool_.contents().move(source, copy);
  pool_.retain(source);
  const BlockHash hash = pool_.contents().hash_of(copy);
  if (hash != kNoHash) fresh_hashes_.insert(hash);
}

bool StateGroups::ends_interval(std::int64_t block) const {
  if (options_.retention_interval == kDenseRetention) return true;
  if (options_.retention_interval == 0) return false;
  return (block + 1) % (options_.retention_interval / options_.block_size) == 0;
}

bool StateGroups::is_retained(const Request& request, std::int64_t block,
                              std::int32_t shared_prefix_end) const {
  const std::int64_t end = block + 1;
  return ends_interval(block) || (request.num_prompt_tokens - 1) / options_.block_size == end ||
         (shared_prefix_end > 0 && shared_prefix_end / options_.block_size == end);
}

void StateGroups::cache(const Request& request, std::int32_t num_tokens, const HashChain& chain,
                        std::int32_t shared_prefix_end) {
  if (!caches_states()) return;
  const std::int32_t num_cacheable = has_partial_hits() ? num_tokens : num_tokens / unit() * unit();
  Tracks& tracks = tracks_of(request);
  for (std::size_t g = 0; g < num_groups(); ++g) {
    const BlockTable& table = table_of(request, g);
    Track& track = tracks[g];
    const std::int64_t first = track.num_hashed;
    cache_boundaries(request, track, table, g, num_cacheable, chain, shared_prefix_end);
    const std::int64_t last = track.num_hashed;
    if (track.checkpoint > 0) {
      cache_checkpoint(request, track, table, g, chain, shared_prefix_end);
    } else {
      cache_tail(request, track, table, g, num_cacheable, chain);
    }
    for (std::int64_t i = first; i < last; ++i) {
      const BlockId block = table[static_cast<std::size_t>(i)];
      if (pool_.is_null(block) || pool_.contents().hash_of(block) == kNoHash) continue;
      fresh_hashes_.insert(pool_.contents().hash_of(block));
    }
  }
}

// Hashes the states at the ends of the blocks up to `num_tokens`.
void StateGroups::cache_boundaries(const Request& request, Track& track, const BlockTable& table,
                                   std::size_t group, std::int32_t num_tokens,
                                   const HashChain& chain, std::int32_t shared_prefix_end) {
  const std::int64_t num_hashable = static_cast<std::int64_t>(chain.size()) / scale();
  const std::int64_t num_full =
      std::min<std::int64_t>(num_tokens / options_.block_size, num_hashable);
  PrefixIndex& contents = pool_.contents();
  for (std::int64_t i = track.num_hashed; i < num_full; ++i) {
    const BlockId block = table[static_cast<std::size_t>(i)];
    if (pool_.is_null(block) || !is_retained(request, i, shared_prefix_end)) continue;
    contents.erase(block);  // the hash of a position inside the block, if any
    contents.insert(block, hash_at(chain, (i + 1) * options_.block_size, group), (i + 1) * scale());
  }
  track.num_hashed = std::max(track.num_hashed, static_cast<std::int32_t>(num_full));
}

// The step exports a state into the checkpoint's block, so what the block held is lost.
void StateGroups::cache_checkpoint(const Request& request, const Track& track,
                                   const BlockTable& table, std::size_t group,
                                   const HashChain& chain, std::int32_t shared_prefix_end) {
  const std::int32_t position = track.checkpoint;
  METRONOME_CHECK(index_in(table, track.checkpoint_block), "a checkpoint has a block");
  const BlockId block = table[static_cast<std::size_t>(track.checkpoint_block)];
  PrefixIndex& contents = pool_.contents();
  const bool is_last_of_prompt = position == last_state_position(request.num_prompt_tokens, unit(),
                                                                 options_.num_hash_lookahead);
  const bool is_boundary = position % options_.block_size == 0;
  if (!is_last_of_prompt && position != shared_prefix_end &&
      !(is_boundary && ends_interval(position / options_.block_size - 1))) {
    contents.erase(block);
    return;
  }
  const std::int64_t num_units = position / unit();
  if (contents.position_of(block) == num_units || pool_.is_null(block)) return;
  const BlockHash hash = hash_at(chain, position, group);
  contents.erase(block);
  contents.insert(block, hash, num_units);
  fresh_hashes_.insert(hash);
}

// A prompt's last position that can be hit gets a hash where a chunk ends there.
void StateGroups::cache_tail(const Request& request, Track& track, const BlockTable& table,
                             std::size_t group, std::int32_t num_tokens, const HashChain& chain) {
  if (num_tokens <= 0 || num_tokens % unit() != 0) return;
  if (num_tokens !=
      last_state_position(request.num_prompt_tokens, unit(), options_.num_hash_lookahead)) {
    return;
  }
  const std::int64_t at = ceil_div(num_tokens, options_.block_size) - 1;
  if (at >= static_cast<std::int64_t>(table.size())) return;
  const BlockId block = table[static_cast<std::size_t>(at)];
  PrefixIndex& contents = pool_.contents();
  const std::int64_t num_units = num_tokens / unit();
  if (pool_.is_null(block) || contents.position_of(block) == num_units) return;
  const BlockHash hash = hash_at(chain, num_tokens, group);
  contents.insert_inside(block, hash, num_units);
  fresh_hashes_.insert(hash);
  if (num_tokens % options_.block_size == 0) return;
  // The next step writes the block, so it is copied first.
  track.partial_block = static_cast<std::int32_t>(at);
  track.partial_source = block;
  track.num_hashed = static_cast<std::int32_t>(at);
}

void StateGroups::forget(const Request& request) {
  if (index(request.id) < tracks_.size()) tracks_[index(request.id)].clear();
}

std::int64_t StateGroups::max_blocks_of(std::int64_t num_tokens) const {
  const std::int64_t num_drafts = options_.layout.num_drafts;
  if (!caches_states()) return (1 + num_drafts) * options_.layout.num_groups;
  const std::int64_t num_extra =
      (options_.layout.checkpoint_alignment > 0 ? 1 : 0) + (has_partial_hits() ? 1 : 0);
  const std::int64_t num_states =
      std::min<std::int64_t>(ceil_div(num_tokens, options_.block_size), 3);
  return (num_states + num_drafts + num_extra) * options_.layout.num_groups;
}

}  // namespace metronome
