// SPDX-License-Identifier: Apache-2.0
// The KV cache of an imaginary device: remembers which tokens were computed into which
// slot of which block, and checks that whatever a step reads is the content it takes it for. Knows
// nothing of block hashes: it compares tokens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/request.h"
#include "core/engine/step_plan.h"
#include "core/workload/workload.h"

namespace metronome::testing {

class KvOracle {
 public:
  // `workload` describes request i as its request i, and outlives the oracle.
  KvOracle(const Workload& workload, const KvCacheLayout& layout)
      : workload_(workload),
        block_size_(layout.block_size),
        sliding_window_(layout.windows.num_tokens),
        states_(layout.states),
        first_state_(layout.has_states_before_windows || layout.windows.num_tokens == 0
                         ? 0
                         : static_cast<std::size_t>(layout.windows.num_groups)) {}

  // A step writes the KV of all its chunks and reads that of everything before them. Requests that
  // run on from an earlier step are read in full every 16th time only.
  void compute(const StepPlan& plan, const RequestTable& requests) {
    step_ = plan.step_index;
    written_by(step_).clear();
    // A state is read before any is written: no request reads what the same step computes.
    for (const ScheduledChunk& chunk : plan.chunks) read_states(chunk, requests[chunk.request]);
    for (const ScheduledChunk& chunk : plan.chunks) receive(chunk, requests[chunk.request]);
    for (const ScheduledChunk& chunk : plan.chunks) write(chunk, requests[chunk.request]);
    for (const ScheduledChunk& chunk : plan.chunks) {
      std::uint8_t& generation = generations_.try_emplace(chunk.request, 255).first->second;
      const bool is_new = std::exchange(generation, chunk.generation) != chunk.generation;
      if (is_new && chunk.first_position != requests[chunk.request].num_received_tokens) {
        num_tokens_reused_ += chunk.first_position;
      }
      if (is_new || ++num_reads_ % 16 == 0) read(chunk, requests[chunk.request]);
    }
  }

  // The step failed: what it wrote is garbage, also where its request has ended meanwhile. Blocks
  // handed out again since then hold what the step after it wrote.
  void spoil(std::int64_t step) {
    for (const Place& place : written_by(step)) {
      const auto slot = slots_.find(place);
      if (slot != slots_.end() && slot->second.step == step) slot->second.prefix = 0;
    }
  }

  std::int64_t num_tokens_reused() const { return num_tokens_reused_; }
  // Of requests that began with a state which another one left behind.
  std::int64_t num_states_reused() const { return num_states_reused_; }

 private:
  using Place = std::pair<BlockId, std::int32_t>;  // a slot of a block
  static constexpr std::int32_t kState = -1;       // in place of a slot: the block holds a state
  struct Slot {
    std::uint64_t prefix = 0;  // names the tokens up to the one whose KV it holds
    std::int64_t step = -1;    // that wrote it
  };

