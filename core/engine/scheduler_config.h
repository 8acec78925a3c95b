// SPDX-License-Identifier: Apache-2.0
// The `scheduler` section of a scenario: the policy and its settings. Those of reproduced engines
// have the engines' names; engines/NAME/settings.h has them.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/policy_settings.h"

namespace metronome {

class FieldVisitor;

enum class QueueOrder : std::uint8_t { Fcfs, Priority, ShortestPrefillFirst };

struct SloPolicyConfig {
  std::optional<double> itl_target_ms;     // null = slo.itl_ms
  std::optional<double> tpot_target_ms;    // null = slo.tpot_ms
  std::optional<double> ttft_deadline_ms;  // null = slo.ttft_ms
  std::int32_t tile_tokens = 64;
  double headroom = 0;               // share of the target kept as reserve
  double late_share = 0.1;           // of the steps, for late prompts
  std::int32_t max_held_steps = 16;  // maximum steps that a prompt waits for room
};

enum class DraftMethod : std::uint8_t { Eagle, Mtp, Ngram, DraftModel };

// Speculative decoding, for policies that verify drafts.
struct DraftConfig {
  std::int32_t num_tokens = 0;  // of a decode, at most; 0 = none
  DraftMethod method = DraftMethod::Eagle;
  // [n]: drafts of the decodes that follow a step of n requests, beyond the end as at the end.
  // Empty: always num_tokens.
  std::vector<std::int32_t> by_batch_size;
};

struct SchedulerConfig {
  std::string policy = "token_budget";
  QueueOrder order = QueueOrder::Fcfs;
  // Tokens per step; auto = the policy's default, see token_budget().
  std::optional<std::int64_t> max_num_batched_tokens;
  // Maximum prompt tokens per request and step. auto = the policy's default: 512 for chunked, the
  // remaining budget for token_budget.
  std::optional<std::int64_t> prefill_chunk_size;
  std::int32_t max_prefill_chunks_per_step = 0;  // 0 = no limit
  std::int32_t max_num_partial_prefills = 0;     // 0 = no limit
  std::int32_t min_chunk_size = 1;
  double batch_wait_ms = 0;  // static: maximum wait for the batch to fill

  SloPolicyConfig slo;
  DraftConfig drafts;  // not keys

  // The settings of a policy that core does not know, by their type. Default values until edited.
  template <class T>
  const T& settings() const {
    return policies.get<T>();
  }
  template <class T>
  T& edit() {
    return policies.edit<T>();
  }
  PolicySettings policies;
};

// max_num_batched_tokens, or the policy's default.
std::int32_t token_budget(const SchedulerConfig& config);

void visit_fields(FieldVisitor& visitor, SchedulerConfig& config);

}  // namespace metronome
