// What host and device both know of a step. No CUDA in here.
#pragma once

#include <cstdint>

namespace metronome {

// Rows of query tiles: the query heads of one KV head stand next to each other, so row r of a
// sequence is its query token r / group, query head r % group (group = n_heads / n_kv_heads).
constexpr std::int32_t kPrefillTileRows = 64;  // of launch_prefill_attention
constexpr std::int32_t kWgmmaTileRows = 128;   // of launch_wgmma_attention
struct PrefillTile {
  std::int32_t sequence = 0;
  std::int32_t first_row = 0;  // a multiple of the tile's rows
  // Of launch_wgmma_attention: the one span of positions to attend to, whose sums become that part;
  // -1: all of them, up to the outputs.
  std::int32_t span = -1;
  std::int32_t part = -1;

  bool operator==(const PrefillTile&) const = default;
};

// Positions that launch_wgmma_attention sums up by themselves before it adds the next: what one CTA
// does for a tile, or several do at the same time. Its choice is in the bits of every output.
constexpr std::int32_t kPrefillSpan = 2048;

// A tile whose spans were several CTAs': the parts [first_part, first_part + num_parts), by span.
struct PrefillMerge {
  std::int32_t sequence = 0;
  std::int32_t first_row = 0;
  std::int32_t first_part = 0;
  std::int32_t num_parts = 0;

  bool operator==(const PrefillMerge&) const = default;
};

// How a row of logits becomes a token: SamplingParams of core/engine/sampling.h, without what it
// reports.
struct SampleRow {
  double temperature = 0;  // 0 = greedy
  double top_p = 1;
  double min_p = 0;
  std::uint64_t seed = 0;
  std::int64_t position = 0;  // of the new token in its request
  std::int32_t top_k = 0;
  std::int32_t out = 0;  // the token goes to tokens[out]
};

constexpr std::int32_t kSampleFailed = -1;  // a logit of the row is not finite

}  // namespace metronome
