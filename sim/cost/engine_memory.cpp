#include "sim/cost/engine_memory.h"

#include <algorithm>

#include "sim/cost/device_share.h"

namespace metronome {
namespace {

// What the runtime holds: the context, libraries, and buffers of collectives. Logs of H100, A100
// and H200 have 0.13 to 0.46 GiB on one device, 0.95 to 2.2 on one of several.
constexpr double kVllmRuntimeGib = 0.25;
constexpr double kVllmParallelRuntimeGib = 1.5;
// SGLang takes its share of the memory that is free before it loads weights. Logs miss 0.4 to 0.8
// GiB on one device, and 1.8 on one of eight.
constexpr double kSglangRuntimeGib = 0.6;
constexpr double kSglangParallelRuntimeGib = 1.5;

// Graphs of every size up to 512 tokens, which vLLM takes off since 0.21: it estimates 0.7 to 1.6
// GiB for most models.
constexpr int kFirstGraphEstimateMinor = 21;
constexpr double kGraphsGib = 1.0;
constexpr double kGraphTokens = 512;

constexpr int kFirstRunnerV2Minor = 29;
constexpr double kVisionGib = 0.3;  // a vision tower's pass, beside the peak

double real(std::int64_t n) { return static_cast<double>(n); }

// Peak of a pass of that many tokens, without routed experts: gate, up and their product, and four
// vectors of the hidden dimension, in 16 bits.
double forward_bytes(const EngineLoad& load, const ModelConfig& model) {
  const std::int64_t width =
      model.n_experts > 0 ? std::max(model.shared_expert_ffn_dim, std::int64_t{0}) : model.ffn_dim;
  const double mlp = 6 * real(width) / real(load.tensor_parallel_size);
  return real(load.num_tokens) * (mlp + 8 * real(model.hidden_dim));
}

// Buffers of the kernels of routed experts, which stay: the larger of gate and up and of the
// result, and the product of the former, for each expert of each token. The kernels of mxfp4 have
// none.
double expert_bytes(const EngineLoad& load, const ModelConfig& model) {
  if (model.n_experts == 0 || model.expert_format == WeightFormat::Mxfp4) return 0;
  const double width = real(model.expert_ffn_dim) / real(load.tensor_parallel_size);
  const double rows = real(load.num_tokens * model.n_experts_per_token);
  return 2 * rows * (std::max(2 * width, real(model.hidden_dim)) + width);
}

// Peak of sampling, and tables of the sampler that stay.
double sampling_bytes(const EngineLoad& load, const ModelConfig& model) {
  const double logits = real(load.num_seqs) * real(model.vocab_size);
  // Sorted: values, their places, probabilities and their sums.
  if (load.rule == KvMemory::VllmV0) return 38 * logits;
  // Logits in 16 bits, and three copies in 32.
  if (load.vllm_minor < kFirstRunnerV2Minor) return 14 * logits + 0.18 * kGib;
  return 2 * logits;
}

double vllm_gib(const EngineLoad& load, const ModelConfig& model) {
  const bool is_parallel = load.tensor_parallel_size > 1;
  double gib = is_parallel ? kVllmParallelRuntimeGib : kVllmRuntimeGib;
  double bytes = std::max(forward_bytes(load, model), sampling_bytes(load, model));
  bytes += expert_bytes(load, model);
  if (load.rule == KvMemory::Vllm && load.vllm_minor >= kFirstRunnerV2Minor) {
    // Counts of output tokens for penalties, by request and token of the vocabulary.
    bytes += 4 * real(load.num_seqs) * real(model.vocab_size);
  }
  if (!model.vision.is_empty()) gib += kVisionGib;
  if (load.rule == KvMemory::Vllm && load.vllm_minor >= kFirstGraphEstimateMinor) {
    gib += kGraphsGib * std::min(1.0, real(load.max_graph_tokens) / kGraphTokens);
  }
  return gib + bytes / kGib;
}

}  // namespace

double reserved_memory_gib(const EngineLoad& load, const ModelConfig& model) {
  const bool is_parallel = load.tensor_parallel_size > 1;
  const double share = load.gpu_memory_utilization;
  switch (load.rule) {
    case KvMemory::Plain: break;
    case KvMemory::Vllm:
    case KvMemory::VllmV0: return vllm_gib(load, model);
    case KvMemory::Sglang:
      return share * (is_parallel ? kSglangParallelRuntimeGib : kSglangRuntimeGib);
    case KvMemory::TensorRtLlm: {
      const double runtime = is_parallel ? kVllmParallelRuntimeGib : kVllmRuntimeGib;
      const double peak = runtime + (forward_bytes(load, model) + expert_bytes(load, model)) / kGib;
      const double weights = device_weight_bytes(model, load.tensor_parallel_size) / kGib;
      return share * peak - (1 - share) * weights;
    }
  }
  return kPlainReservedGib;
}

}  // namespace metronome
