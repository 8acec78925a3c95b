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

void visit_slo(FieldVisitor& visitor, SloPolicyConfig& config) {
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

}  // namespace

std::int32_t token_budget(const SchedulerConfig& config) {
  const PolicyInfo* policy = find_policy(config.policy);
  METRONOME_CHECK(policy != nullptr, "the policy was validated before");
  return static_cast<std::int32_t>(
      config.max_num_batched_tokens.value_or(policy->default_token_budget));
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
  visit_slo(visitor, config.slo);
  visit_settings(visitor, config.policies);
}

}  // namespace metronome
