// SPDX-License-Identifier: Apache-2.0
// The `cuda` section of a scenario.
#pragma once

#include <cstdint>
#include <optional>

#include "core/scenario/backend_sections.h"

namespace metronome {

// Things that a token's bits may depend on beside its own context, with one GPU and one build.
enum class Invariance : std::uint8_t {
  None,   // on the batch it is computed in
  Chunk,  // prompts: on nothing; the division into chunks does not matter
  // On nothing. Decodes are computed like prompts of one token, so a request that is preempted and
  // recomputed gets the same tokens.
  Full,
};

struct CudaConfig final : BackendSectionOf<CudaConfig> {
  std::int32_t device = 0;              // index in the driver's list
  double gpu_memory_utilization = 0.9;  // share of the GPU's memory for everything
  std::optional<double> kv_cache_gib;   // memory for KV if num_blocks is auto
  Invariance invariance = Invariance::Chunk;
  bool graphs = true;            // decode steps are replayed as CUDA graphs
  bool early_launches = false;   // a kernel starts while the one before it ends
  bool wgmma_attention = false;  // prompts use launch_wgmma_attention
  bool wgmma_products = false;   // linear layers of prompts use launch_prefill_gemm
  bool fused_decodes = false;    // products of few decodes include norms and activations
  // Tokens of one forward pass at most. Larger steps run as several passes in sequence.
  std::int32_t max_pass_tokens = 8192;

  const char* key() const override { return "cuda"; }
  const char* doc() const override { return "backend cuda"; }
  void visit(FieldVisitor& visitor) override;
};

}  // namespace metronome
