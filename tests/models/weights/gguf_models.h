// SPDX-License-Identifier: Apache-2.0
// Small GGUF files of models for tests, and the folders that they are made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "models/gguf/gguf_file.h"
#include "models/weights/gguf_config.h"
#include "tests/models/gguf/gguf_bytes.h"

namespace metronome::testing {

// The keys that every family has; every dimension of another size.
inline GgufBytes keys_of(const std::string& family) {
  GgufBytes bytes;
  bytes.text("general.architecture", family).u32(family + ".block_count", 2);
  bytes.u32(family + ".embedding_length", 6).u32(family + ".feed_forward_length", 5);
  bytes.u32(family + ".context_length", 64).u32(family + ".attention.head_count", 4);
  bytes.u32(family + ".attention.head_count_kv", 2).u32(family + ".attention.key_length", 4);
  bytes.f32(family + ".attention.layer_norm_rms_epsilon", 1e-5f);
  bytes.f32(family + ".rope.freq_base", 50000.0f);
  return bytes;
}

inline std::vector<float> zeros(std::uint64_t count) { return std::vector<float>(count, 0.0f); }

inline GgufBytes& with_table(GgufBytes& bytes) {
  return bytes.floats32("token_embd.weight", {7, 6}, zeros(42));
}

inline ModelConfig config_of(const GgufBytes& bytes) {
  const std::string stored = bytes.bytes();
  return read_gguf_config(GgufFile(bytes_of_text(stored), "m.gguf"), "m");
}

inline ModelConfig folder_config(const std::string& keys) {
  return parse_hugging_face_config(
      R"({"num_hidden_layers": 2, "hidden_size": 6, "intermediate_size": 5, "vocab_size": 7,
          "max_position_embeddings": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 4, "rms_norm_eps": 1e-5, "torch_dtype": "float32", )" +
          keys + "}",
      "config.json", "m");
}

// The order into which conversion brings the rows of Q and K: numpy's
// w.reshape(heads, 2, dim / 2, cols).swapaxes(1, 2).reshape(rows, cols).
inline std::vector<float> permuted(const std::vector<float>& rows, std::uint64_t dim,
                                   std::uint64_t cols) {
  std::vector<float> result;
  for (std::uint64_t head = 0; head < rows.size() / (dim * cols); ++head) {
    for (std::uint64_t pair = 0; pair < dim / 2; ++pair) {
      for (std::uint64_t half = 0; half < 2; ++half) {
        const std::uint64_t row = head * dim + half * (dim / 2) + pair;
        result.insert(result.end(), rows.begin() + static_cast<std::ptrdiff_t>(row * cols),
                      rows.begin() + static_cast<std::ptrdiff_t>((row + 1) * cols));
      }
    }
  }
  return result;
}

}  // namespace metronome::testing
