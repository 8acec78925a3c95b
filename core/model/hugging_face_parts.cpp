// SPDX-License-Identifier: Apache-2.0
#include "core/model/hugging_face_parts.h"

#include <string>

#include "core/base/json.h"
#include "core/model/hugging_face_rope.h"

namespace metronome {
namespace {

void read_activation(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  const char* const key = family.activation_key;
  // gpt-oss's files say silu, which is a part of its activation.
  if (key == nullptr || model.activation == Activation::ClampedSwiglu) return;
  if (text.find(key) == nullptr) return;  // the family's own
  const std::string name = text.text_or(key, "");
  // transformers' activations.py has several names for one function.
  if (name == "silu" || name == "swish") {
    model.activation = Activation::Silu;
  } else if (name == "gelu_pytorch_tanh" || name == "gelu_python_tanh" || name == "gelu_new" ||
             name == "gelu_fast") {
    model.activation = Activation::GeluTanh;
  } else if (name == "gelu" || name == "gelu_python") {
    model.activation = Activation::Gelu;
  } else if (name == "relu2") {
    model.activation = Activation::SquaredRelu;
  } else if (name != "xielu" || model.activation != Activation::Xielu) {
    model.refuse(text.dotted(key),
                 JsonSection::excerpt(Json(name)) +
                     " is not supported; allowed: silu, swish, gelu, gelu_pytorch_tanh, "
                     "gelu_new, gelu_fast, relu2");
  }
}

void read_biases(const JsonSection& text, const BiasKeys& keys, ModelConfig& model) {
  const auto read = [&text](const char* key, bool& has_biases) {
    if (key != nullptr) has_biases = text.boolean_or(key, has_biases);
  };
  read(keys.qkv, model.has_qkv_biases);
  read(keys.attention_output, model.has_attention_output_bias);
  read(keys.mlp, model.has_mlp_biases);
}

void read_multipliers(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  const auto cap = [&text](const char* key, double otherwise) {
    return text.number_or(key, text.has(key) ? 0 : otherwise);
  };
  model.attention_softcap = cap("attn_logit_softcapping", family.defaults.attention_softcap);
  model.logit_softcap = cap("final_logit_softcapping", family.defaults.logit_softcap);
  model.qkv_clip = text.number_or("clip_qkv", 0);
  if (family.has_multipliers) {
    model.embedding_multiplier = text.number_or("embedding_multiplier", 1);
    model.residual_multiplier = text.number_or("residual_multiplier", 1);
    model.attention_multiplier = text.number_or("attention_multiplier", 1);
    model.logit_divisor = text.number_or("logits_scaling", 1);
  }
  if (family.defaults.logit_scale > 0) {
    constexpr const char* kKey = "logit_scale";
    const double scale = text.number_or(kKey, family.defaults.logit_scale);
    if (!(scale > 0)) text.fail(kKey, "is not above 0; allowed: a number above 0");
    model.logit_divisor = 1 / scale;
  }
}

// GPT-2's own switches, and nanoGPT's `bias`.
void read_gpt2_parts(const JsonSection& text, ModelConfig& model) {
  if (!text.boolean_or("bias", true)) {
    model.has_norm_biases = model.has_qkv_biases = false;
    model.has_attention_output_bias = model.has_mlp_biases = false;
  }
  const auto refuse = [&](const char* key, bool allowed) {
    if (text.boolean_or(key, allowed) == allowed) return;
    model.refuse(text.dotted(key),
                 std::string(allowed ? "false" : "true") +
                     " is not supported; allowed: " + (allowed ? "true" : "false"));
  };
  refuse("scale_attn_weights", true);
  refuse("scale_attn_by_inverse_layer_idx", false);
  refuse("add_cross_attention", false);
}

// Records switches whose other value is not computed.
void refuse_switches(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  const auto refuse = [&](const char* key, const std::string& why) {
    if (text.boolean_or(key, false)) model.refuse(text.dotted(key), why + "; allowed: false");
  };
  refuse("use_bidirectional_attention", "only causal attention is supported");
  // StableLM's are a tensor a head.
  if (family.qk_norm_key == nullptr) {
    refuse("qk_layernorm", "norms of queries and keys are not supported");
  }
}

}  // namespace

void read_parts(const JsonSection& root, const JsonSection& text, const ModelFamily& family,
                ModelConfig& model) {
  if (family.qk_norm_key != nullptr) {
    model.has_qk_norm = text.boolean_or(family.qk_norm_key, model.has_qk_norm);
  }
  apply_architecture(model);
  if (family.parallel_key != nullptr) {
    model.has_parallel_mlp = text.boolean_or(family.parallel_key, model.has_parallel_mlp);
  }
  model.norm_eps = family.norm_eps_key == nullptr
                       ? family.defaults.norm_eps
                       : text.number_or(family.norm_eps_key, family.defaults.norm_eps);
  if (family.defaults.query_pre_attn_scalar > 0) {
    model.query_pre_attn_scalar =
        text.number_or("query_pre_attn_scalar", family.defaults.query_pre_attn_scalar);
  }
  if (!model.has_learned_positions) read_rope(text, family, model);
  read_activation(text, family, model);
  if (root.find("eos_token_id") != nullptr || text.has("eos_token_id")) {
    model.eos_token_ids =
        (root.find("eos_token_id") != nullptr ? root : text).token_ids("eos_token_id");
  } else if (family.defaults.eos_token_id >= 0) {
    model.eos_token_ids = {family.defaults.eos_token_id};
  }
  read_biases(text, family.biases, model);
  read_multipliers(text, family, model);
  if (family.keys == ConfigKeys::Gpt2) read_gpt2_parts(text, model);
  refuse_switches(text, family, model);
}

}  // namespace metronome
