// SPDX-License-Identifier: Apache-2.0
// Reads the expected values that tools/hf_parity and tools/vision_parity write.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/types.h"
#include "models/weights/safetensors.h"
#include "tests/catch.h"

namespace metronome::testing {

// The elements of a tensor of the type "F32" or "I32", which the file must have.
template <class Value>
std::vector<Value> read_values(const SafetensorsFile& file, const char* name, const char* type) {
  const Tensor* tensor = file.find(name);
  REQUIRE(tensor != nullptr);
  REQUIRE(tensor->type_name == type);
  std::vector<Value> values(tensor->bytes.size() / sizeof(Value));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

inline std::vector<TokenId> read_tokens(const SafetensorsFile& file, const char* name) {
  std::vector<TokenId> tokens;
  for (const std::int32_t id : read_values<std::int32_t>(file, name, "I32")) {
    tokens.push_back(TokenId{id});
  }
  return tokens;
}

// The largest difference; infinity where one is not a number.
inline float max_difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

}  // namespace metronome::testing
