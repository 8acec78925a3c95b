// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kernel_rules.h"
#include "engines/vllm/product.h"

namespace metronome {
namespace {

// On Blackwell it fuses norms with all-reduces: FlashInfer's kernels, which are TensorRT-LLM's.
bool fuses_reduces(const ModelConfig& /*model*/, double sm_version) {
  return is_data_centre_blackwell(sm_version);
}

// PassConfig.fi_allreduce_fusion_max_size_mb.
double max_fused_bytes(const ModelConfig& /*model*/, std::int64_t tp) {
  constexpr double kMiB = 1 << 20;
  return (tp == 2 ? 64 : tp == 4 ? 32 : tp == 8 ? 1 : 0) * kMiB;
}

}  // namespace

constexpr KernelRules kVllmKernels = {
    .table_name = "vllm", .fuses_reduces = fuses_reduces, .max_fused_bytes = max_fused_bytes};

}  // namespace metronome
