// The shape of a decoder-only transformer: what costs, KV sizes and executors depend on.
#pragma once

#include <cstdint>
#include <string>

namespace metronome {

struct ModelConfig {
  std::string name;
  std::string architecture;  // Hugging Face class name, e.g. LlamaForCausalLM
  std::int64_t n_layers = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  bool has_tied_embeddings = false;
  bool has_qk_norm = false;
  bool has_post_norms = false;      // Gemma: four norms a layer instead of two
  std::int64_t sliding_window = 0;  // tokens; 0 = every layer attends to everything
  // With a window: layer i (from 0) is global when (i + 1) % global_layer_interval == 0.
  std::int64_t global_layer_interval = 0;
  std::int64_t bytes_per_weight = 2;
  std::int64_t bytes_per_kv_element = 2;

  std::int64_t n_global_layers() const;  // layers that attend to the whole context
  std::int64_t n_window_layers() const;  // n_layers - n_global_layers()
  // Weights multiplied with every token: QKV, output, gate, up and down projections, all layers.
  std::int64_t n_linear_params() const;
  std::int64_t n_embedding_params() const;  // one table; the output head has as many
  std::int64_t n_norm_params() const;       // scales of all normalisations
  std::int64_t n_params() const;            // everything, norms included
  std::int64_t weight_bytes() const { return n_params() * bytes_per_weight; }
  std::int64_t kv_bytes_per_token() const;  // all layers, K and V

  // What makes the shape impossible, as "key: what is wrong; what is allowed". Empty when sound.
  std::string shape_error() const;

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace metronome
