// SPDX-License-Identifier: Apache-2.0
// The weights of a model, from a Hugging Face folder or a seeded draw. Executors read them once and
// choose their own layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "models/weights/safetensors.h"
#include "models/weights/tensor_type.h"

namespace metronome {

enum class WeightRole : std::uint8_t {
  Linear,
  Embedding,
  Norm,
  Bias,
  GatedNorm,    // of linear attention: a norm that scales by its weight in every family
  Convolution,  // of linear attention: one row of taps per channel, stored [rows, 1, cols]
};

// One tensor of a model. A linear layer maps `cols` inputs to `rows` outputs. An embedding has one
// row per token or position. Norms and biases are one row.
struct WeightSpec {
  std::string name;  // Hugging Face's for Llama: "model.layers.0.self_attn.q_proj.weight"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  WeightRole role = WeightRole::Linear;

  bool operator==(const WeightSpec&) const = default;
};

// Every tensor of a model, in order of use. Names are those of Llama's checkpoints in every family;
// experts are "mlp.experts.E.up_proj", their router is "mlp.gate", the bias of its choice is
// "mlp.gate.e_score_correction_bias", an expert for all tokens is "mlp.shared_expert.up_proj".
// Latent attention has DeepSeek's names, attention sinks are "self_attn.sinks". With gated
// attention there is a "self_attn.gate_proj". A layer with linear attention has "linear_attn."
// in_proj_q, _k, _v, _z (the output's gate), _b (write strengths) and _a (decays), conv1d, A_log,
// dt_bias, norm and out_proj. With tied embeddings there is no "lm_head.weight".
std::vector<WeightSpec> weight_specs(const ModelConfig& model);
// Calls visit(spec) for each of these, in the same order, without a list of them: a hostile
// configuration may have millions.
void for_each_weight(const ModelConfig& model,
                     const std::function<void(const WeightSpec& spec)>& visit);

// One tensor of weight_specs(model). `name` is the part after "model.layers.LAYER."
// ("mlp.up_proj"). For layer -1 it is the whole name without ".weight" ("model.norm", "lm_head").
WeightSpec weight_spec(const ModelConfig& model, std::int64_t layer, const std::string& name);
// The bias of the layer or norm of that name.
WeightSpec bias_spec(const ModelConfig& model, std::int64_t layer, const std::string& name);
// A tensor whose name ends in neither of both: "linear_attn.A_log", "self_attn.sinks".
WeightSpec plain_spec(const ModelConfig& model, std::int64_t layer, const std::string& name);

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // The stored type of the tensor: not Other. `cols` of a quantised one is a multiple of its block.
  virtual TensorType type(const WeightSpec& spec) const = 0;
  // Writes rows [row_begin, row_end) to out: (row_end - row_begin) * cols exact values.
  // Thread-safe.
  virtual void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
                    float* out) const = 0;
  // Copies the blocks of rows [row_begin, row_end) of a quantised tensor to out, which has
  // stored_bytes(type(spec), (row_end - row_begin) * cols) bytes. Thread-safe. The default is for
  // sources without quantised tensors and refuses (InvariantError).
  virtual void read_blocks(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
                           std::byte* out) const;
  // Names of stored tensors that the model does not use, without those that say nothing about it.
  // They suggest that the configuration belongs to another model.
  virtual std::vector<std::string> unused_tensors() const { return {}; }
};

// The weights in a model folder: model.safetensors, or else all files that
// model.safetensors.index.json names. Throws ConfigError naming the file. It names the tensor if
// one is missing, has another shape, or has a dtype other than F32, F16 and BF16. Unused tensors
// are ignored, as in transformers. stored_tensor.h says how families name and store tensors. Gemma
// 3's and Qwen3.5's multimodal files prefix the names of their language model
// ("language_model.model." or "model.language_model."); both prefixes are accepted.
std::unique_ptr<WeightSource> open_model_folder(const std::string& folder,
                                                const ModelConfig& model);

// Weights drawn from a seed: bfloat16, or float32 with bytes_per_weight 4. Element i of a tensor
// (row-major) is random_weight(key, i, scale) with key = random_weight_key(seed, name). So any
// executor on any device can draw any part with identical bits. Linear layers and embeddings are
// uniform with variance 1/cols, and so are biases. Norms scale by one (weight 1, or 0 with
// unit-offset norms) and have biases of 0.
std::unique_ptr<WeightSource> random_weights(const ModelConfig& model, std::uint64_t seed);

// The first draw of Rng(seed, name).
std::uint64_t random_weight_key(std::uint64_t seed, const std::string& name);
// sqrt(3 / cols), in float: the bound of a uniform draw whose variance is 1/cols.
float random_weight_scale(std::int64_t cols);
// In [-scale, scale), before rounding to the stored type: the upper 24 bits of
// mix64(key + element), as a signed fraction, times scale.
float random_weight(std::uint64_t key, std::uint64_t element, float scale);

}  // namespace metronome
