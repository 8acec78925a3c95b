// SPDX-License-Identifier: Apache-2.0
// A KV cache without an engine: steps are planned and committed by hand.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/engine/kv/kv_cache.h"
#include "tests/catch.h"
#include "tests/planned.h"

namespace metronome::testing {

constexpr std::uint64_t kA = 1;  // contents of prompts
constexpr std::uint64_t kB = 2;
constexpr std::uint64_t kC = 3;

using Prompts = std::vector<std::vector<PromptSegment>>;

inline BlockTable table_of(std::initializer_list<int> ids) {
  BlockTable table;
  for (const int id : ids) table.push_back(BlockId{id});
  return table;
}

inline KvCacheLayout caching(std::int64_t num_blocks, std::int32_t block_size,
                             HashTime hash_time = HashTime::Plan,
                             DuplicateRule duplicates = DuplicateRule::KeepAll) {
  return {.num_blocks = num_blocks,
          .block_size = block_size,
          .enable_prefix_caching = true,
          .hash_time = hash_time,
          .duplicates = duplicates};
}

// A cache and the requests that use it. Request i has the i-th of the prompts.
struct CacheBench {
  CacheBench(const KvCacheLayout& layout, const Prompts& contents)
      : prompts(contents), kv(layout, prompts.hasher()) {
    for (const std::vector<PromptSegment>& segments : contents) {
      std::int32_t num_tokens = 0;
      for (const PromptSegment& segment : segments) num_tokens += segment.num_tokens;
      requests.add({0, num_tokens, 100, 0});
    }
  }
  Request& operator[](std::uint32_t i) { return requests[RequestId{i}]; }

  int hit(std::uint32_t i) { return kv.find_prefix((*this)[i]).num_tokens; }

  // A step that computes the request up to `num_positions` is planned ...
  void plan(std::uint32_t i, std::int32_t num_positions) {
    Request& request = (*this)[i];
    if (request.block_table.empty()) {
      kv.take(request, kv.find_prefix(request), num_positions);
    } else {
      REQUIRE(kv.grow(request, num_positions));
    }
    request.computed_tokens = num_positions;
    kv.check_integrity(requests);
  }
  // ... and its result taken.
  void commit(std::uint32_t i) {
    Request& request = (*this)[i];
    request.cached_tokens = request.num_computed_tokens();
    if (kv.hashes_at_commit()) kv.commit(request, true);
    kv.check_integrity(requests);
  }
  void compute(std::uint32_t i, std::int32_t num_positions) {
    plan(i, num_positions);
    commit(i);
  }
  void release(std::uint32_t i) {
    Request& request = (*this)[i];
    kv.release(request);
    request.computed_tokens = request.cached_tokens = 0;
    kv.check_integrity(requests);
  }
  std::int64_t num_cached_blocks() const { return kv.pool().contents().size(); }

  SharedPrompts prompts;
  RequestTable requests;
  KvCacheManager kv;
};

}  // namespace metronome::testing
