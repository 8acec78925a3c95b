// SPDX-License-Identifier: Apache-2.0
// Bytes as text.
#include <random>
#include <string>

#include "core/base/base64.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

TEST_CASE("base64 is as in RFC 4648", "[core][base]") {
  const std::pair<std::string, std::string> known[] = {{"", ""},
                                                       {"f", "Zg=="},
                                                       {"fo", "Zm8="},
                                                       {"foo", "Zm9v"},
                                                       {"foob", "Zm9vYg=="},
                                                       {"fooba", "Zm9vYmE="},
                                                       {"foobar", "Zm9vYmFy"},
                                                       {std::string("\0\xff\xfe", 3), "AP/+"}};
  for (const auto& [bytes, text] : known) {
    CHECK(encode_base64(bytes) == text);
    CHECK(decode_base64(text) == bytes);
  }
}

TEST_CASE("what was encoded is decoded, with padding and without", "[core][base]") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 rng(seed);
  for (int i = 0; i < 300; ++i) {
    std::string bytes(rng() % 100, '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng());
    std::string text = encode_base64(bytes);
    CHECK(text.size() == (bytes.size() + 2) / 3 * 4);
    CHECK(decode_base64(text) == bytes);
    while (text.ends_with('=')) text.pop_back();
    CHECK(decode_base64(text) == bytes);
  }
}

TEST_CASE("what is not base64 is not decoded", "[core][base]") {
  for (const char* text : {"Z", "Zg=", "Zg===", "Zm9v=", "Zm 9", "Zm9-", "=", "Z=g="}) {
    INFO(text);
    CHECK_FALSE(decode_base64(text));
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
