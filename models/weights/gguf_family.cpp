// SPDX-License-Identifier: Apache-2.0
#include "models/weights/gguf_family.h"

#include "core/base/names.h"
#include "core/base/number_chars.h"

namespace metronome {
namespace {

// To add a family, add a row here, its keys to gguf_config.cpp, its tensors below, and a case to
// tools/gguf_checks/conversion.py. A family's computation is in model_family.cpp; its loader in
// llama.cpp is src/models/NAME.cpp.
constexpr GgufFamily kGgufFamilies[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .of_experts = "MixtralForCausalLM",
     .permutes_rotary_rows = true,
     .windows = WindowRule::Always},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM"},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM"},
    {.name = "qwen3moe",
     .architecture = "Qwen3MoeForCausalLM",
     .of_experts = "Qwen3MoeForCausalLM"},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .adds_one_to_norms = true,
     .windows = WindowRule::Alternate,
     .window_default = 4096,
     .layers_of_27b = 46},
    {.name = "gemma3",
     .architecture = "Gemma3ForCausalLM",
     .adds_one_to_norms = true,
     .windows = WindowRule::Alternate,
     .layers_of_27b = 62},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .has_gate_in_up = true,
     .windows = WindowRule::Always},
    {.name = "smollm3", .architecture = "SmolLM3ForCausalLM", .permutes_rotary_rows = true},
    {.name = "olmo2", .architecture = "Olmo2ForCausalLM"},
    {.name = "granite", .architecture = "GraniteForCausalLM", .permutes_rotary_rows = true},
    {.name = "gpt2", .architecture = "GPT2LMHeadModel"},
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
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.o_proj", "attn_output"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
};

constexpr NamePair kOuterNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.embed_positions", "position_embd"},
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

// Makes the places of a tensor. `layer` is "blk.N.", or empty outside of layers; `ending` is
// ".weight" or ".bias".
class PlaceList {
 public:
  PlaceList(const WeightSpec& spec, std::string layer, std::string_view ending)
      : spec_(spec),
        layer_(std::move(layer)),
        ending_(ending),
        is_bias_(spec.role == WeightRole::Bias) {}

  void add_whole(std::string_view name) { add(name, is_bias_ ? spec_.cols : spec_.rows, 0); }

  // A tensor of `rows` rows in all, of which the spec's begin at `first`.
  void add(std::string_view name, std::int64_t rows, std::int64_t first) {
    std::vector<std::int64_t> shape = {rows, spec_.cols};
    if (is_bias_) shape = {rows};
    if (spec_.role == WeightRole::Norm) shape = {spec_.cols};
    places_.push_back({layer_ + std::string(name) + ending_, std::move(shape), first});
  }

  // Adds a tensor with so many rows of each expert.
  void add_of_expert(std::string_view name, std::int64_t experts, std::int64_t expert,
                     std::int64_t rows, std::int64_t first) {
    places_.push_back(
        {layer_ + std::string(name) + ending_, {experts, rows, spec_.cols}, expert * rows + first});
  }

  std::vector<GgufPlace> take() { return std::move(places_); }

 private:
  const WeightSpec& spec_;
  const std::string layer_;
  const std::string ending_;
  const bool is_bias_;
  std::vector<GgufPlace> places_;
};

// "mlp.experts.3.up_proj". llama.cpp's scripts fuse gate and up of experts on request.
void add_expert_places(const ModelConfig& model, std::string_view part, const WeightSpec& spec,
                       PlaceList& places) {
  part.remove_prefix(std::string_view("mlp.experts.").size());
  std::int64_t expert = 0;
  const char* const end = part.data() + part.size();
  const char* const dot = read_number(part.data(), end, expert).ptr;
  const std::string_view name(dot, static_cast<std::size_t>(end - dot));
  const auto add = [&](std::string_view tensor, std::int64_t rows, std::int64_t first) {
    places.add_of_expert(tensor, model.n_experts, expert, rows, first);
  };
  if (name == ".down_proj") return add("ffn_down_exps", spec.rows, 0);
  const bool is_up = name == ".up_proj";
  add(is_up ? "ffn_up_exps" : "ffn_gate_exps", spec.rows, 0);
  add("ffn_gate_up_exps", 2 * spec.rows, is_up ? spec.rows : 0);
}

// The parts of attn_qkv: rows of Q, K and V. Empty for any other part.
void add_fused_place(const ModelConfig& model, std::string_view part, PlaceList& places) {
  const std::int64_t query = model.query_dim();
  const std::int64_t key = model.kv_dim();
  const std::int64_t rows = query + 2 * key;
  if (part == "self_attn.q_proj") places.add("attn_qkv", rows, 0);
  if (part == "self_attn.k_proj") places.add("attn_qkv", rows, query);
  if (part == "self_attn.v_proj") places.add("attn_qkv", rows, query + key);
}

void add_layer_places(const ModelConfig& model, const GgufFamily& family, std::string_view part,
                      const WeightSpec& spec, PlaceList& places) {
  if (part.starts_with("mlp.experts.")) return add_expert_places(model, part, spec, places);
  if (part == "post_attention_layernorm") {
    // With two norms a layer, the second one is before the MLP.
    return places.add_whole(model.has_post_norms ? "post_attention_norm" : "ffn_norm");
  }
  if (family.has_gate_in_up && (part == "mlp.gate_proj" || part == "mlp.up_proj")) {
    return places.add("ffn_up", 2 * model.ffn_dim, part == "mlp.up_proj" ? model.ffn_dim : 0);
  }
  const std::string_view found = counterpart(kLayerNames, part);
  if (!found.empty()) places.add_whole(found);
  add_fused_place(model, part, places);
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

std::vector<GgufPlace> gguf_places(const ModelConfig& model, const GgufFamily& family,
                                   const WeightSpec& spec) {
  std::string_view name = spec.name;
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos) return {};
  const std::string_view ending = name.substr(dot);
  name = name.substr(0, dot);
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) {
    PlaceList places(spec, "", ending);
    const std::string_view found = counterpart(kOuterNames, name);
    if (!found.empty()) places.add_whole(found);
    return places.take();
  }
  name.remove_prefix(kLayers.size());
  const std::size_t end = name.find('.');
  if (end == name.npos) return {};
  PlaceList places(spec, "blk." + std::string(name.substr(0, end)) + ".", ending);
  add_layer_places(model, family, name.substr(end + 1), spec, places);
  return places.take();
}

}  // namespace metronome
