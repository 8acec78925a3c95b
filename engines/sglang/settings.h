// SPDX-License-Identifier: Apache-2.0
// The keys of `scheduler` that SGLang has.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace metronome {

class FieldVisitor;

constexpr std::string_view kSglangPolicies[] = {  // by SglangConfig::SchedulePolicy
    "fcfs", "lpm", "lof", "dfs-weight", "hrrn", "shortest-prefill-first"};

// Settings that are environment variables, not flags.
struct SglangVariable {
  std::string_view key;
  std::string_view name;
};
constexpr SglangVariable kSglangVariables[] = {
    {"init_new_token_ratio", "SGLANG_INIT_NEW_TOKEN_RATIO"},
    {"min_new_token_ratio_factor", "SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR"},
    {"new_token_ratio_decay_steps", "SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS"},
    {"retract_decode_steps", "SGLANG_RETRACT_DECODE_STEPS"},
    {"clip_max_new_tokens", "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"}};

struct SglangConfig {
  enum class SchedulePolicy : std::uint8_t {
    Fcfs,
    Lpm,
    Lof,
    DfsWeight,
    Hrrn,
    ShortestPrefillFirst
  };
  enum class RetractionPolicy : std::uint8_t { Length, Priority };
  SchedulePolicy schedule_policy = SchedulePolicy::Fcfs;
  std::int64_t chunked_prefill_size = 8192;  // -1 = no chunking
  std::int32_t max_prefill_tokens = 16384;
  bool enable_mixed_chunk = false;
  double schedule_conservativeness = 1.0;
  double init_new_token_ratio = 0.7;
  double min_new_token_ratio_factor = 0.14;
  std::int32_t new_token_ratio_decay_steps = 600;
  std::int32_t retract_decode_steps = 20;
  std::int32_t clip_max_new_tokens = 4096;
  std::int32_t scheduler_recv_interval = 1;          // decode steps between receipts of requests
  std::int32_t prefill_decode_interval = 0;          // decode steps after a prefill step, at least
  std::int32_t prefill_decode_interval_min_bs = 0;   // with so many running requests
  std::optional<std::int64_t> prefill_max_requests;  // of a prefill step; null = no limit
  bool enable_priority_scheduling = false;
  bool schedule_low_priority_values_first = false;
  std::int32_t priority_scheduling_preemption_threshold = 10;
  bool disable_priority_preemption = false;
  RetractionPolicy retraction_policy = RetractionPolicy::Length;
  // Not a key: requests that SGLang never serves wait, as in its logs, and are not refused.
  bool waits_forever = false;
};

void visit_fields(FieldVisitor& visitor, SglangConfig& config);

}  // namespace metronome
