#include "core/model/gguf_family.h"

#include <vector>

#include "core/base/names.h"

namespace metronome {
namespace {

// To add a family, add a row here, its keys to gguf_config.cpp, and a case to tools/gguf_parity.
// Families of llama.cpp whose arithmetic is not here, with what they need beside the usual keys
// (their loaders in llama.cpp: src/models/NAME.cpp):
//   qwen2     Qwen2ForCausalLM. Biases: attn_q.bias, attn_k.bias, attn_v.bias.
//   phi3      Phi3ForCausalLM. Fused: attn_qkv.weight (rows of Q, K, V), ffn_up.weight (rows of
//             gate, then up). rope.dimension_count below key_length rotates a part. With
//             rope_factors_long.weight and rope_factors_short.weight: LongRope, with
//             rope.scaling.original_context_length and rope.scaling.attn_factor.
//   gemma2    Gemma2ForCausalLM. has_post_norms, adds_one_to_norms; every 2nd layer is global;
//             attention.sliding_window (default 4096), attn_logit_softcapping,
//             final_logit_softcapping (defaults 50 and 30). The query scale is that of gemma3.
//   smollm3   SmolLM3ForCausalLM. permutes_rotary_rows; every 4th layer has no RoPE.
//   olmo2     Olmo2ForCausalLM. has_qk_norm, over all heads at once; no norm before attention and
//             MLP: post_attention_norm.weight and post_ffw_norm.weight follow them.
//   granite   GraniteForCausalLM. permutes_rotary_rows; attention.scale, embedding_scale,
//             residual_scale, logit_scale (a divisor).
//   gpt2      GPT2LMHeadModel. attention.layer_norm_epsilon; position_embd.weight, attn_qkv.weight,
//             and a bias of every norm and projection. Matrices are stored as [rows, cols].
constexpr GgufFamily kGgufFamilies[] = {
    {"llama", "LlamaForCausalLM", false, false, true, false},
    {"qwen3", "Qwen3ForCausalLM", true, false, false, false},
    {"qwen3moe", "Qwen3MoeForCausalLM", true, false, false, false},
    {"gemma3", "Gemma3ForCausalLM", true, true, false, true},
};

struct NamePair {
  std::string_view folder;  // between "model.layers.N." and ".weight" or ".bias"
  std::string_view gguf;    // behind "blk.N."
};

constexpr NamePair kLayerNames[] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.gate", "ffn_gate_inp"},
};

constexpr NamePair kOuterNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

// Empty if `name` is not in the table.
template <class Table>
std::string_view counterpart(const Table& table, std::string_view name) {
  for (const NamePair& pair : table) {
    if (pair.folder == name) return pair.gguf;
  }
  return {};
}

}  // namespace

const GgufFamily* find_gguf_family(std::string_view name) {
  for (const GgufFamily& family : kGgufFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::string gguf_family_names() {
  std::vector<std::string_view> names;
  for (const GgufFamily& family : kGgufFamilies) names.push_back(family.name);
  return join_names(names);
}

std::string gguf_family_hint(std::string_view name) {
  std::vector<std::string_view> names;
  for (const GgufFamily& family : kGgufFamilies) names.push_back(family.name);
  return did_you_mean(name, names);
}

std::string gguf_tensor_name(std::string_view name, const GgufFamily& family) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return {};
  const std::string ending(name.substr(dot));
  name = name.substr(0, dot);
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) {
    const std::string_view found = counterpart(kOuterNames, name);
    return found.empty() ? std::string() : std::string(found) + ending;
  }
  name.remove_prefix(kLayers.size());
  const std::size_t end = name.find('.');
  if (end == name.npos) return {};
  const std::string layer = "blk." + std::string(name.substr(0, end)) + ".";
  const std::string_view part = name.substr(end + 1);
  if (part == "post_attention_layernorm") {
    // With two norms a layer, the second one is before the MLP.
    return layer + (family.has_post_norms ? "post_attention_norm" : "ffn_norm") + ending;
  }
  const std::string_view found = counterpart(kLayerNames, part);
  return found.empty() ? std::string() : layer + std::string(found) + ending;
}

}  // namespace metronome
