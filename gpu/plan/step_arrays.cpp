// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/step_arrays.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "core/model/attention_mask.h"

namespace metronome {
namespace {

constexpr std::size_t kAlignment = 16;
constexpr std::int32_t kMaxModelLen = 1 << 30;  // keeps split sizes within int32

static_assert(sizeof(TokenId) == sizeof(std::int32_t) && sizeof(BlockId) == sizeof(std::int32_t),
              "ids are copied as they are");

constexpr std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

// Lengths of the arrays: of one pass, or the capacity of a bucket.
struct Lengths {
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  std::int64_t rows = 0;
  std::int64_t decodes = 0;
  std::int64_t tiles = 0;
  std::int64_t span_tiles = 0;
  std::int64_t merges = 0;
  std::int64_t items = 0;
  std::int64_t window_items = 0;
  std::int64_t block_tables = 0;
  std::int64_t window_block_tables = 0;
};

void check_geometry(const StepGeometry& geometry) {
  METRONOME_CHECK(geometry.block_size >= 1 && geometry.group >= 1 && geometry.window >= 0 &&
                      geometry.tile_rows >= 1 && geometry.max_model_len >= 1 &&
                      geometry.max_model_len <= kMaxModelLen && geometry.max_items >= 1,
                  "a geometry that is filled in");
  METRONOME_CHECK(!geometry.has_window_tables || geometry.window > 0,
                  "window tables need window layers");
}

std::int64_t max_blocks(const StepGeometry& geometry) {
  return ceil_div(geometry.max_model_len, geometry.block_size);
}

// Number of splits of max_model_len positions.
std::int64_t max_splits(std::int32_t split_size, const StepGeometry& geometry) {
  return ceil_div(geometry.max_model_len, split_size);
}

// Maximum number of splits that `window` consecutive positions touch.
std::int64_t max_window_splits(std::int32_t split_size, const StepGeometry& geometry) {
  const std::int64_t touched = ceil_div(geometry.window - 1, split_size) + 1;
  return std::min(touched, max_splits(split_size, geometry));
}

std::int32_t num_tiles_of(std::int64_t num_tokens, const StepGeometry& geometry) {
  return static_cast<std::int32_t>(ceil_div(num_tokens * geometry.group, geometry.tile_rows));
}

// The splits [begin, end) that the query at the end of a context attends to.
struct Splits {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t count() const { return end - begin; }
};
Splits splits_of(std::int32_t context_len, std::int32_t window, int log2_split_size) {
  const std::int32_t position = context_len - 1;
  return {first_attended(position, window) >> log2_split_size, (position >> log2_split_size) + 1};
}

// Sets the offsets of all arrays, with capacity `room`, and the counts to `used`.
void place_arrays(const Lengths& room, const Lengths& used, const StepGeometry& geometry,
                  StepArrays& arrays) {
  std::size_t end = 0;
  const auto place = [&end](ArraySpan& span, std::int64_t capacity, std::int64_t count,
                            std::size_t element_bytes) {
    span = {end, size(count)};
    end += (size(capacity) * element_bytes + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto place_ints = [&place](ArraySpan& span, std::int64_t capacity, std::int64_t count) {
    place(span, capacity, count, sizeof(std::int32_t));
  };
  const auto place_fixed = [&place_ints](ArraySpan& span, std::int64_t count) {
    place_ints(span, count, count);
  };
  const bool has_tables = geometry.has_window_tables;
  place_fixed(arrays.token_ids, room.tokens);
  place_fixed(arrays.positions, room.tokens);
  place_fixed(arrays.slots, room.tokens);
  place_fixed(arrays.window_slots, has_tables ? room.tokens : 0);
  place_fixed(arrays.query_start, room.sequences + 1);
  place_fixed(arrays.context_lens, room.sequences);
  place_fixed(arrays.table_start, room.sequences);
  place_fixed(arrays.window_table_start, has_tables ? room.sequences : 0);
  place_fixed(arrays.logit_tokens, room.rows);
  place(arrays.sample_rows, room.rows, room.rows, sizeof(SampleRow));
  place_fixed(arrays.decodes, room.decodes);
  place_fixed(arrays.item_start, room.decodes + 1);
  place_fixed(arrays.window_item_start, geometry.window > 0 ? room.decodes + 1 : 0);
  place(arrays.tiles, room.tiles, room.tiles, sizeof(PrefillTile));
  place(arrays.span_tiles, room.span_tiles, room.span_tiles, sizeof(PrefillTile));
  place(arrays.merges, room.merges, room.merges, sizeof(PrefillMerge));
  place_ints(arrays.item_decode, room.items, used.items);
  place_ints(arrays.window_item_decode, room.window_items, used.window_items);
  place_ints(arrays.block_tables, room.block_tables, used.block_tables);
  place_ints(arrays.window_block_tables, room.window_block_tables, used.window_block_tables);
  arrays.block_bytes = end;
}

Lengths bucket_lengths(std::int32_t bucket, const StepGeometry& geometry) {
  Lengths room;
  room.tokens = room.sequences = room.rows = bucket;
  if (geometry.splits_decodes) {
    const std::int32_t split_size = decode_split_size(bucket, geometry);
    room.decodes = bucket;
    room.items = bucket * max_splits(split_size, geometry);
    if (geometry.window > 0) room.window_items = bucket * max_window_splits(split_size, geometry);
  } else {
    room.tiles = std::int64_t{bucket} * num_tiles_of(1, geometry);
  }
  room.block_tables = bucket * max_blocks(geometry);
  if (geometry.has_window_tables) room.window_block_tables = room.block_tables;
  return room;
}

// Lays one pass out.
class Layout {
 public:
  Layout(const ForwardBatch& batch, std::span<const ScheduledChunk> chunks,
         const StepGeometry& geometry, std::int32_t bucket, StepArrays& arrays)
      : batch_(batch), chunks_(chunks), geometry_(geometry), bucket_(bucket), arrays_(arrays) {}

  void run() {
    check_batch();
    measure();
    const Lengths room = bucket_ > 0 ? bucket_lengths(bucket_, geometry_) : used_;
    METRONOME_CHECK(used_.block_tables <= room.block_tables &&
                        used_.window_block_tables <= room.window_block_tables,
                    "a bucket has room for whole contexts");
    arrays_.num_tokens = static_cast<std::int32_t>(room.tokens);
    arrays_.num_sequences = static_cast<std::int32_t>(room.sequences);
    arrays_.num_rows = static_cast<std::int32_t>(room.rows);
    arrays_.num_decodes = static_cast<std::int32_t>(room.decodes);
    arrays_.span_size = geometry_.span_size;
    place_arrays(room, used_, geometry_, arrays_);
    if (arrays_.bytes.size() < arrays_.block_bytes) arrays_.bytes.resize(arrays_.block_bytes);
    fill_tokens();
    fill_sequences();
    fill_slots(batch_.block_tables, batch_.table_start, arrays_.slots);
    if (geometry_.has_window_tables) {
      fill_slots(batch_.window_block_tables, batch_.window_table_start, arrays_.window_slots);
    }
    fill_rows();
    fill_decodes();
    fill_tiles();
    fill_span_tiles();
    list_copies();
  }

 private:
  bool is_split(const ScheduledChunk& chunk) const {
    return geometry_.splits_decodes && chunk.kind == ChunkKind::Decode;
  }
  std::int32_t* ints(const ArraySpan& span) { return arrays_.view<std::int32_t>(span).data(); }

  void check_batch() const {
    check_geometry(geometry_);
    METRONOME_CHECK(bucket_ >= 0, "a bucket or none");
    METRONOME_CHECK(chunks_.size() == batch_.requests.size(), "a chunk for each sequence");
    METRONOME_CHECK(batch_.token_ids.size() == batch_.positions.size(), "an id for each token");
    METRONOME_CHECK(
        chunks_.empty() || !batch_.window_block_tables.empty() == geometry_.has_window_tables,
        "window tables where window layers have blocks of their own");
    METRONOME_CHECK(bucket_ == 0 || (batch_.num_sequences() <= bucket_ &&
                                     batch_.logit_tokens.size() == chunks_.size()),
                    "a bucket is for decodes that sample");
    for (std::size_t s = 0; s < chunks_.size(); ++s) {
      const ScheduledChunk& chunk = chunks_[s];
      METRONOME_CHECK(batch_.context_lens[s] == chunk.end_position() &&
                          batch_.query_start[s + 1] - batch_.query_start[s] == chunk.num_tokens,
                      "the chunks are those of the batch");
      METRONOME_CHECK(chunk.num_tokens >= 1 && chunk.end_position() <= geometry_.max_model_len,
                      "a chunk within max_model_len");
      METRONOME_CHECK(chunk.num_tokens == 1 || chunk.kind == ChunkKind::Prefill,
                      "a decode is one token");
      METRONOME_CHECK(bucket_ == 0 || chunk.kind == ChunkKind::Decode, "a bucket has decodes only");
    }
  }

  // Counts everything in the pass and chooses the split size of its decodes.
  void measure() {
    used_ = {};
    used_.tokens = batch_.num_tokens();
    used_.sequences = batch_.num_sequences();
    used_.rows = static_cast<std::int64_t>(batch_.logit_tokens.size());
    used_.block_tables = static_cast<std::int64_t>(batch_.block_tables.size());
    used_.window_block_tables = static_cast<std::int64_t>(batch_.window_block_tables.size());
    arrays_.has_prefill = false;
    for (const ScheduledChunk& chunk : chunks_) {
      if (chunk.kind == ChunkKind::Prefill) arrays_.has_prefill = true;
      if (is_split(chunk)) {
        ++used_.decodes;
      } else {
        used_.tiles += num_tiles_of(chunk.num_tokens, geometry_);
      }
    }
    measure_spans();
    const bool pads_decodes = bucket_ > 0 && geometry_.splits_decodes;
    const std::int64_t num_decodes = pads_decodes ? bucket_ : used_.decodes;
    arrays_.split_size = decode_split_size(static_cast<std::int32_t>(num_decodes), geometry_);
    log2_split_size_ = std::countr_zero(static_cast<std::uint32_t>(arrays_.split_size));
    if (used_.decodes == 0) return;
    for (const ScheduledChunk& chunk : chunks_) {
      if (!is_split(chunk)) continue;
      used_.items += splits_of(chunk.end_position(), kNoWindow, log2_split_size_).count();
      if (geometry_.window == 0) continue;
      used_.window_items +=
          splits_of(chunk.end_position(), geometry_.window, log2_split_size_).count();
    }
  }

  // Calls take(tile, last position that it attends to) for all tiles of the pass except padding.
  template <class Take>
  void for_tiles(const Take& take) const {
    for (std::size_t s = 0; s < chunks_.size(); ++s) {
      const ScheduledChunk& chunk = chunks_[s];
      if (is_split(chunk)) continue;
      const std::int32_t num_rows = chunk.num_tokens * geometry_.group;
      const std::int32_t num_tiles = num_tiles_of(chunk.num_tokens, geometry_);
      for (std::int32_t i = 0; i < num_tiles; ++i) {
        const std::int32_t first_row = i * geometry_.tile_rows;
        const std::int32_t last_row = std::min(first_row + geometry_.tile_rows, num_rows) - 1;
        take(PrefillTile{.sequence = static_cast<std::int32_t>(s), .first_row = first_row},
             chunk.first_position + last_row / geometry_.group);
      }
    }
  }

  // Spans are not separated if there are two CTAs for every SM: these keep the SMs busy.
  void measure_spans() {
    const std::int64_t num_ctas = used_.tiles * geometry_.n_kv_heads;
    if (bucket_ > 0 || num_ctas >= 2 * std::int64_t{geometry_.num_processors}) return;
    std::int64_t num_parts = 0;
    for_tiles([&](const PrefillTile&, std::int32_t last_position) {
      const std::int32_t num_spans = last_position / geometry_.span_size + 1;
      used_.span_tiles += num_spans;
      if (num_spans == 1) return;
      ++used_.merges;
      num_parts += num_spans;
    });
    if (used_.merges == 0 || num_parts > geometry_.max_parts) used_.span_tiles = used_.merges = 0;
  }

  // Copies the values and pads the rest of the array.
  void copy_padded(const void* values, std::size_t count, std::int32_t padding,
                   const ArraySpan& span) {
    std::int32_t* out = ints(span);
    if (count > 0) std::memcpy(out, values, count * sizeof(std::int32_t));
    std::fill(out + count, out + span.count, padding);
  }

  void fill_tokens() {
    copy_padded(batch_.token_ids.data(), batch_.token_ids.size(), 0, arrays_.token_ids);
    copy_padded(batch_.positions.data(), batch_.positions.size(), 0, arrays_.positions);
  }

  void fill_sequences() {
    const std::size_t count = batch_.requests.size();
    copy_padded(batch_.query_start.data(), count + 1, batch_.num_tokens(), arrays_.query_start);
    copy_padded(batch_.context_lens.data(), count, 0, arrays_.context_lens);
    copy_padded(batch_.table_start.data(), count, 0, arrays_.table_start);
    copy_padded(batch_.block_tables.data(), batch_.block_tables.size(), 0, arrays_.block_tables);
    if (!geometry_.has_window_tables) return;
    copy_padded(batch_.window_table_start.data(), count, 0, arrays_.window_table_start);
    copy_padded(batch_.window_block_tables.data(), batch_.window_block_tables.size(), 0,
                arrays_.window_block_tables);
  }

  // Slots of each chunk, filled from its end: the last block of a table holds the last token, so
  // decodes need no division.
  void fill_slots(const std::vector<BlockId>& tables, const std::vector<std::int32_t>& starts,
                  const ArraySpan& span) {
    std::int32_t* slots = ints(span);
    const std::int32_t block_size = geometry_.block_size;
    for (std::size_t s = 0; s < chunks_.size(); ++s) {
      std::int64_t block = std::int64_t{starts[s + 1]} - starts[s] - 1;
      std::int64_t offset = batch_.context_lens[s] - block * block_size - 1;
      METRONOME_CHECK(block >= 0 && offset >= 0 && offset < block_size,
                      "a table has as many blocks as its context needs");
      const BlockId* table = tables.data() + starts[s];
      std::int32_t end = batch_.query_start[s + 1];
      while (true) {
        const auto base = static_cast<std::int32_t>(index(table[block])) * block_size;
        const std::int32_t begin =
            std::max(batch_.query_start[s], end - static_cast<std::int32_t>(offset) - 1);
        std::int32_t slot = base + static_cast<std::int32_t>(offset) + 1 - (end - begin);
        for (std::int32_t t = begin; t < end; ++t) slots[t] = slot++;
        if (begin == batch_.query_start[s]) break;
        end = begin;
        offset = block_size - 1;
        --block;
      }
    }
    std::fill(slots + batch_.num_tokens(), slots + span.count, -1);
  }

  void fill_rows() {
    copy_padded(batch_.logit_tokens.data(), batch_.logit_tokens.size(), 0, arrays_.logit_tokens);
    const std::span<SampleRow> rows = arrays_.view<SampleRow>(arrays_.sample_rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = SampleRow();
      rows[i].out = static_cast<std::int32_t>(i);
    }
  }

  void fill_decodes() {
    std::int32_t* decodes = ints(arrays_.decodes);
    std::int32_t num_decodes = 0;
    for (std::size_t s = 0; s < chunks_.size(); ++s) {
      if (is_split(chunks_[s])) decodes[num_decodes++] = static_cast<std::int32_t>(s);
    }
    std::fill(decodes + num_decodes, decodes + arrays_.num_decodes, -1);
    fill_items(kNoWindow, num_decodes, arrays_.item_start, arrays_.item_decode);
    if (geometry_.window == 0) return;
    fill_items(geometry_.window, num_decodes, arrays_.window_item_start,
               arrays_.window_item_decode);
  }

  void fill_items(std::int32_t window, std::int32_t num_decodes, const ArraySpan& start_span,
                  const ArraySpan& decode_span) {
    const std::int32_t* decodes = ints(arrays_.decodes);
    const std::int32_t* context_lens = ints(arrays_.context_lens);
    std::int32_t* starts = ints(start_span);
    std::int32_t* item_decode = ints(decode_span);
    std::int32_t num_items = 0;
    for (std::int32_t d = 0; d < num_decodes; ++d) {
      starts[d] = num_items;
      const Splits splits = splits_of(context_lens[decodes[d]], window, log2_split_size_);
      for (std::int32_t i = 0; i < splits.count(); ++i) item_decode[num_items++] = d;
    }
    std::fill(starts + num_decodes, starts + start_span.count, num_items);
  }

  // The longest tile comes first, so that no tile starts when the others are about to end.
  void store_in_order(std::span<PrefillTile> tiles) {
    std::vector<StepArrays::OrderedTile>& ordered = arrays_.ordered_tiles;
    // std::stable_sort would allocate. The last sort keys keep the order of the batch.
    std::sort(ordered.begin(), ordered.end(),
              [](const StepArrays::OrderedTile& a, const StepArrays::OrderedTile& b) {
                if (a.num_positions != b.num_positions) return a.num_positions > b.num_positions;
                if (a.tile.sequence != b.tile.sequence) return a.tile.sequence < b.tile.sequence;
                if (a.tile.first_row != b.tile.first_row) {
                  return a.tile.first_row < b.tile.first_row;
                }
                return a.tile.span < b.tile.span;
              });
    for (std::size_t i = 0; i < ordered.size(); ++i) tiles[i] = ordered[i].tile;
  }

  void fill_tiles() {
    std::vector<StepArrays::OrderedTile>& ordered = arrays_.ordered_tiles;
    ordered.clear();
    const std::span<PrefillTile> tiles = arrays_.view<PrefillTile>(arrays_.tiles);
    for_tiles([&](const PrefillTile& tile, std::int32_t last_position) {
      ordered.push_back({last_position + 1, tile});
    });
    store_in_order(tiles);
    const std::int32_t per_sequence = num_tiles_of(1, geometry_);
    for (std::size_t i = ordered.size(); i < tiles.size(); ++i) {
      const auto place = static_cast<std::int32_t>(i);
      tiles[i] = {.sequence = place / per_sequence,
                  .first_row = place % per_sequence * geometry_.tile_rows};
    }
  }

  void fill_span_tiles() {
    if (arrays_.span_tiles.count == 0) return;
    std::vector<StepArrays::OrderedTile>& ordered = arrays_.ordered_tiles;
    ordered.clear();
    PrefillMerge* merge = arrays_.view<PrefillMerge>(arrays_.merges).data();
    std::int32_t num_parts = 0;
    for_tiles([&](PrefillTile tile, std::int32_t last_position) {
      const std::int32_t num_spans = last_position / geometry_.span_size + 1;
      if (num_spans == 1) {
        ordered.push_back({last_position + 1, tile});
        return;
      }
      *merge++ = {tile.sequence, tile.first_row, num_parts, num_spans};
      for (tile.span = 0; tile.span < num_spans; ++tile.span) {
        tile.part = num_parts++;
        const std::int32_t behind = last_position + 1 - tile.span * geometry_.span_size;
        ordered.push_back({std::min(behind, geometry_.span_size), tile});
      }
    });
    store_in_order(arrays_.view<PrefillTile>(arrays_.span_tiles));
  }

  void list_copies() {
    std::vector<CopyRange>& copies = arrays_.copies;
    copies.clear();
    copies.push_back({0, arrays_.item_decode.offset});
    for (const ArraySpan* span : {&arrays_.item_decode, &arrays_.window_item_decode,
                                  &arrays_.block_tables, &arrays_.window_block_tables}) {
      if (span->count == 0) continue;
      const std::size_t end = span->offset + span->count * sizeof(std::int32_t);
      CopyRange& last = copies.back();
      if (span->offset - (last.offset + last.length) <= kMaxCopiedGap) {
        last.length = end - last.offset;
      } else {
        copies.push_back({span->offset, end - span->offset});
      }
    }
  }

  const ForwardBatch& batch_;
  const std::span<const ScheduledChunk> chunks_;
  const StepGeometry& geometry_;
  const std::int32_t bucket_;
  StepArrays& arrays_;
  Lengths used_;
  int log2_split_size_ = 0;
};

}  // namespace

std::int32_t decode_split_size(std::int32_t num_decodes, const StepGeometry& geometry) {
  check_geometry(geometry);
  METRONOME_CHECK(0 <= num_decodes && num_decodes <= geometry.max_items,
                  "every decode has room for an item");
  // Merging has a cost for each item. The split size doubles when the decodes quadruple, so the
  // total number of items grows with the root of the decodes. Beyond 1024 tokens merging costs
  // little.
  std::int32_t split_size = 128;
  for (std::int32_t few = 4; few < num_decodes && split_size < 1024; few *= 4) split_size *= 2;
  while (num_decodes * max_splits(split_size, geometry) > geometry.max_items) split_size *= 2;
  return split_size;
}

void lay_out_pass(const ForwardBatch& batch, std::span<const ScheduledChunk> chunks,
                  const StepGeometry& geometry, std::int32_t bucket, StepArrays& arrays) {
  Layout(batch, chunks, geometry, bucket, arrays).run();
}

std::size_t max_bucket_bytes(std::int32_t bucket, const StepGeometry& geometry) {
  check_geometry(geometry);
  METRONOME_CHECK(bucket >= 1, "a bucket");
  const Lengths room = bucket_lengths(bucket, geometry);
  StepArrays arrays;
  place_arrays(room, room, geometry, arrays);
  return arrays.block_bytes;
}

std::size_t max_pass_bytes(std::int32_t max_tokens, std::int32_t max_sequences,
                           std::int32_t max_rows, const StepGeometry& geometry) {
  check_geometry(geometry);
  METRONOME_CHECK(max_tokens >= 0 && max_sequences >= 0, "a pass");
  Lengths room;
  room.tokens = max_tokens;
  room.sequences = room.decodes = std::min(max_tokens, max_sequences);
  room.rows = std::min(max_tokens, max_rows);
  // The sum of ceil(rows / tile_rows): each sequence may leave up to tile_rows - 1 rows unused.
  room.tiles = (room.tokens * geometry.group + room.sequences * (geometry.tile_rows - 1)) /
               geometry.tile_rows;
  if (geometry.num_processors > 0) {
    room.span_tiles = room.tiles + geometry.max_parts;
    room.merges = geometry.max_parts / 2;
  }
  // No split is smaller than that of a single decode.
  const std::int64_t finest = room.sequences * max_splits(decode_split_size(1, geometry), geometry);
  room.items = std::min<std::int64_t>(finest, geometry.max_items);
  if (geometry.window > 0) room.window_items = room.items;
  room.block_tables = room.sequences * max_blocks(geometry);
  if (geometry.has_window_tables) room.window_block_tables = room.block_tables;
  StepArrays arrays;
  place_arrays(room, room, geometry, arrays);
  return arrays.block_bytes;
}

}  // namespace metronome
