// Sizes that decode steps are padded to, one captured graph each.
#pragma once

#include <cstdint>
#include <vector>

namespace metronome {

// 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, then every 128, as far as max_num_seqs
// needs: the last is the first that is at least max_num_seqs, or kMaxGraphDecodes where that is
// smaller. Requires max_num_seqs >= 1.
constexpr std::int32_t kMaxGraphDecodes = 512;
std::vector<std::int32_t> graph_buckets(std::int32_t max_num_seqs);

// The smallest bucket that holds num_decodes >= 1; 0 when none does. Buckets are ascending.
std::int32_t find_bucket(const std::vector<std::int32_t>& buckets, std::int32_t num_decodes);

}  // namespace metronome
