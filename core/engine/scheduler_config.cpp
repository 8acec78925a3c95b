// SPDX-License-Identifier: Apache-2.0
// The keys of the `scheduler` section: names, ranges and meaning.
#include "core/engine/scheduler_config.h"

#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/config/config_limits.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"

namespace metronome {
namespace {

constexpr std::string_view kOrders[] = {"fcfs", "priority", "shortest_prefill_first"};
constexpr std::string_view kRetractionPolicies[] = {"length", "priority"};
constexpr std::string_view kCapacityPolicies[] = {"GUARANTEED_NO_EVICT", "MAX_UTILIZATION",
                                                  "STATIC_BATCH"};
constexpr std::string_view kChunkingPolicies[] = {"FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"};

void visit_fields(FieldVisitor& visitor, SloPolicyConfig& config) {
  visitor.optional_number(
      "itl_target_ms", config.itl_target_ms, kShortestLimitMs, kHourMs,
      "slo: upper limit of every inter-token latency (ITL), milliseconds; null: "
      "slo.itl_ms");
  visitor.optional_number("tpot_target_ms", config.tpot_target_ms, kShortestLimitMs, kHourMs,
                          "slo: upper limit of a request's mean ITL at each of its tokens, "
                          "milliseconds; null: slo.tpot_ms");
  visitor.optional_number("ttft_deadline_ms", config.ttft_deadline_ms, kShortestLimitMs, kHourMs,
                          "slo: deadline of a first token after its arrival, milliseconds; null: "
                          "slo.ttft_ms");
  visitor.integer("tile_tokens", config.tile_tokens, 1, kMaxTokens,
                  "slo: chunks fill a forward pass up to a multiple of this many tokens");
  visitor.number("headroom", config.headroom, 0, 0.9,
                 "slo: share of the target that is kept in reserve");
  visitor.number(
      "late_share", config.late_share, 0.001, 1,
      "slo: share of the steps with prompts that begin with a prompt that misses its deadline");
  visitor.integer("max_held_steps", config.max_held_steps, 0, 1 << 20,
                  "slo: most steps that prompts wait while no chunk keeps the target");
}

void visit_fields(FieldVisitor& visitor, VllmConfig& config) {
  visitor.choice("version", config.version, kVllmVersions, "vllm: the version whose rules decide");
  visitor.choice("scheduling_policy", config.scheduling_policy, kVllmPolicies,
                 "vllm: which request leaves the queue first and is preempted last");
  visitor.boolean("enable_chunked_prefill", config.enable_chunked_prefill,
                  "vllm: prompts may be computed in chunks");
  visitor.integer("long_prefill_token_threshold", config.long_prefill_token_threshold, 0,
                  kMaxTokens, "vllm: tokens of one request in a step; 0: no limit");
  visitor.boolean("scheduler_reserve_full_isl", config.scheduler_reserve_full_isl,
                  "vllm: admit a request only when its whole prompt has room");
  visitor.integer("max_num_active_seqs", config.max_num_active_seqs, 0, kMaxSeqs,
                  "vllm 0.31 and later: requests running at once; 0: engine.max_num_seqs");
  visitor.boolean("long_prefill_token_threshold_adaptive",
                  config.long_prefill_token_threshold_adaptive,
                  "vllm 0.31 and later: the threshold is at least the budget divided by the "
                  "requests that run or wait");
  visitor.integer("prefill_schedule_interval", config.prefill_schedule_interval, 1, 1 << 20,
                  "vllm 0.33 and later: steps from one with prompt tokens to the next, while "
                  "requests decode and the queue is short");
  visitor.boolean("disable_chunked_mm_input", config.disable_chunked_mm_input,
                  "vllm 0.33: no chunk ends inside an image");
}

void visit_fields(FieldVisitor& visitor, SarathiConfig& config) {
  visitor.integer("chunk_size", config.chunk_size, 1, kMaxTokens,
                  "sarathi, simple_chunking: tokens of a step");
  visitor.boolean("enable_dynamic_chunking_schedule", config.enable_dynamic_chunking_schedule,
                  "sarathi: the chunk shrinks in stages as a prompt advances");
  visitor.integer("low_chunk_size", config.low_chunk_size, 1, kMaxTokens,
                  "sarathi, dynamic: chunk of the last stage; a multiple of 32");
  visitor.integer("high_chunk_size", config.high_chunk_size, 1, kMaxTokens,
                  "sarathi, dynamic: chunk of the first stage; a multiple of 32");
  visitor.integer("chunk_schedule_max_tokens", config.chunk_schedule_max_tokens, 1, kMaxTokens,
                  "sarathi, dynamic: prompt tokens that the stages divide");
  visitor.integer("chunk_schedule_stages", config.chunk_schedule_stages, 1, 1024,
                  "sarathi, dynamic: stages");
}

void visit_fields(FieldVisitor& visitor, TensorRtLlmConfig& config) {
  visitor.choice("capacity_scheduler_policy", config.capacity_scheduler_policy, kCapacityPolicies,
                 "tensorrt_llm: which requests hold KV blocks");
  visitor.choice("context_chunking_policy", config.context_chunking_policy, kChunkingPolicies,
                 "tensorrt_llm: how prompts share the tokens of a step");
  visitor.boolean("enable_chunked_context", config.enable_chunked_context,
                  "tensorrt_llm: prompts may be computed in chunks");
  visitor.integer("max_num_tokens", config.max_num_tokens, 1, kMaxTokens,
                  "tensorrt_llm: tokens of a step");
  visitor.integer("chunk_unit_size", config.chunk_unit_size, 0, kMaxTokens,
                  "tensorrt_llm: every chunk but the last is a multiple of this many tokens; "
                  "0: one KV block; must be a multiple of a KV block");
  visitor.integer(
      "batch_wait_timeout_iters", config.batch_wait_timeout_iters, 0, 1 << 20,
      "tensorrt_llm: most steps that prompts wait for others while requests generate; 0: "
      "none");
  visitor.number("batch_wait_max_tokens_ratio", config.batch_wait_max_tokens_ratio, 0, 1,
                 "tensorrt_llm: share of max_num_tokens with which they wait no longer; 0: they "
                 "never wait");
}

void visit_fields(FieldVisitor& visitor, FastGenConfig& config) {
  visitor.integer("max_ragged_batch_size", config.max_ragged_batch_size, 1, kMaxTokens,
                  "fastgen: tokens of a step");
  visitor.integer("max_ragged_sequence_count", config.max_ragged_sequence_count, 1, kMaxSeqs,
                  "fastgen: requests of a step");
  visitor.integer("max_tracked_sequences", config.max_tracked_sequences, 1, kMaxSeqs,
                  "fastgen: requests that hold KV blocks");
}

void visit_fields(FieldVisitor& visitor, LlamaCppConfig& config) {
  visitor.integer("n_batch", config.n_batch, 1, kMaxTokens, "llama_cpp: tokens of a step");
  visitor.boolean("cont_batching", config.cont_batching,
                  "llama_cpp: prompts join the running decodes");
  visitor.number("slot_prompt_similarity", config.slot_prompt_similarity, 0, 1,
                 "llama_cpp: an idle slot with more than this share of a prompt is preferred; "
                 "0: always the one that has been idle for longest");
}

}  // namespace

std::int32_t token_budget(const SchedulerConfig& config) {
  const PolicyInfo* policy = find_policy(config.policy);
  METRONOME_CHECK(policy != nullptr, "the policy was validated before");
  return static_cast<std::int32_t>(
      config.max_num_batched_tokens.value_or(policy->default_token_budget));
}

std::int32_t receive_interval(const SchedulerConfig& config) {
  return config.policy == "sglang" ? config.sglang.scheduler_recv_interval : 1;
}

void visit_fields(FieldVisitor& visitor, SglangConfig& config) {
  visitor.choice("schedule_policy", config.schedule_policy, kSglangPolicies,
                 "sglang: first come first served; longest cached prefix, longest output, heaviest "
                 "part of the radix tree, longest wait for its tokens, or fewest tokens first");
  visitor.integer("chunked_prefill_size", config.chunked_prefill_size, -1, kMaxTokens,
                  "sglang: prompt tokens of a prefill step, a multiple of a KV block; "
                  "0 or -1: prompts are not chunked, and not mixed; default by hardware");
  visitor.integer("max_prefill_tokens", config.max_prefill_tokens, 1, kMaxTokens,
                  "sglang: prompt tokens after which a prefill step takes no further request");
  visitor.boolean("enable_mixed_chunk", config.enable_mixed_chunk,
                  "sglang: running requests decode in prefill steps");
  visitor.number("schedule_conservativeness", config.schedule_conservativeness, 0, 100,
                 "sglang: scales init_new_token_ratio");
  visitor.number("init_new_token_ratio", config.init_new_token_ratio, 0, 1,
                 "sglang: initial share of max_new_tokens that is reserved for a running request");
  visitor.number("min_new_token_ratio_factor", config.min_new_token_ratio_factor, 0, 1,
                 "sglang: the share decays to this part of its initial value");
  visitor.integer("new_token_ratio_decay_steps", config.new_token_ratio_decay_steps, 1, 1 << 20,
                  "sglang: decode steps until the share has decayed");
  visitor.integer("retract_decode_steps", config.retract_decode_steps, 0, 1 << 20,
                  "sglang: decode steps that the share leaves room for after a retraction");
  visitor.integer("clip_max_new_tokens", config.clip_max_new_tokens, 1, kMaxTokens,
                  "sglang: most output tokens that are reserved for a request");
  visitor.integer("scheduler_recv_interval", config.scheduler_recv_interval, 1, 1 << 20,
                  "sglang: decode steps after which new requests are received; a prefill step "
                  "counts 1000, and an idle engine looks all the time");
  visitor.integer("prefill_decode_interval", config.prefill_decode_interval, 0, 1 << 20,
                  "sglang: decode steps after each prefill step");
  visitor.integer("prefill_decode_interval_min_bs", config.prefill_decode_interval_min_bs, 0,
                  kMaxSeqs, "sglang: no such steps while fewer requests than this run");
  visitor.optional_integer("prefill_max_requests", config.prefill_max_requests, 1, kMaxSeqs,
                           "sglang: most requests of a prefill step; null: no limit");
  visitor.boolean("enable_priority_scheduling", config.enable_priority_scheduling,
                  "sglang: requests are admitted by priority");
  visitor.boolean("schedule_low_priority_values_first", config.schedule_low_priority_values_first,
                  "sglang: lower priority values go first, not higher ones");
  visitor.integer("priority_scheduling_preemption_threshold",
                  config.priority_scheduling_preemption_threshold, 0, 1 << 20,
                  "sglang: a request preempts running ones whose priority is worse by more");
  visitor.boolean("disable_priority_preemption", config.disable_priority_preemption,
                  "sglang: a request preempts no running ones");
  visitor.choice("retraction_policy", config.retraction_policy, kRetractionPolicies,
                 "sglang: the request with the fewest outputs is retracted first, or the one with "
                 "the worst priority");
}

void visit_fields(FieldVisitor& visitor, SchedulerConfig& config) {
  std::vector<std::string_view> policies;
  for (const PolicyInfo& policy : all_policies()) policies.push_back(policy.name);
  choose_name(visitor, "policy", config.policy, policies,
              "the scheduling policy: what each step computes");
  visitor.choice("order", config.order, kOrders, "which request leaves the waiting queue first");
  visitor.integer_or_auto("max_num_batched_tokens", config.max_num_batched_tokens, 1, kMaxTokens,
                          "token budget of a step; auto: nano_vllm 16384, slo 8192, "
                          "vllm_prefill_first max_model_len, vllm by hardware, others 2048");
  visitor.integer_or_auto("prefill_chunk_size", config.prefill_chunk_size, 1, kMaxTokens,
                          "most prompt tokens of one request in a step; "
                          "auto: chunked 512, token_budget the budget");
  visitor.integer("max_prefill_chunks_per_step", config.max_prefill_chunks_per_step, 0, kMaxSeqs,
                  "most prefill chunks in a step; 0: no limit");
  visitor.integer("max_num_partial_prefills", config.max_num_partial_prefills, 0, kMaxSeqs,
                  "most prompts in progress; 0: no limit");
  visitor.integer("min_chunk_size", config.min_chunk_size, 1, kMaxTokens,
                  "fewest tokens of a chunk that does not complete its prompt");
  visitor.number("batch_wait_ms", config.batch_wait_ms, 0, kHourMs,
                 "wait this long for the batch to fill");
  visit_fields(visitor, config.slo);
  visit_fields(visitor, config.vllm);
  visit_fields(visitor, config.sarathi);
  visit_fields(visitor, config.sglang);
  visit_fields(visitor, config.tensorrt_llm);
  visit_fields(visitor, config.fastgen);
  visit_fields(visitor, config.llama_cpp);
}

}  // namespace metronome
