// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/graph_buckets.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

std::vector<std::int32_t> graph_buckets(std::int32_t max_num_seqs) {
  METRONOME_CHECK(max_num_seqs >= 1, "a step has room for a sequence");
  constexpr std::int32_t kSizes[] = {1,  2,  4,  8,   12,  16,  24,  32,
                                     48, 64, 96, 128, 192, 256, 384, kMaxGraphDecodes};
  std::vector<std::int32_t> buckets;
  for (const std::int32_t size : kSizes) {
    buckets.push_back(size);
    if (size >= max_num_seqs) break;
  }
  return buckets;
}

std::int32_t find_bucket(const std::vector<std::int32_t>& buckets, std::int32_t num_decodes) {
  METRONOME_CHECK(num_decodes >= 1, "a step without decodes has no graph");
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), num_decodes);
  return bucket == buckets.end() ? 0 : *bucket;
}

}  // namespace metronome
