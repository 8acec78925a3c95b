// SPDX-License-Identifier: Apache-2.0
// The sizes at which vLLM captures CUDA graphs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace metronome {

// The tokens that a pass over `num_tokens` computes: up to `largest` (absent: 512) it runs as a
// captured graph, padded to the next captured size: 1, 2, 4, multiples of 8 up to 256 and of 16
// above. With drafts, vLLM also captures `tokens_of_each` times 1, 2, 4, 8, ..., for decodes that
// have so many tokens each.
inline double graph_tokens(double num_tokens, std::optional<std::int64_t> largest,
                           std::int64_t tokens_of_each = 1) {
  constexpr std::int64_t kDefaultLargest = 512;
  const auto tokens = static_cast<std::int64_t>(num_tokens);
  const std::int64_t step = tokens > 256 ? 16 : tokens > 4 ? 8 : tokens > 2 ? 4 : 1;
  std::int64_t graph = (tokens + step - 1) / step * step;
  if (tokens_of_each > 1) {
    std::int64_t own = tokens_of_each;
    while (own < tokens) own *= 2;
    graph = std::min(graph, own);
  }
  return static_cast<double>(graph > largest.value_or(kDefaultLargest) ? tokens : graph);
}

}  // namespace metronome
