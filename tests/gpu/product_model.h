// SPDX-License-Identifier: Apache-2.0
// A model whose linear layers take little, and are of no round size.
#pragma once

namespace metronome::testing {

constexpr const char* kProductModel =
    R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 64, "intermediate_size": 72, "vocab_size": 128, "max_position_embeddings": 96,
  "rms_norm_eps": 1e-6, "tie_word_embeddings": true})";

}  // namespace metronome::testing
