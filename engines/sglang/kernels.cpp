// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "core/base/real.h"
#include "core/engine/kernel_rules.h"
#include "core/model/model_config.h"
#include "engines/sglang/product.h"

namespace metronome {
namespace {

// For some models on Hopper and Blackwell it fuses norms with all-reduces: FlashInfer's kernels,
// which are TensorRT-LLM's. _FLASHINFER_ALLREDUCE_FUSION_ARCHS of 0.5.23, as far as this program
// knows them.
bool fuses_reduces(const ModelConfig& model, double sm_version) {
  constexpr std::string_view kFused[] = {
      "DeepseekV3ForCausalLM",
      "GptOssForCausalLM",
      "KimiK25ForConditionalGeneration",
      "Qwen3MoeForCausalLM",
      "Qwen3NextForCausalLM",
      "Qwen3VLMoeForConditionalGeneration",
      "Qwen3_5ForConditionalGeneration",
      "Qwen3_5MoeForConditionalGeneration",
  };
  const bool has_kernels = is_hopper(sm_version) || is_data_centre_blackwell(sm_version);
  return has_kernels &&
         std::find(std::begin(kFused), std::end(kFused), model.architecture) != std::end(kFused);
}

// 2,048 tokens in 16 bits, the max_token_num of its workspace.
double max_fused_bytes(const ModelConfig& model, std::int64_t /*tp*/) {
  constexpr double kWorkspaceTokens = 2048;
  return kWorkspaceTokens * real(model.hidden_dim) * 2;
}

// Its tables have several side by side; it runs FlashAttention 3 on Hopper, and TensorRT-LLM's or
// FlashInfer's on Blackwell.
std::span<const std::string_view> attention_kernels(double sm_version) {
  static constexpr std::string_view kOnHopper[] = {"fa3"};
  static constexpr std::string_view kOnBlackwell[] = {"trtllm_mha", "flashinfer"};
  if (is_hopper(sm_version)) return kOnHopper;
  if (is_data_centre_blackwell(sm_version)) return kOnBlackwell;
  return {};
}

}  // namespace

constexpr KernelRules kSglangKernels = {.table_name = "sglang",
                                        .fuses_reduces = fuses_reduces,
                                        .max_fused_bytes = max_fused_bytes,
                                        .attention_kernels = attention_kernels};

}  // namespace metronome
