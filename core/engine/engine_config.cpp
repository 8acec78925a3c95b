// SPDX-License-Identifier: Apache-2.0
// The keys of the `engine` and `kv_cache` sections: names, ranges and meaning.
#include "core/engine/engine_config.h"

#include <limits>
#include <string_view>

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"
#include "core/engine/step_plan.h"

namespace metronome {
namespace {

constexpr std::string_view kStepShapes[] = {"auto", "mixed", "separate"};
constexpr std::string_view kBackends[] = {"paged", "slotted"};
constexpr std::string_view kAllocations[] = {"incremental", "eager"};

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

}  // namespace

void visit_fields(FieldVisitor& visitor, EngineConfig& config) {
  visitor.integer("max_num_seqs", config.max_num_seqs, 1, kMaxSeqs,
                  "most requests that run at once; vllm, sglang: by hardware");
  visitor.integer_or_auto("max_model_len", config.max_model_len, 1, kMaxTokens,
                          "prompt + output tokens of a request; auto: the model's limit");
  visitor.choice(
      "step_shape", config.step_shape, kStepShapes,
      "one forward pass per step, or separate passes for decodes and prefills; auto: the policy's");
  visitor.integer("async_depth", config.async_depth, 1, kMaxInFlight,
                  "steps in flight; 2 plans the next step while the device works; vllm, sglang: by "
                  "hardware");
  visitor.integer("max_waiting_requests", config.max_waiting_requests, 0, kMaxInt32,
                  "most requests that may wait between steps; more are refused; 0: no limit");
}

void visit_fields(FieldVisitor& visitor, KvCacheConfig& config) {
  visitor.choice("backend", config.backend, kBackends,
                 "blocks, or max_num_seqs slots of max_model_len tokens");
  visitor.integer("block_size", config.block_size, 1, 65536,
                  "tokens a block; paged; sglang: by hardware; vllm, where a model has recurrent "
                  "states: the block is the least multiple that holds a state");
  visitor.integer_or_auto("num_blocks", config.num_blocks, 1, kMaxBlocks,
                          "blocks in the pool; auto: as many as fit in device memory; paged");
  visitor.choice(
      "allocation", config.allocation, kAllocations,
      "allocate blocks for each chunk, or for the whole prompt with its first chunk; paged");
  visitor.optional_number("watermark", config.watermark, 0, 0.99,
                          "share of blocks kept free when a request is admitted; "
                          "null: 0.01 for the policies of Sarathi-Serve, 0 for others; paged");
  visitor.boolean_or_auto("enable_prefix_caching", config.enable_prefix_caching,
                          "share the blocks of equal prefixes; auto: as in the engine that the "
                          "policy reproduces, off for policies of our own; paged");
  visitor.integer("sliding_window", config.sliding_window, 0, kMaxTokens,
                  "window of further groups of layers with separate blocks, tokens; 0: none; "
                  "policy vllm");
  visitor.integer_or_auto(
      "num_window_groups", config.num_window_groups, 1, kMaxWindowGroups,
      "groups with that window; auto, and always beside states: as vLLM groups "
      "the model's layers, and a block then holds the layers of one group; 1: a "
      "block holds all layers");
  visitor.integer_or_auto("prefix_cache_retention_interval", config.prefix_cache_retention_interval,
                          -1, kMaxTokens,
                          "tokens between the retained prefixes of those groups; 0: only those of "
                          "whole prompts and of shared prefixes; -1: every block; auto: 0 from "
                          "vllm 0.29 on, else -1");
}

}  // namespace metronome
