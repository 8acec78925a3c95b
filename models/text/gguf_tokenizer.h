// SPDX-License-Identifier: Apache-2.0
// A tokenizer from the metadata of a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "models/gguf/gguf_file.h"
#include "models/text/tokenizer.h"

namespace metronome {

// tokenizer.ggml.model "gpt2" is BPE by merges, with a split that tokenizer.ggml.pre names
// (models/text/gguf_splits.h). A file without a name gets llama.cpp's "default". "gemma4" is the
// same with the split of this name. "llama" is SentencePiece's BPE: adjacent pieces whose text
// together is a token are merged, the token of the highest score first, the leftmost of equals.
// Characters without a token become bytes. Control tokens (type 3) and unknown ones (2) are
// special, and found in a text as in Hugging Face's tokenizers. User-defined ones (4) are found as
// in the `sentencepiece` package for "llama", in the text with U+2581 for spaces; for the others,
// in the text as it is. add_bos_token, add_eos_token and add_space_prefix have llama.cpp's
// defaults.
//
// Throws ConfigError for another model, an unknown name of a pattern, missing or ill-typed keys,
// lists of different lengths, and inconsistent tokens and merges.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufFile& file);

}  // namespace metronome
