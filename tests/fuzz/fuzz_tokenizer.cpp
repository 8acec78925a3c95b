// SPDX-License-Identifier: Apache-2.0
// The bytes as a tokenizer.json, up to a line break behind a closing brace; what follows as a text
// and as ids for the tokenizer.
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "models/text/detokenizer.h"
#include "models/text/tokenizer.h"
#include "models/text/utf8.h"
#include "tests/fuzz/refusal.h"

namespace {

using namespace metronome;

void check_tokenizer(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  try {
    ids = tokenizer.encode(text, true);
  } catch (const std::runtime_error&) {
    return;  // a pattern that gives up
  }
  for (const TokenId id : ids) {
    METRONOME_CHECK(tokenizer.kind(id) != TokenKind::None, "ids of a text are tokens");
  }
  for (const char c : text) ids.push_back(TokenId{static_cast<signed char>(c)});
  std::string whole;
  Detokenizer detokenizer(tokenizer, false);
  for (const TokenId id : ids) {
    std::string part;
    detokenizer.push(id, part);
    METRONOME_CHECK(is_utf8(part), "parts are whole characters");
    whole += part;
  }
  detokenizer.finish(whole);
  METRONOME_CHECK(whole == decode(tokenizer, ids, false), "parts are the text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find("}\n");
  const std::string_view json = input.substr(0, end == input.npos ? end : end + 1);
  const std::string_view text = input.substr(json.size());
  metronome::testing::parse_or_refuse([&] {
    const auto tokenizer = metronome::parse_tokenizer(json, "fuzz");
    check_tokenizer(*tokenizer, text);
  });
  return 0;
}
