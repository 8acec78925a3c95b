// SPDX-License-Identifier: Apache-2.0
// The meaning of a pass's arrays, found by walking over them as the kernels do
// (gpu/kernels/kernels.h), and compared with what plan and block tables say.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/engine/kv/block_pool.h"
#include "core/model/attention_mask.h"
#include "core/run/forward_batch.h"
#include "gpu/plan/step_arrays.h"

namespace metronome::testing {

using Ints = std::vector<std::int32_t>;

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// The work of attention in one kind of layer.
struct Attention {
  std::vector<int> row_count;  // [token * group + query head]: how often it is computed
  std::vector<Ints> slots;     // [token][KV position]: the slot read there, -1 for none
  bool operator==(const Attention&) const = default;
};

// Walks over the arrays of a pass as kernels do, with nothing else to go by.
class Walk {
 public:
  Walk(const StepArrays& arrays, const StepGeometry& geometry) : a_(arrays), g_(geometry) {}

  std::int32_t at(const ArraySpan& span, std::int64_t i) const {
    require(0 <= i && i < static_cast<std::int64_t>(span.count), "an index beyond its array");
    return a_.view<std::int32_t>(span)[static_cast<std::size_t>(i)];
  }
  PrefillTile tile(std::size_t i) const { return a_.view<PrefillTile>(a_.tiles)[i]; }
  std::int32_t num_tokens_of(std::int32_t sequence) const {
    return at(a_.query_start, sequence + 1) - at(a_.query_start, sequence);
  }
  std::int32_t num_rows_of(const PrefillTile& tile) const {
    const std::int32_t behind = num_tokens_of(tile.sequence) * g_.group - tile.first_row;
    return std::clamp(behind, 0, g_.tile_rows);
  }

  Attention attention(bool is_window) const {
    Attention result;
    result.row_count.resize(static_cast<std::size_t>(a_.num_tokens * g_.group));
    result.slots.resize(static_cast<std::size_t>(a_.num_tokens));
    for (std::int32_t d = 0; d < a_.num_decodes; ++d) walk_decode(d, is_window, result);
    const ArraySpan& starts = is_window ? a_.window_item_start : a_.item_start;
    const ArraySpan& items = is_window ? a_.window_item_decode : a_.item_decode;
    require(starts.count == static_cast<std::size_t>(a_.num_decodes) + 1, "a start for a decode");
    require(at(starts, a_.num_decodes) == static_cast<std::int32_t>(items.count),
            "items at the end");
    for (std::int32_t i = 0; i < at(starts, a_.num_decodes); ++i) walk_item(i, is_window, result);
    const bool is_apart = !is_window && a_.span_tiles.count > 0;
    for (const PrefillTile& tile : a_.view<PrefillTile>(is_apart ? a_.span_tiles : a_.tiles)) {
      walk_tile(tile, is_window, result);
    }
    if (is_apart) check_merges();
    return result;
  }

 private:
  void read(std::int32_t sequence, std::int32_t token, std::int32_t kv, bool is_window,
            Attention& result) const {
    const bool own = is_window && g_.has_window_tables;
    const ArraySpan& starts = own ? a_.window_table_start : a_.table_start;
    const ArraySpan& tables = own ? a_.window_block_tables : a_.block_tables;
    const std::int32_t block = at(tables, at(starts, sequence) + kv / g_.block_size);
    Ints& slots = result.slots.at(static_cast<std::size_t>(token));
    if (slots.size() <= static_cast<std::size_t>(kv)) {
      slots.resize(static_cast<std::size_t>(at(a_.context_lens, sequence)), -1);
    }
    std::int32_t& slot = slots.at(static_cast<std::size_t>(kv));
    require(slot == -1, "a position is attended to twice");
    slot = block * g_.block_size + kv % g_.block_size;
  }

  void walk_decode(std::int32_t decode, bool is_window, Attention& result) const {
    const ArraySpan& starts = is_window ? a_.window_item_start : a_.item_start;
    const std::int32_t sequence = at(a_.decodes, decode);
    const std::int32_t num_items = at(starts, decode + 1) - at(starts, decode);
    if (sequence < 0) return require(num_items == 0, "padding has items");
    require(num_items > 0, "a decode without items");
    require(num_tokens_of(sequence) == 1, "a decode of several tokens");
    for (std::int32_t head = 0; head < g_.group; ++head) {
      const std::int32_t row = at(a_.query_start, sequence) * g_.group + head;
      ++result.row_count.at(static_cast<std::size_t>(row));
    }
  }