  bool is_state(std::size_t group) const {
    return group >= first_state_ &&
           group < first_state_ + static_cast<std::size_t>(states_.num_groups);
  }
  std::vector<const BlockTable*> further_tables(const Request& request, bool are_states) const {
    std::vector<const BlockTable*> tables;
    for (std::size_t g = 0; g < request.group_tables.size(); ++g) {
      if (is_state(g) == are_states) tables.push_back(&request.group_tables[g]);
    }
    return tables;
  }
  std::vector<const BlockTable*> tables_of(const Request& request) const {
    std::vector<const BlockTable*> tables = further_tables(request, false);
    tables.insert(tables.begin(), &request.block_table);
    return tables;
  }
  std::size_t index_of(std::int32_t position) const {
    return static_cast<std::size_t>(position / block_size_);
  }
  Place slot_at(const BlockTable& table, std::int32_t position) const {
    return {table.at(index_of(position)), position % block_size_};
  }
  bool holds(const BlockTable& table, std::int32_t position, std::uint64_t prefix) const {
    const auto slot = slots_.find(slot_at(table, position));
    return slot != slots_.end() && slot->second.prefix == prefix;
  }
  // Of the two steps that can be in flight.
  std::vector<Place>& written_by(std::int64_t step) {
    return written_[static_cast<std::size_t>(step % 2)];
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

  // The block of the state at the end of so many tokens.
  BlockId state_at(const BlockTable& table, std::int32_t num_tokens) const {
    return table.at(states_.caches_states ? index_of(num_tokens - 1) : 0);
  }

  void read_states(const ScheduledChunk& chunk, const Request& request) {
    if (states_.num_groups == 0 || chunk.first_position == 0) return;
    const std::vector<const BlockTable*> tables = further_tables(request, true);
    METRONOME_CHECK(static_cast<std::int32_t>(tables.size()) == states_.num_groups,
                    "a request has a table for each group");
    const std::uint64_t prefix = prefix_of(request, chunk.first_position - 1);
    for (const BlockTable* table : tables) {
      const auto slot = slots_.find({state_at(*table, chunk.first_position), kState});
      METRONOME_CHECK(slot != slots_.end() && slot->second.prefix == prefix,
                      "a block holds another state than its request takes it for");
      num_states_reused_ += generations_.contains(request.id) ? 0 : 1;
    }
  }

  // A block holds KV or a state: writing one loses the other.
  void write_states(const ScheduledChunk& chunk, const Request& request) {
    for (const BlockTable* table : further_tables(request, true)) {
      const BlockId block = state_at(*table, chunk.end_position());
      METRONOME_CHECK(block != kNullBlock, "a state has a block of its own");
      for (std::int32_t i = 0; i < block_size_; ++i) slots_.erase({block, i});
      slots_[{block, kState}] = {prefix_of(request, chunk.end_position() - 1), step_};
      written_by(step_).push_back({block, kState});
    }
  }

  void write(const ScheduledChunk& chunk, const Request& request) {
    write_states(chunk, request);
    for (std::int32_t p = chunk.first_position; p < chunk.end_position(); ++p) {
      for (const BlockTable* table : tables_of(request)) {
        const Place place = slot_at(*table, p);
        slots_[place] = {prefix_of(request, p), step_};
        slots_.erase({place.first, kState});
        written_by(step_).push_back(place);
      }
    }
  }

  // KV from another engine, before the first chunk. What was found in the cache is not sent.
  void receive(const ScheduledChunk& chunk, const Request& request) {
    if (generations_.contains(request.id) || request.num_preemptions > 0) return;
    for (std::int32_t p = request.num_prefix_hit_tokens; p < request.num_received_tokens; ++p) {
      METRONOME_CHECK(p < chunk.first_position, "a received token is computed");
      slots_[slot_at(request.block_table, p)] = {prefix_of(request, p), -1};
    }
  }

  void read(const ScheduledChunk& chunk, const Request& request) {
    for (std::int32_t p = 0; p < chunk.end_position(); ++p) {
      METRONOME_CHECK(holds(request.block_table, p, prefix_of(request, p)),
                      "a block holds other tokens than its request takes it for");
      // The first token of the chunk looks back furthest.
      if (sliding_window_ == 0 || p <= chunk.first_position - sliding_window_) continue;
      for (const BlockTable* table : further_tables(request, false)) {
        METRONOME_CHECK(holds(*table, p, prefix_of(request, p)),
                        "a block within the window holds other tokens");
      }
    }
  }

  const Workload& workload_;
  std::int32_t block_size_;
  std::int32_t sliding_window_;
  StateLayout states_;
  std::size_t first_state_;
  std::map<Place, Slot> slots_;
  std::array<std::vector<Place>, 2> written_;
  std::int64_t step_ = -1;
  std::map<RequestId, std::vector<std::uint64_t>> prefixes_;
  std::map<RequestId, std::uint8_t> generations_;
  std::int64_t num_reads_ = 0;
  std::int64_t num_tokens_reused_ = 0;
  std::int64_t num_states_reused_ = 0;
};

}  // namespace metronome::testing
