// SPDX-License-Identifier: Apache-2.0
// Parses the bytes of a GGUF file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/gguf/gguf_file.h"

namespace metronome {

struct GgufContents {
  std::vector<std::pair<std::string, GgufValue>> values;  // by key
  std::vector<GgufTensor> tensors;                        // by name
};

// Throws ConfigError as GgufFile does. `path` is shown in messages.
GgufContents parse_gguf(std::span<const std::byte> file, const std::string& path);

// The bytes of a value of a fixed size; 0 for strings and arrays.
std::size_t size_of(GgufType type);

}  // namespace metronome