  void walk_item(std::int32_t item, bool is_window, Attention& result) const {
    const std::int32_t window = is_window ? g_.window : kNoWindow;
    const std::int32_t decode = at(is_window ? a_.window_item_decode : a_.item_decode, item);
    const std::int32_t sequence = at(a_.decodes, decode);
    const std::int32_t position = at(a_.context_lens, sequence) - 1;
    const std::int32_t nth = item - at(is_window ? a_.window_item_start : a_.item_start, decode);
    const std::int32_t split = first_attended(position, window) / a_.split_size + nth;
    bool is_empty = true;
    for (std::int32_t kv = split * a_.split_size; kv < (split + 1) * a_.split_size; ++kv) {
      if (!attends(position, kv, window)) continue;
      read(sequence, at(a_.query_start, sequence), kv, is_window, result);
      is_empty = false;
    }
    require(!is_empty, "an item of nothing");
  }

  void walk_tile(const PrefillTile& tile, bool is_window, Attention& result) const {
    require(tile.first_row % g_.tile_rows == 0, "tiles begin at multiples of their rows");
    const std::int32_t first_token = at(a_.query_start, tile.sequence);
    const std::int32_t first_position =
        at(a_.context_lens, tile.sequence) - num_tokens_of(tile.sequence);
    for (std::int32_t i = 0; i < num_rows_of(tile); ++i) {
      const std::int32_t row = tile.first_row + i;
      const std::int32_t token = first_token + row / g_.group;
      if (tile.span <= 0) {  // the row is one of the merge's, too
        ++result.row_count.at(static_cast<std::size_t>(first_token * g_.group + row));
      }
      if (row % g_.group != 0) continue;  // heads of a token read the same
      const std::int32_t position = first_position + row / g_.group;
      for (std::int32_t kv = 0; kv <= position; ++kv) {
        if (!attends(position, kv, is_window ? g_.window : kNoWindow)) continue;
        if (tile.span >= 0 && kv / g_.span_size != tile.span) continue;
        read(tile.sequence, token, kv, is_window, result);
      }
    }
  }

  // Every part is of one tile and span, and every tile whose spans are apart has its merge.
  void check_merges() const {
    std::vector<PrefillTile> parts;
    for (const PrefillMerge& merge : a_.view<PrefillMerge>(a_.merges)) {
      require(merge.num_parts > 1, "a merge of parts");
      require(merge.first_part == static_cast<std::int32_t>(parts.size()), "parts one by one");
      for (std::int32_t span = 0; span < merge.num_parts; ++span) {
        parts.push_back({merge.sequence, merge.first_row, span, merge.first_part + span});
      }
    }
    require(parts.size() <= static_cast<std::size_t>(g_.max_parts), "room for all parts");
    std::int32_t last_length = INT32_MAX;
    std::size_t num_apart = 0;
    for (const PrefillTile& tile : a_.view<PrefillTile>(a_.span_tiles)) {
      const std::int32_t last_row = tile.first_row + num_rows_of(tile) - 1;
      const std::int32_t behind = at(a_.context_lens, tile.sequence) -
                                  num_tokens_of(tile.sequence) + last_row / g_.group + 1;
      require(tile.span >= 0 || behind <= g_.span_size, "long tiles are apart");
      const std::int32_t length =
          tile.span < 0 ? behind : std::min(behind - tile.span * g_.span_size, g_.span_size);
      require(length > 0 && length <= last_length, "long tiles first");
      last_length = length;
      if (tile.span < 0) continue;
      ++num_apart;
      require(parts.at(static_cast<std::size_t>(tile.part)) == tile, "a tile's part");
    }
    require(num_apart == parts.size(), "every part is somebody's");
  }

