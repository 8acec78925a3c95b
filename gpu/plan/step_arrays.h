// A forward pass as the device wants it: every index a kernel reads, in one block of memory that is
// copied at once. No device code: this is where a batch becomes slots, tables, tiles and splits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/step_plan.h"
#include "core/run/forward_batch.h"
#include "gpu/plan/step_types.h"

namespace metronome {

// What of the model and the configuration the arrays depend on.
struct StepGeometry {
  std::int32_t block_size = 0;
  std::int32_t group = 1;                     // query heads to a KV head
  std::int32_t tile_rows = kPrefillTileRows;  // or kWgmmaTileRows
  std::int32_t window = 0;                    // of window layers; 0: there are none
  bool has_window_tables = false;             // window layers have blocks of their own
  bool splits_decodes = true;                 // false: decodes are prefill tiles of one token
  std::int32_t max_model_len = 0;
  std::int32_t max_items = 8192;  // splits of a step at most, of one kind of layer
  // Of launch_wgmma_attention; without processors the spans of a tile are never apart.
  std::int32_t n_kv_heads = 1;
  std::int32_t num_processors = 0;
  std::int32_t span_size = kPrefillSpan;
  std::int32_t max_parts = 0;
};

// How many tokens a split of the decode kernel has: a power of two from 128 that depends on the
// number of decodes alone (of the bucket, where a graph runs). Few decodes are cut finer, so that
// every processor of the GPU has work; never so fine that max_items are exceeded at max_model_len.
// Requires num_decodes <= max_items.
std::int32_t decode_split_size(std::int32_t num_decodes, const StepGeometry& geometry);

// Where an array of the block lies.
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

// A pass is laid out for exactly what is in it or, for a graph, for a bucket of decodes: then every
// offset follows from the bucket and the geometry alone, and so does every count before
// item_decode. Arrays from there on lie where the largest pass of the bucket has them.
//
// Padding, in a bucket with fewer decodes than it holds:
// - tokens with id 0, position 0 and slot -1, behind all others, which belong to no sequence;
// - sequences without tokens (query_start repeats its last value) and with context 0;
// - decodes of sequence -1 without items (item_start repeats); or, where decodes are not split,
//   tiles of those sequences without tokens, which have no rows;
// - rows of the logits of token 0. They sample greedily, and row i goes to entry i like any row
// that
//   the caller has not filled in: whoever sends rows elsewhere sees to it that nobody reads the
//   entries of padding rows, or sends those elsewhere too.
struct StepArrays {
  std::int32_t num_tokens = 0;     // rows of activations, padding included
  std::int32_t num_sequences = 0;  // padding included
  std::int32_t num_rows = 0;       // of logits, padding included
  std::int32_t num_decodes = 0;    // of the decode kernel, padding included
  std::int32_t split_size = 0;     // decode_split_size(num_decodes)
  std::int32_t span_size = 0;      // the geometry's
  bool has_prefill = false;        // a chunk of a prompt is among it

  ArraySpan token_ids;           // int32 [num_tokens]; < 0: -1 - index of a token sampled before
  ArraySpan positions;           // int32 [num_tokens]
  ArraySpan slots;               // int32 [num_tokens], block * block_size + offset; -1 for padding
  ArraySpan window_slots;        // the same of window layers with blocks of their own, else empty
  ArraySpan query_start;         // int32 [num_sequences + 1]
  ArraySpan context_lens;        // int32 [num_sequences]; 0 for padding
  ArraySpan table_start;         // int32 [num_sequences]; 0 for padding
  ArraySpan window_table_start;  // the same in window_block_tables; empty without those
  ArraySpan logit_tokens;        // int32 [num_rows]; 0 for padding
  ArraySpan sample_rows;         // SampleRow [num_rows]
  ArraySpan decodes;             // int32 [num_decodes]: sequences; -1 for padding
  ArraySpan item_start;          // int32 [num_decodes + 1], of layers without window
  ArraySpan window_item_start;   // the same of window layers; empty without a window
  // PrefillTile [num_tiles], those that attend to the longest context first, in order of the batch
  // where that is equal. Window layers use the same.
  ArraySpan tiles;
  // PrefillTile [num_span_tiles], for layers without a window in place of `tiles`, the longest
  // first: the spans of long tiles are apart, so that few tiles keep the whole GPU busy. Empty
  // where tiles are many or short, in buckets, and where there are more than max_parts parts.
  ArraySpan span_tiles;
  ArraySpan merges;  // PrefillMerge [num_merges], of the tiles whose spans are apart
  // Behind here a bucket's arrays have no fixed length, so their offsets are its capacity's.
  ArraySpan item_decode;          // int32 [num_items]
  ArraySpan window_item_decode;   // int32 [num_items of window layers]
  ArraySpan block_tables;         // int32 [blocks of all sequences], one behind another
  ArraySpan window_block_tables;  // the same of window layers with blocks of their own, else empty

  // The block is the first block_bytes of `bytes`, which keeps its memory from pass to pass and
  // never shrinks: made large enough before (max_bucket_bytes, max_pass_bytes), it never moves, so
  // that it can be page-locked.
  std::size_t block_bytes = 0;
  std::vector<std::byte> bytes;
  // What of the block must reach the device, ascending and disjoint: all of it, or in a bucket what
  // is in use of each array, with gaps of at most kMaxCopiedGap copied along. At most 5 ranges.
  std::vector<CopyRange> copies;

  // In use while a pass is laid out; kept for its memory.
  struct OrderedTile {
    std::int32_t num_positions = 0;  // up to the last that the tile attends to
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

// Half a microsecond of PCIe 5.0 x16 at its nominal 64 GB/s, less than it takes to start another
// copy.
constexpr std::size_t kMaxCopiedGap = 32 * 1024;

// Lays a pass out. `chunks` are those of the pass, parallel to the sequences of the batch: a decode
// chunk goes to the decode kernel, where decodes are split, everything else into tiles. token_ids
// are copied from the batch; sample_rows are left greedy, with row i going to entry i, for the
// caller to fill in. With bucket > 0 all chunks are decodes that sample, in number at most
// `bucket`, and the pass is padded to it. Allocates nothing once `arrays` has held as large a pass.
// Requires slots below 2^31 (kv_blocks_that_fit).
void lay_out_pass(const ForwardBatch& batch, std::span<const ScheduledChunk> chunks,
                  const StepGeometry& geometry, std::int32_t bucket, StepArrays& arrays);

// The bytes of a bucket's block: room for max_model_len, every sequence with tables of its own.
std::size_t max_bucket_bytes(std::int32_t bucket, const StepGeometry& geometry);

// A bound of the bytes of any pass that is laid out without a bucket.
std::size_t max_pass_bytes(std::int32_t max_tokens, std::int32_t max_sequences,
                           const StepGeometry& geometry);

}  // namespace metronome
