// SPDX-License-Identifier: Apache-2.0
// Types of a step that host and device share. No CUDA here.
#pragma once

#include <cstdint>

namespace metronome {

// Rows of query tiles. The query heads of one KV head are adjacent. Row r of a sequence is query
// token r / group, query head r % group (group = n_heads / n_kv_heads).
constexpr std::int32_t kPrefillTileRows = 64;  // of launch_prefill_attention
constexpr std::int32_t kWgmmaTileRows = 128;   // of launch_wgmma_attention
struct PrefillTile {
  std::int32_t sequence = 0;
  std::int32_t first_row = 0;  // a multiple of the tile's rows
  // For launch_wgmma_attention. If span >= 0, the tile attends to that span alone, and its sums
  // become part `part`. -1: the tile attends to all spans and writes the outputs.
  std::int32_t span = -1;
  std::int32_t part = -1;

  bool operator==(const PrefillTile&) const = default;
};

// Positions that launch_wgmma_attention sums separately before it adds the next span. One CTA does
// all spans of a tile, or several CTAs share them. The span size affects the bits of every output.
constexpr std::int32_t kPrefillSpan = 2048;

// A tile whose spans several CTAs computed. Its parts are [first_part, first_part + num_parts), by
// span.
struct PrefillMerge {
  std::int32_t sequence = 0;
  std::int32_t first_row = 0;
  std::int32_t first_part = 0;
  std::int32_t num_parts = 0;

  bool operator==(const PrefillMerge&) const = default;
};

// How to sample a token from a row of logits: SamplingParams of core/engine/sampling.h, without the
// fields for reporting.
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
