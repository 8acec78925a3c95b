// SPDX-License-Identifier: Apache-2.0
// Models under the names that people type: core/model/model_repositories.yaml has repositories, and
// core/model/model_names.yaml what names have beside the model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/weight_format.h"

namespace metronome {

// The model of the catalogue that a name means, and the format of weights that the name says.
struct FoundModel {
  // Empty: none. "qwen3-32b-128k" has the shape of qwen3-32b, and a context of 131,072 tokens by
  // scaled positions.
  std::string model;
  std::optional<WeightFormat> format;  // nothing: that of the model's own file
  bool is_gguf = false;  // the format is that of the file which llama-server takes by itself
};

// "Qwen/Qwen3-8B", "qwen3_8b" and "Qwen3-8B-Instruct" are qwen3-8b, and
// "nvidia/Llama-3.3-70B-Instruct-FP8" is llama-3.1-70b in fp8. An organisation that is not known
// may be the folder of a path, so that it needs a format behind it.
FoundModel named_model(std::string_view name);

// Tokens of "128k", a longer context than the model's own, as names with scaled positions end; 0:
// the word says none.
std::int64_t context_of_word(std::string_view word);
// Above it no name says one.
inline constexpr std::int64_t kMostContextOfName = std::int64_t{16} << 20;

// The catalogue's name of the model that was meant, if only letters are wrong: another number is
// another version or size. Empty: none is near.
std::string nearest_model(std::string_view name);

// The repositories and other names whose models have the shape of this catalogue model.
std::vector<std::string> repositories_of(std::string_view model);

}  // namespace metronome
