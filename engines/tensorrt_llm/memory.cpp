// SPDX-License-Identifier: Apache-2.0
#include "core/base/real.h"
#include "core/engine/memory_facts.h"
#include "engines/tensorrt_llm/product.h"
#include "engines/tensorrt_llm/settings.h"

namespace metronome {

// TensorRT-LLM takes its share of what weights and the largest step leave, which makes this
// negative for large weights.
double tensorrt_llm_reserved_gib(const MemoryFacts& given, const ModelConfig& model) {
  MemoryFacts facts = given;
  facts.num_tokens = facts.scheduler.settings<TensorRtLlmConfig>().max_num_tokens;
  const double share = facts.gpu_memory_utilization;
  const double step = (forward_bytes(facts, model) + expert_bytes(facts, model)) / kGib;
  return share * (runtime_gib(facts) + step) - (1 - share) * (facts.weight_bytes / kGib);
}

}  // namespace metronome
