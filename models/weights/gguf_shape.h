// SPDX-License-Identifier: Apache-2.0
// The shape of a GGUF model of an architecture that no executor computes. A simulation needs shapes
// alone, and such files name them with the same keys and tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/model/model_config.h"
#include "models/gguf/gguf_file.h"
#include "models/weights/gguf_keys.h"

namespace metronome {

// Whether the file has the keys and the tensors of a model of this architecture that generates
// text.
bool has_gguf_shape(const GgufFile& file, std::string_view architecture);

// A model that is only simulated (`unsupported` says so): attention of grouped queries or latent
// attention, with windows or without; dense MLPs, experts and shared experts; Gated DeltaNet.
// Widths, biases, norms and which layers have which are those of the tensors. `architecture` is
// Hugging Face's class where that is simulated, too; else the file's, with an `approximation`.
// States have float32, as in llama.cpp. Layers that predict further tokens are left out. Throws
// ConfigError for layers of other kinds, heads that differ from layer to layer, and a model that
// would have 1 % more or fewer parameters than the file's tensors.
ModelConfig read_gguf_shape(const GgufFile& file, std::string_view architecture,
                            const std::string& name);

// Rows of the embedding table, else the tokens of the tokenizer, else the key.
std::int64_t gguf_vocab_size(const GgufFile& file, const GgufKeys& keys);

}  // namespace metronome
