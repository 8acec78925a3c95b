// SPDX-License-Identifier: Apache-2.0
// The `scheduler` section of a scenario: the policy and its settings. Keys that reproduce an engine
// have that engine's names.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

constexpr std::string_view kVllmPolicies[] = {"fcfs", "priority"};  // by VllmConfig::Policy
// By VllmConfig::version. engines/vllm/rules.h says how they differ.
constexpr std::string_view kVllmVersions[] = {"0.19", "0.20", "0.21", "0.22", "0.23",
                                              "0.24", "0.25", "0.26", "0.27", "0.28",
                                              "0.29", "0.30", "0.31", "0.32", "0.33"};
constexpr int kFirstVllmMinor = 19;
constexpr int kDraftVllmMinor = 33;  // the version whose rules for drafts are known
constexpr std::string_view kVllmDraftMethods[] = {"eagle", "mtp", "ngram",
                                                  "draft_model"};  // by VllmConfig::DraftMethod

struct VllmConfig {
  enum class Policy : std::uint8_t { Fcfs, Priority };
  enum class DraftMethod : std::uint8_t { Eagle, Mtp, Ngram, DraftModel };
  int version = static_cast<int>(std::size(kVllmVersions)) - 1;  // index into kVllmVersions
  Policy scheduling_policy = Policy::Fcfs;
  bool enable_chunked_prefill = true;
  std::int32_t long_prefill_token_threshold = 0;  // tokens per request and step; 0 = no limit
  bool scheduler_reserve_full_isl = true;         // admit only if the whole prompt has room
  std::int32_t max_num_active_seqs = 0;           // requests running at once; 0 = max_num_seqs
  // The threshold is at least the budget divided by the requests that run or wait.
  bool long_prefill_token_threshold_adaptive = false;
  // Steps from one with prompt tokens to the next, while requests decode and the queue is short.
  std::int32_t prefill_schedule_interval = 1;
  bool disable_chunked_mm_input = false;  // no chunk ends inside an image
  // Not keys: speculative decoding, by the rules of 0.33. A decode verifies so many drafts at most;
  // 0 = none.
  std::int32_t num_speculative_tokens = 0;
  DraftMethod draft_method = DraftMethod::Eagle;
  // [n]: drafts of the decodes that follow a step of n requests, beyond the end as at the end.
  // Empty: always num_speculative_tokens.
  std::vector<std::int32_t> drafts_by_batch_size;

  int minor() const { return kFirstVllmMinor + version; }  // 33 for 0.33
};

// Sarathi-Serve and its schedulers for comparison.
struct SarathiConfig {
  std::int32_t chunk_size = 512;
  bool enable_dynamic_chunking_schedule = false;  // the chunk shrinks as a prompt advances
  std::int32_t low_chunk_size = 256;
  std::int32_t high_chunk_size = 1024;
  std::int32_t chunk_schedule_max_tokens = 8192;
  std::int32_t chunk_schedule_stages = 4;
};

constexpr std::string_view kSglangPolicies[] = {  // by SglangConfig::SchedulePolicy
    "fcfs", "lpm", "lof", "dfs-weight", "hrrn", "shortest-prefill-first"};

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

struct TensorRtLlmConfig {
  enum class Capacity : std::uint8_t { GuaranteedNoEvict, MaxUtilization, StaticBatch };
  enum class Chunking : std::uint8_t { FirstComeFirstServed, EqualProgress };
  Capacity capacity_scheduler_policy = Capacity::GuaranteedNoEvict;
  Chunking context_chunking_policy = Chunking::FirstComeFirstServed;
  bool enable_chunked_context = true;
  std::int32_t max_num_tokens = 8192;
  std::int32_t chunk_unit_size = 0;  // 0 = one KV block
  // While others generate, prompts wait for this many steps, or until a step has this share of
  // max_num_tokens.
  std::int32_t batch_wait_timeout_iters = 0;
  double batch_wait_max_tokens_ratio = 0;
};

struct FastGenConfig {
  std::int32_t max_ragged_batch_size = 768;
  std::int32_t max_ragged_sequence_count = 512;
  std::int32_t max_tracked_sequences = 2048;
};

struct LlamaCppConfig {
  std::int32_t n_batch = 2048;
  bool cont_batching = true;
  double slot_prompt_similarity = 0.1;
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
  VllmConfig vllm;
  SarathiConfig sarathi;
  SglangConfig sglang;
  TensorRtLlmConfig tensorrt_llm;
  FastGenConfig fastgen;
  LlamaCppConfig llama_cpp;
};

// max_num_batched_tokens, or the policy's default.
std::int32_t token_budget(const SchedulerConfig& config);
// Of ArrivalGate: SGLang's; 1 for other policies.
std::int32_t receive_interval(const SchedulerConfig& config);

void visit_fields(FieldVisitor& visitor, SchedulerConfig& config);
void visit_fields(FieldVisitor& visitor, SglangConfig& config);

}  // namespace metronome
