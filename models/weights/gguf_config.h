// SPDX-License-Identifier: Apache-2.0
// The configuration of a model from the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "models/gguf/gguf_file.h"

namespace metronome {

// The same configuration as from the config.json of the folder that the file was made of, but:
// - vocab_size is the number of rows of the embedding table, has_tied_embeddings says that the file
//   has no head, and the formats of weights are those of the tensors (gguf_formats.h).
// - Missing keys get the defaults of llama.cpp: head_count_kv is head_count, key_length is
//   embedding_length / head_count, rope.freq_base is 1e4. Gemma 3: rope.freq_base_swa is 1e4, and
//   every 6th layer is global. Gemma 2: the window is 4096, every 2nd layer is global, and the caps
//   are 50 and 30. Queries of both are scaled by key_length (27B: by the quotient above).
// - What the conversion scripts leave out is as in the published models: SmolLM 3 does not rotate
//   every 4th layer, and the weights of experts add up to one.
// - Biases of attention and MLP are those that the file has.
// - gguf_rope.h says how RoPE is scaled.
//
// `unsupported` gets the features that no executor can compute. A model of another architecture is
// read by its shape (gguf_shape.h). Throws ConfigError for one that has none, a missing or
// ill-typed key, and an impossible shape.
ModelConfig read_gguf_config(const GgufFile& file, const std::string& name);

// The tokens that end a text: those of eos_token_id, eot_token_id and eom_token_id, and those that
// llama.cpp knows by their text ("<|im_end|>", "<end_of_turn>"), ascending behind the first. A
// "</s>" that is not of type CONTROL does not count: Gemma has HTML's.
// Source: llama.cpp, src/llama-vocab.cpp, special_eog_ids.
std::vector<std::int32_t> gguf_eos_token_ids(const GgufFile& file);

}  // namespace metronome
