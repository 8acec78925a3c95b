// SPDX-License-Identifier: Apache-2.0
// The keys of `scheduler` that TensorRT-LLM has.
#pragma once

#include <cstdint>

namespace metronome {

class FieldVisitor;

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

void visit_fields(FieldVisitor& visitor, TensorRtLlmConfig& config);

}  // namespace metronome
