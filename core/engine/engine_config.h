// SPDX-License-Identifier: Apache-2.0
// The `engine` and `kv_cache` sections of a scenario.
#pragma once

#include <cstdint>
#include <optional>

#include "core/engine/engine_choices.h"

namespace metronome {

class FieldVisitor;

struct EngineConfig {
  std::int32_t max_num_seqs = 256;            // requests running at once
  std::optional<std::int64_t> max_model_len;  // prompt + output tokens; auto = the model's limit
  StepShape step_shape = StepShape::Auto;     // auto = mixed, separate for single_prefill
  std::int32_t async_depth = 1;               // steps in flight: 1 or 2
  std::int32_t max_waiting_requests = 0;      // reject beyond this many in the queue; 0 = no limit
};

constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 26;
constexpr std::int64_t kMaxWindowGroups = 64;

struct KvCacheConfig {
  KvBackend backend = KvBackend::Paged;
  std::int32_t block_size = 16;            // tokens; paged only
  std::optional<std::int64_t> num_blocks;  // auto = what the executor's memory allows
  KvAllocation allocation = KvAllocation::Incremental;
  // Share of blocks kept free when a request is admitted; null = the policy's default.
  std::optional<double> watermark;
  std::optional<bool> enable_prefix_caching;  // auto = as in the policy's engine
  std::int32_t sliding_window = 0;            // tokens; of further layer groups of vllm
  // Layer groups with that window, each with a block table of its own; auto = as vLLM groups the
  // model's layers, and blocks then hold the layers of one group.
  std::optional<std::int64_t> num_window_groups = 1;
  // Tokens between retained blocks of these groups; -1 = every block, auto = as in the
  // policy's engine. See KvCacheLayout::retention_interval.
  std::optional<std::int64_t> prefix_cache_retention_interval;
};

// Keys, ranges and meaning.
void visit_fields(FieldVisitor& visitor, EngineConfig& config);
void visit_fields(FieldVisitor& visitor, KvCacheConfig& config);

}  // namespace metronome
