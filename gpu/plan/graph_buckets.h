// SPDX-License-Identifier: Apache-2.0
// The sizes that decode steps are padded to. Each has one captured graph.
#pragma once

#include <cstdint>
#include <vector>

namespace metronome {

// 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, then every 128. The last is the first that
// is at least max_num_seqs, or kMaxGraphDecodes if that is smaller. Requires max_num_seqs >= 1.
constexpr std::int32_t kMaxGraphDecodes = 512;
std::vector<std::int32_t> graph_buckets(std::int32_t max_num_seqs);

// The smallest bucket >= num_decodes, or 0 if there is none. Requires ascending buckets and
// num_decodes >= 1.
std::int32_t find_bucket(const std::vector<std::int32_t>& buckets, std::int32_t num_decodes);

}  // namespace metronome
