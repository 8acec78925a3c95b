// SPDX-License-Identifier: Apache-2.0
#include "engines/sglang/settings.h"

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

constexpr std::string_view kRetractionPolicies[] = {"length", "priority"};

}  // namespace

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

}  // namespace metronome