  const StepArrays& a_;
  const StepGeometry& g_;
};

// Branches that cases reached, so that a test notices when they stop reaching it.
struct Coverage {
  std::map<std::string, std::int64_t> counts;
};

// One pass of a plan, laid out and compared with what plan and requests say.
class PassCheck {
 public:
  PassCheck(const StepPlan& plan, const ForwardPass& pass, const RequestTable& requests,
            const StepGeometry& geometry, Coverage& coverage)
      : requests_(requests), geometry_(geometry), coverage_(coverage) {
    flatten_pass(plan, pass, requests, geometry.block_size, batch_);
    for (std::size_t t = 0; t < batch_.token_ids.size(); ++t) {
      const auto id = static_cast<std::int32_t>(t * 7 % 50);
      batch_.token_ids[t] = TokenId{t % 5 == 0 ? -1 - id : id};
    }
    chunks_ = std::span<const ScheduledChunk>(plan.chunks)
                  .subspan(static_cast<std::size_t>(pass.begin),
                           static_cast<std::size_t>(pass.end - pass.begin));
  }

  bool fits_a_bucket() const {
    return std::all_of(chunks_.begin(), chunks_.end(), [](const ScheduledChunk& chunk) {
      return chunk.kind == ChunkKind::Decode && chunk.samples_token;
    });
  }

  // `arrays` holds whatever the pass before left.
  void run(std::int32_t bucket, StepArrays& arrays) {
    lay_out_pass(batch_, chunks_, geometry_, bucket, arrays);
    check_block(arrays, bucket);
    const StepArrays device = copied(arrays);
    const auto padded = [bucket](std::size_t count) {
      return bucket > 0 ? bucket : static_cast<std::int32_t>(count);
    };
    require(device.num_tokens == padded(batch_.positions.size()), "the number of tokens");
    require(device.num_sequences == padded(chunks_.size()), "the number of sequences");
    require(device.num_rows == padded(batch_.logit_tokens.size()), "the number of rows");
    check_tokens(device);
    check_rows(device);
    check_kernels(device, bucket);
    const Walk walk(device, geometry_);
    require(walk.attention(false) == expected_attention(device, kNoWindow), "full attention");
    if (geometry_.window > 0) {
      require(walk.attention(true) == expected_attention(device, geometry_.window), "the window");
    }
    count_coverage(device, bucket);
  }

 private:
  const BlockTable& table(const ScheduledChunk& chunk, bool is_window) const {
    const Request& request = requests_[chunk.request];
    return is_window && geometry_.has_window_tables ? request.group_tables[0] : request.block_table;
  }
  std::int32_t slot(const ScheduledChunk& chunk, std::int32_t position, bool is_window) const {
    const auto block = static_cast<std::size_t>(position / geometry_.block_size);
    return static_cast<std::int32_t>(index(table(chunk, is_window).at(block))) *
               geometry_.block_size +
           position % geometry_.block_size;
  }

  // The device's arrays after the copies; its memory was full of something else.
  static StepArrays copied(const StepArrays& arrays) {
    StepArrays device = arrays;
    device.bytes.assign(arrays.block_bytes, std::byte{0xee});
    for (const CopyRange& range : arrays.copies) {
      std::memcpy(device.bytes.data() + range.offset, arrays.bytes.data() + range.offset,
                  range.length);
    }
    return device;
  }

  void check_block(const StepArrays& arrays, std::int32_t bucket) const {
    require(arrays.bytes.size() >= arrays.block_bytes, "a block has memory");
    const std::size_t max_bytes = bucket > 0
                                      ? max_bucket_bytes(bucket, geometry_)
                                      : max_pass_bytes(batch_.num_tokens(), batch_.num_sequences(),
                                                       batch_.num_sequences(), geometry_);
    require(bucket > 0 ? arrays.block_bytes == max_bytes : arrays.block_bytes <= max_bytes,
            "a block is larger than it may be");
    const std::pair<const ArraySpan*, std::size_t> spans[] = {{&arrays.token_ids, 4},
                                                              {&arrays.positions, 4},
                                                              {&arrays.slots, 4},
                                                              {&arrays.window_slots, 4},
                                                              {&arrays.query_start, 4},
                                                              {&arrays.context_lens, 4},
                                                              {&arrays.table_start, 4},
                                                              {&arrays.window_table_start, 4},
                                                              {&arrays.logit_tokens, 4},
                                                              {&arrays.sample_rows, 48},
                                                              {&arrays.decodes, 4},
                                                              {&arrays.item_start, 4},
                                                              {&arrays.window_item_start, 4},
                                                              {&arrays.tiles, 8},
                                                              {&arrays.item_decode, 4},
                                                              {&arrays.window_item_decode, 4},
                                                              {&arrays.block_tables, 4},
                                                              {&arrays.window_block_tables, 4}};
    std::size_t end = 0;
    for (const auto& [span, element] : spans) {
      require(span->offset % 16 == 0 && span->offset >= end, "arrays overlap or are not aligned");
      end = span->offset + span->count * element;
    }
    require(end <= arrays.block_bytes, "the last array is beyond the block");
    require(arrays.copies.size() <= (bucket > 0 ? 5u : 1u), "too many copies");
    require(std::max(arrays.item_decode.count, arrays.window_item_decode.count) <=
                static_cast<std::size_t>(geometry_.max_items),
            "more items than allowed");
    const bool own = geometry_.has_window_tables;
    require(own || arrays.window_slots.count + arrays.window_table_start.count +
                           arrays.window_block_tables.count ==
                       0,
            "tables that nobody has");
    require(geometry_.window > 0 ||
                arrays.window_item_start.count + arrays.window_item_decode.count == 0,
            "items of a window that nobody has");
  }

