// SPDX-License-Identifier: Apache-2.0
// The weights in a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "core/model/model_config.h"
#include "models/weights/model_weights.h"

namespace metronome {

// The weights of `model`, which read_gguf_config() made of the same file, as a Hugging Face folder
// has them (gguf_family.h says where a file keeps a tensor). Rows and biases of Q and K are put
// back into the folder's order, and 1 is taken off Gemma's norms: 1 + the weight is the stored
// number again, to the bit, if that was computed as a float 1 + w. Types: F32, F16, BF16 and every
// block format; of biases the first three. Throws ConfigError naming file and tensor if one is
// missing, or has another shape or type. Other tensors are ignored.
std::unique_ptr<WeightSource> open_gguf_weights(const std::string& path, const ModelConfig& model);

}  // namespace metronome
