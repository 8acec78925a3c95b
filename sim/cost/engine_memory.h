// SPDX-License-Identifier: Apache-2.0
// A serving engine keeps a part of its share of a device's memory from weights and KV blocks, for
// activations, CUDA graphs and its runtime. docs/internals/cost_models.md has the logs it was set
// by.
#pragma once

#include "core/engine/policies/registry.h"
#include "core/model/model_config.h"

namespace metronome {

struct EngineMemorySettings {
  KvMemory rule = KvMemory::Plain;
  int vllm_minor = 0;            // 33 for vLLM 0.33; 0: its first engine
  bool looks_up_drafts = false;  // drafts of n-grams, or of a draft model
  std::int64_t tensor_parallel_size = 1;
  std::int64_t num_tokens = 0;        // of the largest step
  std::int64_t num_seqs = 0;          // of the largest step
  std::int64_t max_graph_tokens = 0;  // 0: no CUDA graphs
  double gpu_memory_utilization = 0.9;
};

// GiB of one device, so that KV blocks get `gpu_memory_utilization` times its memory less the
// weights and this. TensorRT-LLM takes its share of what weights leave, which makes it negative for
// large weights.
double reserved_memory_gib(const EngineMemorySettings& settings, const ModelConfig& model);

}  // namespace metronome
