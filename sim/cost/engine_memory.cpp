// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/engine_memory.h"

#include <algorithm>

#include "core/base/real.h"
#include "sim/cost/device_share.h"

namespace metronome {
namespace {

// The runtime holds the context, libraries, and buffers of collectives. Logs of vLLM have 0.13 to
// 0.46 GiB on one device, 0.95 to 2.2 on one of several.
constexpr double kRuntimeGib = 0.25;
constexpr double kParallelRuntimeGib = 1.5;
// SGLang takes its share of the memory that is free before it loads weights. Logs miss 0.4 to 0.8
// GiB on one device, and 1.8 on one of eight.
constexpr double kSglangRuntimeGib = 0.6;
constexpr double kSglangParallelRuntimeGib = 1.5;

// Graphs of every size up to 512 tokens, which vLLM estimates since 0.20: 0.7 to 1.6 GiB for most
// models.
constexpr int kFirstGraphEstimateMinor = 20;
constexpr double kGraphsGib = 1.0;
constexpr double kGraphTokens = 512;

// The second model runner, from here on for all models, estimates graphs, too.
constexpr int kFirstOnlyV2Minor = 29;
constexpr int kFirstFullSamplingMinor = 33;  // it samples with every limit of the probabilities

constexpr double kVisionGib = 0.3;  // a vision tower's pass, beside the peak

double runtime_gib(const EngineMemorySettings& settings) {
  return settings.tensor_parallel_size > 1 ? kParallelRuntimeGib : kRuntimeGib;
}

// ---- vLLM's model runners ----

// The second model runner came model by model (vllm/config/vllm.py, use_v2_model_runner). It has no
// drafts of n-grams and draft models.
bool runs_v2(const EngineMemorySettings& settings, const ModelConfig& model) {
  const int minor = settings.vllm_minor;
  if (settings.looks_up_drafts) return false;
  if (minor >= kFirstOnlyV2Minor) return true;
  if (model.n_experts > 0 || !model.linear_attention.is_empty()) return false;
  if (minor >= 25) return true;
  const bool is_qwen3 = model.architecture == "Qwen3ForCausalLM";
  const bool is_early = is_qwen3 || model.architecture == "LlamaForCausalLM" ||
                        model.architecture == "MistralForCausalLM";
  if (minor == 24) return is_early;
  return !model.is_quantised() && ((minor == 23 && is_early) || (minor == 22 && is_qwen3));
}

// ---- the largest step ----

// Peak of its pass without routed experts: gate, up and their product, and four vectors of the
// hidden dimension, in 16 bits.
double forward_bytes(const EngineMemorySettings& settings, const ModelConfig& model) {
  const bool has_dense_mlp = model.n_moe_layers() < model.n_layers;
  const std::int64_t width =
      std::max(model.shared_expert_ffn_dim, has_dense_mlp ? model.ffn_dim : 0);
  const double mlp = 6 * real(width) / real(settings.tensor_parallel_size);
  return real(settings.num_tokens) * (mlp + 8 * real(model.hidden_dim));
}

// Buffers of the kernels of routed experts, which stay: the larger of gate and up and of the
// result, and the product of the former, for each expert of each token.
double expert_bytes(const EngineMemorySettings& settings, const ModelConfig& model) {
  const double width = real(model.expert_ffn_dim) / real(settings.tensor_parallel_size);
  const double rows = real(settings.num_tokens * model.n_experts_per_token);
  return 2 * rows * (std::max(2 * width, real(model.hidden_dim)) + width);
}

// Peak of its sampling: the logits in 16 bits, and copies in 32.
double sampling_bytes(const EngineMemorySettings& settings, const ModelConfig& model) {
  const double logits = real(settings.num_seqs) * real(model.vocab_size);
  // Sorted: values, their places, probabilities and their sums.
  if (settings.rule == KvMemory::VllmV0) return 38 * logits;
  const bool has_copies = settings.vllm_minor >= kFirstFullSamplingMinor;
  if (runs_v2(settings, model) && !has_copies) return 2 * logits;
  return 14 * logits + 0.18 * kGib;
}

double vllm_gib(const EngineMemorySettings& settings, const ModelConfig& model) {
  double bytes = std::max(forward_bytes(settings, model), sampling_bytes(settings, model));
  const bool has_expert_buffers = model.expert_format != WeightFormat::Mxfp4;
  if (has_expert_buffers) bytes += expert_bytes(settings, model);
  const bool is_v2 = runs_v2(settings, model);
  // The second runner counts output tokens by request and token of the vocabulary, for penalties.
  if (is_v2) bytes += 4 * real(settings.num_seqs) * real(model.vocab_size);
  double gib = runtime_gib(settings) + bytes / kGib;
  if (!model.vision.is_empty()) gib += kVisionGib;
  const int first_estimate = is_v2 ? kFirstOnlyV2Minor : kFirstGraphEstimateMinor;
  if (settings.vllm_minor >= first_estimate) {
    gib += kGraphsGib * std::min(1.0, real(settings.max_graph_tokens) / kGraphTokens);
  }
  return gib;
}

}  // namespace

double reserved_memory_gib(const EngineMemorySettings& settings, const ModelConfig& model) {
  const double share = settings.gpu_memory_utilization;
  const bool is_parallel = settings.tensor_parallel_size > 1;
  switch (settings.rule) {
    case KvMemory::Plain: break;
    case KvMemory::Vllm:
    case KvMemory::VllmV0: return vllm_gib(settings, model);
    case KvMemory::Sglang:
      return share * (is_parallel ? kSglangParallelRuntimeGib : kSglangRuntimeGib);
    case KvMemory::TensorRtLlm: {
      const double step = (forward_bytes(settings, model) + expert_bytes(settings, model)) / kGib;
      const double weights = device_weight_bytes(model, settings.tensor_parallel_size) / kGib;
      return share * (runtime_gib(settings) + step) - (1 - share) * weights;
    }
  }
  return kPlainReservedGib;
}

}  // namespace metronome
