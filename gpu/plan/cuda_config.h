// The `cuda` section of a scenario.
#pragma once

#include <cstdint>
#include <optional>

#include "core/scenario/backend_sections.h"

namespace metronome {

// What a token's bits may depend on beside its own context, on one GPU and one build.
enum class Invariance : std::uint8_t {
  None,   // the batch it is computed in
  Chunk,  // prompts: on nothing; they are computed alike however they are cut into chunks
  Full,   // on nothing: decodes are computed like prompts of one token, so that a request that is
          // preempted and computed anew gets the very same tokens
};

struct CudaConfig final : BackendSectionOf<CudaConfig> {
  std::int32_t device = 0;              // of those the driver lists
  double gpu_memory_utilization = 0.9;  // share of the GPU's memory for everything
  std::optional<double> kv_cache_gib;   // memory for KV where num_blocks is auto
  Invariance invariance = Invariance::Chunk;
  bool graphs = true;            // decode steps are replayed as CUDA graphs
  bool early_launches = false;   // kernels start while the one in front ends
  bool wgmma_attention = false;  // prompts attend by Hopper's own instructions
  bool wgmma_products = false;   // linear layers of prompts by Hopper's own instructions
  bool fused_decodes = false;    // norms and activations of few decodes are inside of the products
  // Tokens of one forward pass at most: larger steps are computed in several, one behind the other.
  std::int32_t max_pass_tokens = 8192;

  const char* key() const override { return "cuda"; }
  const char* doc() const override { return "backend cuda"; }
  void visit(FieldVisitor& visitor) override;
};

}  // namespace metronome