  void check_tokens(const StepArrays& device) const {
    const Walk walk(device, geometry_);
    std::int32_t t = 0;
    for (std::size_t s = 0; s < chunks_.size(); ++s) {
      const ScheduledChunk& chunk = chunks_[s];
      const auto sequence = static_cast<std::int32_t>(s);
      require(walk.at(device.query_start, sequence) == t, "where a sequence begins");
      require(walk.at(device.context_lens, sequence) == chunk.end_position(), "its context");
      for (std::int32_t p = chunk.first_position; p < chunk.end_position(); ++p, ++t) {
        const TokenId id = batch_.token_ids[static_cast<std::size_t>(t)];
        require(walk.at(device.token_ids, t) == value(id), "a token's id");
        require(walk.at(device.positions, t) == p, "a token's position");
        require(walk.at(device.slots, t) == slot(chunk, p, false), "a token's slot");
        if (!geometry_.has_window_tables) continue;
        require(walk.at(device.window_slots, t) == slot(chunk, p, true), "its window slot");
      }
    }
    for (auto s = static_cast<std::int32_t>(chunks_.size()); s < device.num_sequences; ++s) {
      require(walk.at(device.query_start, s) == t, "padding has tokens");
      require(walk.at(device.context_lens, s) == 0, "padding has a context");
      require(walk.at(device.table_start, s) == 0, "padding has a table");
      if (!geometry_.has_window_tables) continue;
      require(walk.at(device.window_table_start, s) == 0, "padding has a window table");
    }
    require(walk.at(device.query_start, device.num_sequences) == t, "where the last one ends");
    for (; t < device.num_tokens; ++t) {
      require(walk.at(device.token_ids, t) == 0 && walk.at(device.positions, t) == 0, "padding");
      require(walk.at(device.slots, t) == -1, "padding is stored");
      if (!geometry_.has_window_tables) continue;
      require(walk.at(device.window_slots, t) == -1, "padding is stored for window layers");
    }
  }

  void check_rows(const StepArrays& device) const {
    const auto rows = device.view<SampleRow>(device.sample_rows);
    require(rows.size() == static_cast<std::size_t>(device.num_rows), "a way to sample a row");
    Ints expected;
    std::int32_t end = 0;
    for (const ScheduledChunk& chunk : chunks_) {
      end += chunk.num_tokens;
      if (chunk.samples_token) expected.push_back(end - 1);
    }
    expected.resize(rows.size());
    const auto logit_tokens = device.view<std::int32_t>(device.logit_tokens);
    require(std::equal(logit_tokens.begin(), logit_tokens.end(), expected.begin(), expected.end()),
            "tokens whose logits are needed");
    for (std::size_t i = 0; i < rows.size(); ++i) {
      require(rows[i].out == static_cast<std::int32_t>(i), "where a row goes");
      require(rows[i].temperature == 0 && rows[i].top_p == 1 && rows[i].min_p == 0 &&
                  rows[i].top_k == 0 && rows[i].seed == 0 && rows[i].position == 0,
              "rows are greedy");
    }
  }

