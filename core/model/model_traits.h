// SPDX-License-Identifier: Apache-2.0
// Traits that the model code of a family fixes: the parts of a decoder layer, and how they compute.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

enum class Activation : std::uint8_t {
  Silu,
  GeluTanh,       // the tanh approximation
  Gelu,           // with the error function
  ClampedSwiglu,  // gpt-oss: gate * sigmoid(1.702 gate) * (up + 1), both clamped to 7
  SquaredRelu,    // max(x, 0)^2
  Xielu,          // Apertus: arXiv 2411.13010, with two learned numbers a layer
};

// The forward pass asks for these, never for a family's name. The families are in model_family.h.
struct ModelTraits {
  // Norms of attention and MLP: of their inputs, of their outputs, or of both.
  bool has_pre_norms = true;
  bool has_post_norms = false;
  bool has_layer_norms = false;        // mean and variance (LayerNorm) instead of RMSNorm
  bool has_norm_weights = true;        // OLMo: norms have none
  bool has_norm_biases = false;        // LayerNorm only
  bool has_unit_offset_norms = false;  // Gemma: norms scale by 1 + weight
  // Attention and MLP read the layer's input, and both join the residual. Otherwise the MLP reads
  // what attention has joined.
  bool has_parallel_mlp = false;
  bool shares_layer_norm = false;     // of a parallel layer: its MLP has no norm of its own
  bool has_qk_norm = false;           // of queries and keys, before the rotation
  bool has_whole_qk_norm = false;     // OLMo 2: over all heads together, not over each head
  bool has_qk_norm_per_head = false;  // Cohere: over each head, by weights of its own
  bool has_late_qk_norm = false;      // Hunyuan: after the rotation
  bool has_qkv_biases = false;
  bool has_attention_output_bias = false;
  bool has_mlp_biases = false;
  bool has_head_bias = false;           // of the output head
  bool has_gated_mlp = true;            // activation(gate) * up; otherwise activation(up)
  bool has_learned_positions = false;   // GPT-2: a table that is added to embeddings; no RoPE
  bool has_interleaved_rope = false;    // RoPE's pairs are neighbours, not halves of a head
  bool scales_embeddings = false;       // Gemma: embeddings times sqrt(hidden_dim)
  bool has_gated_attention = false;     // what a head attends to, times sigmoid of a projection
  bool has_attention_sinks = false;     // gpt-oss: a learned score per head that takes no value
  bool has_shared_expert_gate = false;  // the shared expert's output, times sigmoid of a projection
  bool has_router_biases = false;       // added to a router's scores
  bool has_expert_biases = false;
  bool has_sigmoid_router = false;  // DeepSeek-V3: scores are sigmoids instead of a softmax
  bool has_choice_bias = false;     // it takes part in the choice of experts, not in their weights
  // DeepSeek-V3: a group of experts ranks by the sum of its two best; otherwise by its best.
  bool has_paired_groups = false;
  // Phi MoE's SparseMixer: each of two experts has its softmax among those with close scores.
  bool has_sparse_mixer = false;
  // The weights of a token's experts add up to one.
  bool has_normalised_expert_weights = true;
  Activation activation = Activation::Silu;

  // Whether a layer normalises the input of its MLP apart from that of attention.
  bool has_mlp_norm() const { return !has_parallel_mlp || !shares_layer_norm; }

  bool operator==(const ModelTraits&) const = default;
};

// The first trait in which a model is unlike another, "has_qk_norm" or "has_pre_norms: false" as
// the model has it; empty if there is none.
std::string first_unlike(const ModelTraits& model, const ModelTraits& other);

}  // namespace metronome
