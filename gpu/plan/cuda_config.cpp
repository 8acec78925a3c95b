// SPDX-License-Identifier: Apache-2.0
// The keys of the `cuda` section: names, ranges and meaning.
#include "gpu/plan/cuda_config.h"

#include <string_view>

#include "core/config/config_reader.h"

namespace metronome {
namespace {

constexpr std::string_view kInvariances[] = {"none", "chunk", "full"};

}  // namespace

void CudaConfig::visit(FieldVisitor& visitor) {
  visitor.integer("device", device, 0, 63, "number of the GPU, as in the driver");
  visitor.number("gpu_memory_utilization", gpu_memory_utilization, 0.01, 1,
                 "share of the GPU's memory for weights, activations and KV");
  visitor.optional_number(
      "kv_cache_gib", kv_cache_gib, 0.001, 1e6,
      "memory for KV blocks with kv_cache.num_blocks auto, GiB; null: the memory "
      "that gpu_memory_utilization leaves");
  visitor.choice("invariance", invariance, kInvariances,
                 "chunk: a prompt's bits do not depend on its chunks; full: no token's bits depend "
                 "on its batch, slower; none: fastest");
  visitor.boolean("graphs", graphs, "replay decode steps as CUDA graphs");
  visitor.boolean(
      "early_launches", early_launches,
      "launch a kernel's blocks while the previous kernel ends; compute capability 9.0");
  visitor.boolean("wgmma_attention", wgmma_attention,
                  "compute the attention of prompts with wgmma and bulk copies; compute capability "
                  "9.0, blocks of a multiple of 8 tokens");
  visitor.boolean(
      "wgmma_products", wgmma_products,
      "compute linear layers of prompts, with the activation, by wgmma and bulk copies; compute "
      "capability 9.0");
  visitor.boolean("fused_decodes", fused_decodes,
                  "for up to 16 decodes, compute norms and activations in the kernels of products");
  visitor.integer("max_pass_tokens", max_pass_tokens, 16, 131072,
                  "most tokens of a forward pass; larger steps take several passes");
}

}  // namespace metronome
