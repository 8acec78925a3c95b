// SPDX-License-Identifier: Apache-2.0
// The rotary embeddings of a model from the metadata of a GGUF file.
#pragma once

#include "core/model/model_config.h"
#include "models/gguf/gguf_file.h"
#include "models/weights/gguf_keys.h"

namespace metronome {

// Sets the base and the scaling of a model whose shape is known:
// - "linear" with a factor. "yarn": Hugging Face's attention_factor is rope.scaling.attn_factor
//   times 0.1 ln(factor) + 1, which llama.cpp computes on its own, or else yarn_attn_factor.
// - LongRoPE's divisors are rope_factors_short.weight and rope_factors_long.weight, and
//   attention_factor is rope.scaling.attn_factor.
// - Llama 3's scaling is found from rope_freqs.weight, which holds its results.
// Anything else goes into `unsupported`. Source: llama.cpp, src/llama-model.cpp and
// src/llama-context.cpp (yarn_attn_factor), ggml's rope_yarn, conversion/base.py and phi.py.
void read_gguf_rope(const GgufFile& file, const GgufKeys& keys, ModelConfig& model);

}  // namespace metronome
