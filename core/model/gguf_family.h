// What GGUF files of a family of models differ in from its Hugging Face folders.
// Sources: llama.cpp's conversion scripts (conversion/*.py), and constants.py of the `gguf`
// package.
#pragma once

#include <string>
#include <string_view>

namespace metronome {

struct GgufFamily {
  std::string_view name;          // general.architecture, and the prefix of the keys
  std::string_view architecture;  // Hugging Face's class
  bool has_qk_norm = false;
  bool has_post_norms = false;
  // Rows of Q and K are stored in the order of llama.cpp's RoPE, which rotates neighbours: row
  // j of d rows of a head is stored as row 2 * (j % (d / 2)) + j / (d / 2).
  bool permutes_rotary_rows = false;
  bool adds_one_to_norms = false;  // Gemma: a stored norm weight is 1 + that of the folder
};

// nullptr for a family that is not supported.
const GgufFamily* find_gguf_family(std::string_view name);

// The supported names of general.architecture, with commas between.
std::string gguf_family_names();
// `, did you mean 'qwen3'?` for a name close to a supported one, or nothing.
std::string gguf_family_hint(std::string_view name);

// The name in a GGUF file of a tensor of weight_specs(): "blk.0.attn_q.weight" for
// "model.layers.0.self_attn.q_proj.weight". Empty for a name without a counterpart.
std::string gguf_tensor_name(std::string_view name, const GgufFamily& family);

}  // namespace metronome
