// The bytes as a GGUF file, up to a line break behind "<|text|>"; what follows as a text for its
// tokenizer.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/gguf/gguf_file.h"
#include "core/model/gguf_config.h"
#include "core/text/gguf_tokenizer.h"
#include "tests/fuzz/refusal.h"

namespace {

using namespace metronome;

constexpr std::string_view kEnd = "<|text|>\n";

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

void check_tokenizer(const GgufFile& file, std::string_view text) {
  const auto tokenizer = make_gguf_tokenizer(file);
  std::vector<TokenId> ids;
  try {
    ids = tokenizer->encode(text, true);
  } catch (const std::runtime_error&) {
    return;  // a pattern that gives up
  }
  for (const TokenId id : ids) {
    METRONOME_CHECK(tokenizer->kind(id) != TokenKind::None, "ids of a text are tokens");
  }
  sink = static_cast<unsigned>(decode(*tokenizer, ids, false).size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find(kEnd), input.size());
  const std::string_view text = input.substr(std::min(end + kEnd.size(), input.size()));
  // A copy of exactly its size, so that reading behind the end is seen.
  std::vector<std::byte> exact(end);
  if (end > 0) std::memcpy(exact.data(), input.data(), end);
  metronome::testing::parse_or_refuse([&] {
    const GgufFile file(exact, "fuzz");
    check_file(file, exact.size());
    metronome::testing::parse_or_refuse([&] { read_gguf_config(file, "fuzz"); });
    metronome::testing::parse_or_refuse([&] { check_tokenizer(file, text); });
  });
  return 0;
}
