// SPDX-License-Identifier: Apache-2.0
// The bytes as a GGUF file with a tokenizer, up to "<|text|>" and a line break; what follows as a
// text for it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "models/gguf/gguf_file.h"
#include "models/text/gguf_tokenizer.h"
#include "tests/fuzz/refusal.h"

namespace {

using namespace metronome;

constexpr std::string_view kEnd = "<|text|>\n";

// Kept, so that no read is optimised away.
volatile unsigned sink = 0;

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
  const std::size_t end = std::min(input.find(kEnd), size);
  const std::string_view text = input.substr(std::min(end + kEnd.size(), size));
  metronome::testing::parse_or_refuse([&] {
    const GgufFile file(std::as_bytes(std::span(data, end)), "fuzz");
    check_tokenizer(file, text);
  });
  return 0;
}
