// SPDX-License-Identifier: Apache-2.0
// Quantised blocks against what the `gguf` package computes from the same bytes
// (tests/fixtures/quantised_blocks/make), to the bit.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/model/model_config.h"
#include "models/weights/model_weights.h"
#include "models/weights/quantised_blocks.h"
#include "models/weights/safetensors.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace metronome::TEST_FILE {
namespace {

const Tensor& tensor_of(const SafetensorsFile& file, const std::string& name) {
  const Tensor* found = file.find(name);
  REQUIRE(found != nullptr);
  return *found;
}

TEST_CASE("blocks become the floats of the gguf package", "[core][quantised_blocks]") {
  const SafetensorsFile file(testing::source_dir() +
                             "/tests/fixtures/quantised_blocks/blocks.safetensors");
  for (std::int64_t f = 0; f < kNumBlockFormats; ++f) {
    const BlockFormat& format = block_format_at(f);
    const std::string name(format.name);
    if (name == "Q1_0" || name == "Q2_0") continue;  // the package does not read them
    const Tensor& blocks = tensor_of(file, name + ".blocks");
    const Tensor& weights = tensor_of(file, name + ".weights");
    REQUIRE(blocks.shape.size() == 2);
    const std::int64_t num_blocks = blocks.shape[0];
    REQUIRE(num_blocks >= 24);
    REQUIRE(blocks.shape[1] == format.num_bytes);
    REQUIRE(weights.shape == std::vector<std::int64_t>{num_blocks, format.num_weights});
    const auto count = static_cast<std::size_t>(weights.num_elements());
    std::vector<float> expected(count);
    std::memcpy(expected.data(), weights.bytes.data(), count * sizeof(float));
    std::vector<float> actual(count, -1.0f);
    dequantise(format.type, blocks.bytes.data(), num_blocks, actual.data());
    std::int64_t num_nan = 0;
    for (std::size_t i = 0; i < count; ++i) {
      INFO(name << " weight " << i << ": " << actual[i] << " for " << expected[i]);
      // The bits of a NaN depend on the order of operands, so any NaN is right.
      const bool is_same = std::isnan(expected[i])
                               ? std::isnan(actual[i])
                               : std::memcmp(&actual[i], &expected[i], sizeof(float)) == 0;
      REQUIRE(is_same);
      num_nan += std::isnan(expected[i]) ? 1 : 0;
    }
    const bool has_halves = name != "MXFP4" && name != "NVFP4";
    CHECK((num_nan > 0) == has_halves);
    CHECK(num_nan < static_cast<std::int64_t>(count) / 2);
  }
}

// dequantize_row_q1_0 and dequantize_row_q2_0 of ggml-quants.c, by hand.
TEST_CASE("blocks of one and two bits a weight", "[core][quantised_blocks]") {
  std::vector<std::byte> block(18);
  block[1] = std::byte{0x40};  // d is 2
  block[2] = std::byte{0b10010110};
  block[17] = std::byte{0b01000000};
  std::vector<float> bits(128, -7.0f);
  dequantise(TensorType::Q1_0, block.data(), 1, bits.data());
  CHECK(std::vector<float>(bits.begin(), bits.begin() + 9) ==
        std::vector<float>{-2, 2, 2, -2, 2, -2, -2, 2, -2});
  CHECK(std::vector<float>(bits.end() - 3, bits.end()) == std::vector<float>{-2, 2, -2});
  std::vector<float> pairs(64, -7.0f);
  dequantise(TensorType::Q2_0, block.data(), 1, pairs.data());
  CHECK(std::vector<float>(pairs.begin(), pairs.begin() + 5) == std::vector<float>{2, 0, 0, 2, -2});
  block[2] = std::byte{0b11000000};
  dequantise(TensorType::Q2_0, block.data(), 1, pairs.data());
  CHECK(pairs[3] == 4);
  CHECK(pairs[63] == 0);
}

TEST_CASE("a block format has GGML's name and size", "[core][quantised_blocks]") {
  CHECK(block_format(TensorType::Float16) == nullptr);
  CHECK(block_format(TensorType::Other) == nullptr);
  REQUIRE(block_format(TensorType::Q4_K) != nullptr);
  CHECK(block_format(TensorType::Q4_K)->num_bytes == 144);
  CHECK(to_string(TensorType::Q6_K) == "Q6_K");
  CHECK(to_string(TensorType::IQ2_XXS) == "IQ2_XXS");
  for (std::int64_t i = 0; i < kNumBlockFormats; ++i) {
    CHECK(static_cast<std::int64_t>(block_format_at(i).type) ==
          static_cast<std::int64_t>(TensorType::Q4_0) + i);
  }
  CHECK(to_string(TensorType::BFloat16) == "BF16");
  CHECK(stored_bytes(TensorType::Q8_0, 64) == 68);
  CHECK(stored_bytes(TensorType::Float32, 3) == 12);
  CHECK(stored_bytes(TensorType::Float16, 3) == 6);
  CHECK_THROWS_AS(stored_bytes(TensorType::Q4_K, 128), InvariantError);
  CHECK_THROWS_AS(block_format_at(kNumBlockFormats), InvariantError);
  float out = 0;
  CHECK_THROWS_AS(dequantise(TensorType::Float32, nullptr, 0, &out), InvariantError);
}

TEST_CASE("a source without quantised tensors has no blocks", "[core][quantised_blocks]") {
  ModelConfig model;
  const std::unique_ptr<WeightSource> source = random_weights(model, 1);
  std::byte out{};
  CHECK_THROWS_AS(source->read_blocks({"a", 1, 32, WeightRole::Linear}, 0, 1, &out),
                  InvariantError);
}

}  // namespace
}  // namespace metronome::TEST_FILE