  // Which kernel computes which chunk, and in which order tiles stand.
  void check_kernels(const StepArrays& device, std::int32_t bucket) const {
    Ints decodes;
    bool has_prefill = false;
    for (std::size_t s = 0; s < chunks_.size(); ++s) {
      const bool is_decode = chunks_[s].kind == ChunkKind::Decode;
      if (is_decode && geometry_.splits_decodes) decodes.push_back(static_cast<std::int32_t>(s));
      has_prefill = has_prefill || !is_decode;
    }
    if (geometry_.splits_decodes && bucket > 0)
      decodes.resize(static_cast<std::size_t>(bucket), -1);
    const auto laid_out = device.view<std::int32_t>(device.decodes);
    require(std::equal(laid_out.begin(), laid_out.end(), decodes.begin(), decodes.end()),
            "the decodes");
    require(device.has_prefill == has_prefill, "whether there is a prompt");
    require(device.num_decodes == static_cast<std::int32_t>(decodes.size()), "their number");
    require(device.split_size == decode_split_size(device.num_decodes, geometry_), "their splits");
    const Walk walk(device, geometry_);
    std::tuple<std::int32_t, std::int32_t, std::int32_t> last;
    for (std::size_t i = 0; i < device.tiles.count; ++i) {
      const PrefillTile tile = walk.tile(i);
      const std::int32_t num_rows = walk.num_rows_of(tile);
      require(num_rows > 0 || bucket > 0, "a tile of nothing");
      const std::int32_t last_token = (tile.first_row + num_rows - 1) / geometry_.group;
      const std::int32_t context = walk.at(device.context_lens, tile.sequence);
      const std::int32_t position = context - walk.num_tokens_of(tile.sequence) + last_token;
      const std::tuple key(num_rows > 0 ? -position : 1, tile.sequence, tile.first_row);
      require(i == 0 || last < key, "tiles out of order");
      last = key;
    }
  }

  Attention expected_attention(const StepArrays& device, std::int32_t window) const {
    const bool is_window = window != kNoWindow;
    Attention expected;
    expected.row_count.assign(batch_.positions.size() * static_cast<std::size_t>(geometry_.group),
                              1);
    for (const ScheduledChunk& chunk : chunks_) {
      for (std::int32_t p = chunk.first_position; p < chunk.end_position(); ++p) {
        Ints& slots =
            expected.slots.emplace_back(static_cast<std::size_t>(chunk.end_position()), -1);
        for (std::int32_t kv = 0; kv < chunk.end_position(); ++kv) {
          if (!attends(p, kv, window)) continue;
          slots[static_cast<std::size_t>(kv)] = slot(chunk, kv, is_window);
        }
      }
    }
    expected.row_count.resize(static_cast<std::size_t>(device.num_tokens * geometry_.group));
    expected.slots.resize(static_cast<std::size_t>(device.num_tokens));
    return expected;
  }

  void count_coverage(const StepArrays& device, std::int32_t bucket) {
    auto& counts = coverage_.counts;
    std::set<BlockId> seen;
    bool is_shared = false;
    for (const ScheduledChunk& chunk : chunks_) {
      for (const BlockId id :
           std::set<BlockId>(table(chunk, false).begin(), table(chunk, false).end())) {
        is_shared = !seen.insert(id).second || is_shared;
      }
      if (geometry_.has_window_tables && table(chunk, true).front() == kNullBlock) {
        ++counts["behind the window"];
      }
    }
    counts["shared prefix"] += is_shared ? 1 : 0;
    counts["mixed"] += device.has_prefill && device.num_decodes > 0 ? 1 : 0;
    counts["padded"] += bucket > device.view<std::int32_t>(device.query_start).back() ? 1 : 0;
    counts["padded tiles"] += bucket > 0 && device.tiles.count > chunks_.size() ? 1 : 0;
    counts["several copies"] += device.copies.size() > 1 ? 1 : 0;
    counts["several tiles"] += device.tiles.count > chunks_.size() ? 1 : 0;
    counts["spans apart"] += device.span_tiles.count > 0 ? 1 : 0;
    counts["several splits"] += device.item_decode.count > chunks_.size() ? 1 : 0;
    counts["fewer in the window"] +=
        geometry_.window > 0 && device.window_item_decode.count < device.item_decode.count ? 1 : 0;
  }

  const RequestTable& requests_;
  const StepGeometry& geometry_;
  Coverage& coverage_;
  ForwardBatch batch_;
  std::span<const ScheduledChunk> chunks_;
};

}  // namespace metronome::testing
