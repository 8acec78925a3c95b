// SPDX-License-Identifier: Apache-2.0
// The bytes as a GGUF file: its values, its tensors, and the configuration of a model.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "models/gguf/gguf_file.h"
#include "models/weights/gguf_config.h"
#include "tests/fuzz/refusal.h"

namespace {

using namespace metronome;

// Kept, so that no read is optimised away.
volatile unsigned sink = 0;

void check_file(const GgufFile& file, std::size_t size) {
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const GgufTensor& tensor = file.tensors()[i];
    METRONOME_CHECK(i == 0 || file.tensors()[i - 1].name < tensor.name, "tensors are by name");
    METRONOME_CHECK(file.find_tensor(tensor.name) == &tensor, "a tensor is found by name");
    unsigned sum = 0;
    for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
    sink = sum;
    num_bytes += tensor.bytes.size();
  }
  METRONOME_CHECK(num_bytes <= size, "tensors do not share bytes");
  for (const char* key : {"tokenizer.ggml.tokens", "general.tags"}) {
    testing::parse_or_refuse([&] { sink = static_cast<unsigned>(file.texts(key).size()); });
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly its size, so that reading behind the end is seen.
  std::vector<std::byte> exact(size);
  if (size > 0) std::memcpy(exact.data(), data, size);
  metronome::testing::parse_or_refuse([&] {
    const GgufFile file(exact, "fuzz");
    check_file(file, size);
    metronome::testing::parse_or_refuse([&] { read_gguf_config(file, "fuzz"); });
  });
  return 0;
}
