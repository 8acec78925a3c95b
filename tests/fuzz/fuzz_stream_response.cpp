// SPDX-License-Identifier: Apache-2.0
// The bytes as the answer of a streaming server. The first byte says where the rest is cut in two:
// whole and cut, it must come to the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/config/config_reader.h"
#include "serve/client/stream_response.h"

namespace {

std::string outcome_of(std::string_view first, std::string_view second) {
  metronome::StreamResponse response;
  std::int32_t num_tokens = response.read(first);
  num_tokens += response.read(second);
  num_tokens += response.end();
  METRONOME_CHECK(response.is_over(), "a response is over when its connection is");
  METRONOME_CHECK(response.error() == metronome::printable(response.error()),
                  "a message is one printable line");
  METRONOME_CHECK(response.error().size() < 2000, "a message is short");
  return std::to_string(num_tokens) + " " + std::to_string(response.keeps_alive()) + " " +
         response.finish_reason() + " " +
         std::to_string(response.completion_tokens().value_or(-1)) +
         (response.error().empty() ? " good" : " failed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::size_t cut = data[0] * bytes.size() / 255;
  METRONOME_CHECK(outcome_of(bytes, {}) == outcome_of(bytes.substr(0, cut), bytes.substr(cut)),
                  "a response does not depend on how its bytes are split");
  return 0;
}
