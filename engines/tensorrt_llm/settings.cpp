// SPDX-License-Identifier: Apache-2.0
#include "engines/tensorrt_llm/settings.h"

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

constexpr std::string_view kCapacityPolicies[] = {"GUARANTEED_NO_EVICT", "MAX_UTILIZATION",
                                                  "STATIC_BATCH"};
constexpr std::string_view kChunkingPolicies[] = {"FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"};

}  // namespace

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

}  // namespace metronome
