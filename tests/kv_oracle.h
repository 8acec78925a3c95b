// What the KV cache of an imaginary device holds: remembers which tokens were computed into which
// slot of which block, and checks that whatever a step reads is the content it takes it for. Knows
// nothing of block hashes: it compares tokens.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/request.h"
#include "core/rng.h"
#include "core/step_plan.h"
#include "core/workload.h"

namespace metronome::testing {

class KvOracle {
 public:
  // `workload` describes request i as its request i, and outlives the oracle.
  KvOracle(const Workload& workload, std::int32_t block_size, std::int32_t sliding_window)
      : workload_(workload), block_size_(block_size), sliding_window_(sliding_window) {}

  // A step writes the KV of all its chunks and reads that of everything before them. Requests that
  // run on from an earlier step are read in full every 16th time only.
  void compute(const StepPlan& plan, const RequestTable& requests) {
    for (const ScheduledChunk& chunk : plan.chunks) write(chunk, requests[chunk.request]);
    for (const ScheduledChunk& chunk : plan.chunks) {
      std::uint8_t& generation = generations_.try_emplace(chunk.request, 255).first->second;
      const bool is_new = std::exchange(generation, chunk.generation) != chunk.generation;
      if (is_new) num_tokens_reused_ += chunk.first_position;
      if (is_new || ++num_reads_ % 16 == 0) read(chunk, requests[chunk.request]);
    }
  }

  // The step failed: what it wrote is garbage.
  void spoil(const StepPlan& plan, const RequestTable& requests) {
    for (const ScheduledChunk& chunk : plan.chunks) {
      const Request& request = requests[chunk.request];
      for (std::int32_t p = chunk.first_position; p < chunk.end_position(); ++p) {
        for (const BlockTable* table : tables_of(request)) {
          if (index_of(p) < table->size()) slot(*table, p) = 0;
        }
      }
    }
  }

  std::int64_t num_tokens_reused() const { return num_tokens_reused_; }

 private:
  std::vector<const BlockTable*> tables_of(const Request& request) const {
    if (sliding_window_ == 0) return {&request.block_table};
    return {&request.block_table, &request.window_table};
  }
  std::size_t index_of(std::int32_t position) const {
    return static_cast<std::size_t>(position / block_size_);
  }
  std::uint64_t& slot(const BlockTable& table, std::int32_t position) {
    return slots_[{table.at(index_of(position)), position % block_size_}];
  }

  // Names tokens [0, position] of the request.
  std::uint64_t prefix_of(const Request& request, std::int32_t position) {
    std::vector<std::uint64_t>& prefixes = prefixes_[request.id];
    if (prefixes.empty()) {
      std::vector<TokenId> prompt;
      workload_.prompt_token_ids(index(request.id), 1, INT32_MAX, prompt);
      for (const TokenId token : prompt) {
        append(prefixes, static_cast<std::uint64_t>(value(token)));
      }
    }
    // Nobody else has this request's output.
    while (static_cast<std::int32_t>(prefixes.size()) <= position) {
      append(prefixes, (std::uint64_t{1} << 40) + (index(request.id) << 20) + prefixes.size());
    }
    return prefixes[static_cast<std::size_t>(position)];
  }
  static void append(std::vector<std::uint64_t>& prefixes, std::uint64_t token) {
    const std::uint64_t before = prefixes.empty() ? 0 : prefixes.back();
    prefixes.push_back(mix64(before ^ mix64(token)) | 1);
  }

  void write(const ScheduledChunk& chunk, const Request& request) {
    for (std::int32_t p = chunk.first_position; p < chunk.end_position(); ++p) {
      for (const BlockTable* table : tables_of(request)) slot(*table, p) = prefix_of(request, p);
    }
  }

  void read(const ScheduledChunk& chunk, const Request& request) {
    for (std::int32_t p = 0; p < chunk.end_position(); ++p) {
      METRONOME_CHECK(slot(request.block_table, p) == prefix_of(request, p),
                      "a block holds other tokens than its request takes it for");
      // The first token of the chunk looks back furthest.
      if (sliding_window_ == 0 || p <= chunk.first_position - sliding_window_) continue;
      METRONOME_CHECK(slot(request.window_table, p) == prefix_of(request, p),
                      "a block within the window holds other tokens");
    }
  }

  const Workload& workload_;
  std::int32_t block_size_;
  std::int32_t sliding_window_;
  std::map<std::pair<BlockId, std::int32_t>, std::uint64_t> slots_;
  std::map<RequestId, std::vector<std::uint64_t>> prefixes_;
  std::map<RequestId, std::uint8_t> generations_;
  std::int64_t num_reads_ = 0;
  std::int64_t num_tokens_reused_ = 0;
};

}  // namespace metronome::testing
