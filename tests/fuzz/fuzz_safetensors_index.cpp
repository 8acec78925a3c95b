// SPDX-License-Identifier: Apache-2.0
// The bytes as the index of a model folder.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/error.h"
#include "models/weights/safetensors.h"
#include "tests/fuzz/refusal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  metronome::testing::parse_or_refuse([&] {
    for (const auto& [name, file] : metronome::parse_safetensors_index(text, "fuzz")) {
      METRONOME_CHECK(!file.empty() && file.front() != '/', "files are inside the folder");
    }
  });
  return 0;
}
