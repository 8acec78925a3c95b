// SPDX-License-Identifier: Apache-2.0
// vLLM runs the largest step, and measures.
#include <algorithm>

#include "core/base/real.h"
#include "core/engine/memory_facts.h"
#include "engines/vllm/product.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

// Graphs of every size up to 512 tokens, which it estimates since 0.20: 0.7 to 1.6 GiB for most
// models.
constexpr int kFirstGraphEstimateMinor = 20;
constexpr double kGraphsGib = 1.0;
constexpr double kGraphTokens = 512;

// The second model runner, from here on for all models, estimates graphs, too.
constexpr int kFirstOnlyV2Minor = 29;
constexpr int kFirstFullSamplingMinor = 33;  // it samples with every limit of the probabilities

// The second model runner came model by model (vllm/config/vllm.py, use_v2_model_runner). It has no
// drafts of n-grams and draft models.
bool runs_v2(const MemoryFacts& facts, int minor, const ModelConfig& model) {
  if (facts.looks_up_drafts) return false;
  if (minor >= kFirstOnlyV2Minor) return true;
  if (model.n_experts > 0 || model.has_states()) return false;
  if (minor >= 25) return true;
  const bool is_qwen3 = model.architecture == "Qwen3ForCausalLM";
  const bool is_early = is_qwen3 || model.architecture == "LlamaForCausalLM" ||
                        model.architecture == "MistralForCausalLM";
  if (minor == 24) return is_early;
  return !model.is_quantised() && ((minor == 23 && is_early) || (minor == 22 && is_qwen3));
}

double logits_of(const MemoryFacts& facts, const ModelConfig& model) {
  return real(facts.num_seqs) * real(model.vocab_size);
}

// Images as large as the model takes fill the encoder's budget, the larger of a step and of one
// (MultiModalBudget in vllm/multimodal/encoder_budget.py).
std::int64_t profiled_image_tokens(const MemoryFacts& facts, const ModelConfig& model) {
  if (model.vision.is_empty() || facts.image_tokens == 0) return 0;
  return std::max<std::int64_t>(facts.num_tokens / facts.image_tokens, 1) * facts.image_tokens;
}

// Bytes that the pass over images leaves for that over text: embeddings, and pixels in the first
// runner,
// which holds its inputs (profile_run in vllm/v1/worker/gpu_model_runner.py and in gpu/).
double kept_image_bytes(const ModelConfig& model, std::int64_t num_tokens, bool is_v2) {
  const VisionTower& tower = model.vision;
  const double embeddings = 2 * real(num_tokens * tower.out_dim * tower.features_per_token());
  const std::int64_t num_patches = num_tokens * tower.merge_size * tower.merge_size;
  return embeddings + (is_v2 ? 0 : 2 * real(num_patches * tower.patch_inputs()));
}

// All but graphs, with `sampling_bytes` at the peak of sampling.
double step_gib(const MemoryFacts& facts, const ModelConfig& model, double sampling_bytes,
                double kept_bytes, bool is_v2) {
  double bytes = std::max(forward_bytes(facts, model), sampling_bytes);
  const bool has_expert_buffers = model.expert_format != WeightFormat::Mxfp4;
  if (has_expert_buffers) bytes += expert_bytes(facts, model);
  if (const std::int64_t images = profiled_image_tokens(facts, model); images > 0) {
    bytes = std::max(bytes + kept_image_bytes(model, images, is_v2),
                     vision_bytes(facts, model, images));
  }
  return runtime_gib(facts) + (bytes + kept_bytes) / kGib;
}

}  // namespace

double vllm_reserved_gib(const MemoryFacts& facts, const ModelConfig& model) {
  const int minor = facts.scheduler.settings<VllmConfig>().minor();
  const bool is_v2 = runs_v2(facts, minor, model);
  const double logits = logits_of(facts, model);
  // The logits in 16 bits, and copies in 32.
  const bool has_copies = !is_v2 || minor >= kFirstFullSamplingMinor;
  const double sampling = has_copies ? 14 * logits + 0.18 * kGib : 2 * logits;
  // The second runner counts output tokens by request and token of the vocabulary, for penalties.
  double gib = step_gib(facts, model, sampling, is_v2 ? 4 * logits : 0, is_v2);
  const int first_estimate = is_v2 ? kFirstOnlyV2Minor : kFirstGraphEstimateMinor;
  if (minor >= first_estimate) {
    gib += kGraphsGib * std::min(1.0, real(facts.max_graph_tokens) / kGraphTokens);
  }
  return gib;
}

double vllm_v0_reserved_gib(const MemoryFacts& facts, const ModelConfig& model) {
  // Its sampler sorts: values, their places, probabilities and their sums.
  return step_gib(facts, model, 38 * logits_of(facts, model), 0, false);
}

}  // namespace metronome
