// SPDX-License-Identifier: Apache-2.0
// The proposer of drafts: a draft model, or a layer that reads the target model's hidden states.
//
//   draft_model  a model of its own (speculative.model): all its layers, embedding and head.
//   eagle        EAGLE (arXiv 2401.15077; vllm/model_executor/models/llama_eagle.py): a projection
//                of 2 h x h in front, which every device has whole, and one layer of the target's
//                hidden size, heads and MLP, dense and in bf16. Embedding and head are the
//                target's. EAGLE-3 differs: h x 3 h in front of the first pass, QKV of 2 h, a head
//                of its own over fewer tokens. It has as many layers and passes.
//   mtp          A module of DeepSeek-V3 (arXiv 2412.19437, section 2.2): the same projection, and
//                one of the target's layers, with experts if the target has any and in the format
//                of its weights. Embedding and head are the target's. The module runs once for each
//                draft. Its norms in front of the projection count nothing.
//   ngram        no drafter: a lookup in the texts, on the host.
#pragma once

#include <cstdint>

#include "core/model/model_config.h"
#include "core/scenario/speculative_config.h"
#include "sim/cost/device_share.h"

namespace metronome {

struct DrafterModel {
  ModelConfig model;  // of eagle and mtp: one layer, and the target's embedding and head
  std::int32_t tensor_parallel_size = 1;
  std::int64_t input_params = 0;  // weights of the projection in front of the layer
  bool has_own_tables = false;    // embedding and head
  // Tokens of each chunk in its first pass, beyond those of the step: a draft model also computes
  // the token that was sampled (vLLM's max_num_new_slots_for_drafting).
  std::int32_t num_more_tokens = 0;

  // On each device.
  DraftMemory memory() const;
};

// The layer that eagle or mtp adds to the target, on one device.
DrafterModel layer_drafter(SpeculativeMethod method, const ModelConfig& target);

}  // namespace metronome
