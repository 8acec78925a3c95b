// SPDX-License-Identifier: Apache-2.0
// The bytes as a safetensors file, and as the header and the data of one.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "models/weights/safetensors.h"
#include "tests/fuzz/refusal.h"
#include "tests/models/weights/safetensors_bytes.h"

namespace {

using namespace metronome;

// Kept, so that no read is optimised away.
volatile unsigned sink = 0;

void check_tensors(const std::vector<Tensor>& tensors, std::size_t file_size) {
  std::size_t num_bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    METRONOME_CHECK(i == 0 || tensors[i - 1].name < tensors[i].name, "tensors are by name");
    METRONOME_CHECK((tensors[i].num_elements() == 0) == tensors[i].bytes.empty(),
                    "bytes are there for elements, and only for them");
    unsigned sum = 0;
    for (const std::byte byte : tensors[i].bytes) sum += std::to_integer<unsigned>(byte);
    sink = sum;
    num_bytes += tensors[i].bytes.size();
  }
  METRONOME_CHECK(num_bytes <= file_size, "tensors do not share bytes");
}

void parse_file(std::span<const std::byte> file) {
  testing::parse_or_refuse([&] { check_tensors(parse_safetensors(file, "fuzz"), file.size()); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!text.starts_with('{')) {
    parse_file(metronome::testing::as_bytes(text));
    return 0;
  }
  // Mutations seldom keep the length at the front right, so for what begins like a header it is
  // written here: the header ends at the first line break.
  const std::size_t line = std::min(text.find('\n'), size);
  const std::string_view behind = text.substr(std::min(line + 1, size));
  const std::string file =
      metronome::testing::safetensors_bytes(std::string(text.substr(0, line)), std::string(behind));
  // A copy of exactly its size, so that reading behind the end is seen.
  std::vector<std::byte> exact(file.size());
  std::memcpy(exact.data(), file.data(), file.size());
  parse_file(exact);
  return 0;
}
