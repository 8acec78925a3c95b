// SPDX-License-Identifier: Apache-2.0
// How the tokenizers of GGUF files split a text into words, by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace metronome {

// The rules behind some names of tokenizer.ggml.pre.
struct GgufSplit {
  std::vector<std::string_view> names;
  // Each is a step; a text between two matches is a piece, too.
  std::vector<std::string> patterns;
  bool ignore_merges = false;
  bool adds_bos = false;  // unless tokenizer.ggml.add_bos_token says otherwise
  bool is_nfc = false;
  // Words are characters, and bytes <0xNN> for those without a token; else ByteLevel's alphabet.
  bool has_byte_tokens = false;
  bool marks_spaces = false;  // U+2581 for spaces
};

// The names that llama.cpp compares with. Patterns are those of the models' tokenizer.json where
// these are known to differ from llama.cpp's, with NFC where they have it.
const std::vector<GgufSplit>& all_gguf_splits();
// nullptr: no such name.
const GgufSplit* find_gguf_split(std::string_view name);
std::vector<std::string_view> gguf_split_names();

}  // namespace metronome
