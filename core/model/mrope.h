// SPDX-License-Identifier: Apache-2.0
// Qwen's M-RoPE: rotary embeddings with a position for time, height and width.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace metronome {

// The place of one token. The three numbers are equal for text.
struct RopePosition {
  std::int32_t time = 0;
  std::int32_t height = 0;
  std::int32_t width = 0;

  bool is_text() const { return time == height && time == width; }
  bool operator==(const RopePosition&) const = default;
};

// The tokens that stand for one image: rows x columns of them from `first_token` on, row by row.
struct ImageSpan {
  std::int32_t first_token = 0;
  std::int32_t rows = 0;
  std::int32_t columns = 0;

  std::int32_t num_tokens() const { return rows * columns; }
  std::int32_t end_token() const { return first_token + num_tokens(); }
  // Positions that an image takes from the text behind it.
  std::int32_t num_positions() const { return rows > columns ? rows : columns; }
};

// The position of token number `token` of a sequence with these images (ascending, disjoint).
// Images are one frame each. Source: get_rope_index of transformers' modeling_qwen3_vl.py.
RopePosition rope_position(std::span<const ImageSpan> images, std::int32_t token);

// The axis by which each of num_pairs pairs turns: 0 time, 1 height, 2 width. Time, height and
// width alternate while the sections of the latter last; the rest is time's. Requires 3 sections.
std::vector<std::uint8_t> mrope_axes(std::span<const std::int64_t> sections,
                                     std::int64_t num_pairs);

}  // namespace metronome
