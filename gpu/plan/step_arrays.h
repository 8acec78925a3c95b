// SPDX-License-Identifier: Apache-2.0
// A forward pass in the device's format: all indices that kernels read, in one block of memory that
// is copied at once. Turns a batch into slots, tables, tiles and splits. No device code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/step_plan.h"
#include "core/run/forward_batch.h"
#include "gpu/plan/step_types.h"

namespace metronome {

// The properties of model and configuration that the arrays depend on.
struct StepGeometry {
  std::int32_t block_size = 0;
  std::int32_t group = 1;                     // query heads to a KV head
  std::int32_t tile_rows = kPrefillTileRows;  // or kWgmmaTileRows
  std::int32_t window = 0;                    // of window layers; 0 if there are none
  bool has_window_tables = false;             // window layers have blocks of their own
  bool splits_decodes = true;                 // false: decodes are prefill tiles of one token
  std::int32_t max_model_len = 0;
  std::int32_t max_items = 8192;  // splits of a step at most, of one kind of layer
  // For launch_wgmma_attention. With num_processors == 0, spans of a tile are never separate.
  std::int32_t n_kv_heads = 1;
  std::int32_t num_processors = 0;
  std::int32_t span_size = kPrefillSpan;
  std::int32_t max_parts = 0;
};

// Tokens in a split of the decode kernel: a power of two, at least 128. It depends only on the
// number of decodes (with a graph, of the bucket). Fewer decodes get smaller splits, so that every
// SM has work. The size never needs more than max_items items at max_model_len. Requires
// num_decodes <= max_items.
std::int32_t decode_split_size(std::int32_t num_decodes, const StepGeometry& geometry);

// The position of an array in the block.
struct ArraySpan {
  std::size_t offset = 0;  // bytes, a multiple of 16
  std::size_t count = 0;   // elements in use

  bool operator==(const ArraySpan&) const = default;
};

// Bytes [offset, offset + length) of the block.
struct CopyRange {
  std::size_t offset = 0;
  std::size_t length = 0;

  bool operator==(const CopyRange&) const = default;
};

// A pass is laid out for its exact contents or, for a graph, for a bucket of decodes. In a bucket
// every offset depends on the bucket and the geometry alone. So does every count before
// item_decode. The arrays from item_decode on lie at the offsets of the bucket's largest pass.
//
// A bucket with fewer decodes than it holds is padded with:
// - tokens after all others with id 0, position 0 and slot -1, which belong to no sequence;
// - sequences without tokens (query_start repeats its last value) and with context 0;
// - decodes of sequence -1 without items (item_start repeats); or, if decodes are not split, tiles
//   of those sequences, which have no rows;
// - rows of the logits of token 0, which sample greedily.
//
// Row i goes to entry i, padding rows included, unless the caller sets its `out`. A caller that
// does must make sure that nothing reads the entries of padding rows, or redirect them, too.
struct StepArrays {
  std::int32_t num_tokens = 0;     // rows of activations, padding included
  std::int32_t num_sequences = 0;  // padding included
  std::int32_t num_rows = 0;       // of logits, padding included
  std::int32_t num_decodes = 0;    // of the decode kernel, padding included
  std::int32_t split_size = 0;     // decode_split_size(num_decodes)
  std::int32_t span_size = 0;      // the geometry's
  bool has_prefill = false;        // the pass has a chunk of a prompt

