// SPDX-License-Identifier: Apache-2.0
// Answers tools/gguf_parity: writes the weights of a GGUF file or model folder as a model has them.
//   metronome_gguf_weights PATH OUT
// OUT gets the float32 of every tensor, one after the other. Standard output has one JSON object a
// line: the configuration, then name, rows, columns and stored type of each.
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "models/models.h"
#include "models/weights/gguf_weights.h"
#include "models/weights/model_weights.h"
#include "models/weights/quantised_blocks.h"

namespace {

using namespace metronome;

template <class Values>
Json list_of(const Values& values) {
  Json list = Json::array();
  for (const auto value : values) list.push_back(value);
  return list;
}

void add_shape(const ModelConfig& model, Json& json) {
  json["n_layers"] = model.n_layers;
  json["hidden_dim"] = model.hidden_dim;
  json["n_heads"] = model.n_heads;
  json["n_kv_heads"] = model.n_kv_heads;
  json["head_dim"] = model.head_dim;
  json["ffn_dim"] = model.ffn_dim;
  json["n_experts"] = model.n_experts;
  json["n_experts_per_token"] = model.n_experts_per_token;
  json["expert_ffn_dim"] = model.expert_ffn_dim;
  json["vocab_size"] = model.vocab_size;
  json["max_position_embeddings"] = model.max_position_embeddings;
  json["has_tied_embeddings"] = model.has_tied_embeddings;
  json["bytes_per_weight"] = model.bytes_per_weight;
}

// Which layers have windows, experts and RoPE, and which biases there are.
void add_layers(const ModelConfig& model, Json& json) {
  Json windows = Json::array(), experts = Json::array(), rotated = Json::array();
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    windows.push_back(model.is_window_layer(i));
    experts.push_back(model.is_moe_layer(i));
    rotated.push_back(model.is_rotated_layer(i));
  }
  json["windows"] = std::move(windows);
  json["experts"] = std::move(experts);
  json["rotated"] = std::move(rotated);
  json["sliding_window"] = model.sliding_window;
  json["traits"] = list_of(std::vector<bool>{
      model.has_pre_norms, model.has_post_norms, model.has_layer_norms, model.has_norm_biases,
      model.has_unit_offset_norms, model.has_qk_norm, model.has_whole_qk_norm, model.has_qkv_biases,
      model.has_attention_output_bias, model.has_mlp_biases, model.has_gated_mlp,
      model.has_learned_positions, model.scales_embeddings, model.has_normalised_expert_weights});
  json["activation"] = static_cast<std::int64_t>(model.activation);
}

void add_rope(const RopeScaling& scaling, Json& json) {
  json["rope_kind"] = static_cast<std::int64_t>(scaling.kind);
  json["rope_factor"] = scaling.factor;
  json["rope_positions"] = scaling.original_max_positions;
  json["beta_fast"] = scaling.beta_fast;
  json["beta_slow"] = scaling.beta_slow;
  json["low_freq_factor"] = scaling.low_freq_factor;
  json["high_freq_factor"] = scaling.high_freq_factor;
  json["attention_factor"] = scaling.attention_factor;
  json["short_factors"] = list_of(scaling.short_factors);
  json["long_factors"] = list_of(scaling.long_factors);
}

void add_arithmetic(const ModelConfig& model, Json& json) {
  json["norm_eps"] = model.norm_eps;
  json["rope_theta"] = model.rope_theta;
  json["rope_local_theta"] = model.rope_local_theta;
  json["num_rotated"] = model.num_rotated();
  json["query_pre_attn_scalar"] = model.query_pre_attn_scalar;
  json["attention_multiplier"] = model.attention_multiplier;
  json["attention_softcap"] = model.attention_softcap;
  json["logit_softcap"] = model.logit_softcap;
  json["embedding_multiplier"] = model.embedding_multiplier;
  json["residual_multiplier"] = model.residual_multiplier;
  json["logit_divisor"] = model.logit_divisor;
}

Json described(const ModelConfig& model) {
  Json json = Json::object();
  json["architecture"] = model.architecture;
  json["unsupported"] = model.unsupported;
  json["eos_token_ids"] = list_of(model.eos_token_ids);
  add_shape(model, json);
  add_layers(model, json);
  add_rope(model.rope_scaling, json);
  add_arithmetic(model, json);
  return json;
}

void write_weights(const std::string& path, const ModelConfig& model, const std::string& out) {
  const std::string folder = find_model_folder(path);
  const auto weights =
      folder.empty() ? open_gguf_weights(path, model) : open_model_folder(folder, model);
  std::ofstream file(out, std::ios::binary);
  for (const WeightSpec& spec : weight_specs(model)) {
    std::vector<float> values(static_cast<std::size_t>(spec.rows * spec.cols));
    weights->read(spec, 0, spec.rows, values.data());
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
    Json json = Json::object();
    json["name"] = spec.name;
    json["rows"] = spec.rows;
    json["cols"] = spec.cols;
    json["type"] = std::string(to_string(weights->type(spec)));
    std::cout << json.dump() << '\n';
  }
  if (!file.flush()) throw std::runtime_error(out + ": cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: metronome_gguf_weights PATH OUT\n";
    return 2;
  }
  try {
    register_models();
    const ModelConfig model = find_model(argv[1], {});
    std::cout << described(model).dump() << '\n';
    if (model.unsupported.empty()) write_weights(argv[1], model, argv[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