  ArraySpan token_ids;           // int32 [num_tokens]; < 0: -1 - index of an earlier sample
  ArraySpan positions;           // int32 [num_tokens]
  ArraySpan slots;               // int32 [num_tokens], block * block_size + offset; -1 for padding
  ArraySpan window_slots;        // the same for window layers with their own blocks, else empty
  ArraySpan query_start;         // int32 [num_sequences + 1]
  ArraySpan context_lens;        // int32 [num_sequences]; 0 for padding
  ArraySpan table_start;         // int32 [num_sequences]; 0 for padding
  ArraySpan window_table_start;  // the same in window_block_tables; empty without it
  ArraySpan logit_tokens;        // int32 [num_rows]; 0 for padding
  ArraySpan sample_rows;         // SampleRow [num_rows]
  ArraySpan decodes;             // int32 [num_decodes]: sequences; -1 for padding
  ArraySpan item_start;          // int32 [num_decodes + 1], of layers without a window
  ArraySpan window_item_start;   // the same for window layers; empty without a window
  // PrefillTile [num_tiles], sorted by attended context, longest first. Ties keep the order of the
  // batch. Window layers use the same tiles.
  ArraySpan tiles;
  // PrefillTile [num_span_tiles], longest first. Layers without a window use these instead of
  // `tiles`. The spans of long tiles are separate, so few tiles keep all SMs busy. Empty if tiles
  // are many or short, in buckets, and if there were more than max_parts parts.
  ArraySpan span_tiles;
  ArraySpan merges;  // PrefillMerge [num_merges], for tiles with separate spans
  // From here on a bucket's arrays vary in length. Their offsets follow from its capacity.
  ArraySpan item_decode;          // int32 [num_items]
  ArraySpan window_item_decode;   // int32 [num_items of window layers]
  ArraySpan block_tables;         // int32 [blocks of all sequences], concatenated
  ArraySpan window_block_tables;  // the same for window layers with their own blocks, else empty

  // The block is the first block_bytes of `bytes`. `bytes` is kept from pass to pass and never
  // shrinks. If it starts large enough (max_bucket_bytes, max_pass_bytes), it never moves, so it
  // can be page-locked.
  std::size_t block_bytes = 0;
  std::vector<std::byte> bytes;
  // The ranges to copy to the device, ascending and disjoint: the whole block, or in a bucket the
  // used part of each array. Gaps of at most kMaxCopiedGap are copied along. At most 5 ranges.
  std::vector<CopyRange> copies;

  // Used while a pass is laid out; kept for its memory.
  struct OrderedTile {
    std::int32_t num_positions = 0;  // up to the last position that the tile attends to
    PrefillTile tile;
  };
  std::vector<OrderedTile> ordered_tiles;

  template <class T>
  std::span<T> view(const ArraySpan& span) {
    return {reinterpret_cast<T*>(bytes.data() + span.offset), span.count};
  }
  template <class T>
  std::span<const T> view(const ArraySpan& span) const {
    return {reinterpret_cast<const T*>(bytes.data() + span.offset), span.count};
  }
};

// 0.5 us of PCIe 5.0 x16 at its nominal 64 GB/s: less than the start of another copy.
constexpr std::size_t kMaxCopiedGap = 32 * 1024;

// Lays a pass out. `chunks` are its chunks, parallel to the sequences of the batch. If decodes are
// split, decode chunks go to the decode kernel; all others become tiles. token_ids are copied from
// the batch. sample_rows are greedy, with row i going to entry i; the caller fills them in. With
// bucket > 0, all chunks must be decodes that sample, at most `bucket` of them, and the pass is
// padded to it. Allocates nothing once `arrays` has held a pass as large. Requires slots below 2^31
// (kv_blocks_that_fit).
void lay_out_pass(const ForwardBatch& batch, std::span<const ScheduledChunk> chunks,
                  const StepGeometry& geometry, std::int32_t bucket, StepArrays& arrays);

// The bytes of a bucket's block: every sequence may have max_model_len and its own tables.
std::size_t max_bucket_bytes(std::int32_t bucket, const StepGeometry& geometry);

// An upper bound on the bytes of a pass without a bucket. `max_rows`: of logits.
std::size_t max_pass_bytes(std::int32_t max_tokens, std::int32_t max_sequences,
                           std::int32_t max_rows, const StepGeometry& geometry);

}  // namespace metronome
