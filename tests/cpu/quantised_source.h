// SPDX-License-Identifier: Apache-2.0
// A source of random quantised blocks, and the same weights as floats.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "models/weights/model_weights.h"
#include "models/weights/quantised_blocks.h"

namespace metronome::testing {

// Random blocks whose scales are finite, of either sign and now and then zero or subnormal.
inline std::vector<std::byte> random_blocks(Rng& rng, TensorType type, std::int64_t num_blocks) {
  const BlockFormat& format = *block_format(type);
  std::vector<std::byte> blocks(static_cast<std::size_t>(num_blocks * format.num_bytes));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(rng() & 255);
  const auto put_scale = [&](std::int64_t at) {
    // A float16 around 2^-10, or one without exponent.
    const std::uint64_t exponent = rng() % 16 == 0 ? 0 : 3 + rng() % 4;
    const std::uint64_t bits = (rng() & 0x83ff) | exponent << 10;
    blocks[static_cast<std::size_t>(at)] = static_cast<std::byte>(bits & 255);
    blocks[static_cast<std::size_t>(at + 1)] = static_cast<std::byte>(bits >> 8);
  };
  const auto set_byte = [&](std::int64_t at, int clear, int set) {
    std::byte& byte = blocks[static_cast<std::size_t>(at)];
    byte = (byte & static_cast<std::byte>(~clear)) | static_cast<std::byte>(set);
  };
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    const std::int64_t begin = b * format.num_bytes;
    switch (type) {
      case TensorType::Q4_1:
      case TensorType::Q5_1:
      case TensorType::Q4_K:
      case TensorType::Q5_K:
        put_scale(begin);
        put_scale(begin + 2);
        break;
      case TensorType::Q2_K:
        put_scale(begin + 80);
        put_scale(begin + 82);
        break;
      case TensorType::Q3_K:
      case TensorType::Q6_K:
      case TensorType::TQ1_0:
      case TensorType::TQ2_0: put_scale(begin + format.num_bytes - 2); break;
      case TensorType::IQ1_M: set_byte(begin + 55, 0x70, 0x20); break;  // of the exponent
      case TensorType::MXFP4: set_byte(begin, 0xfe, 118); break;
      case TensorType::NVFP4: break;  // every scale is finite
      default: put_scale(begin); break;
    }
  }
  return blocks;
}

// Every tensor has random weights of the type that `type_of` chooses, drawn from the seed and the
// tensor's name. A norm is float32 whatever it says. A tensor whose width the block does not divide
// is float32, too, as in GGUF files.
class QuantisedSource final : public WeightSource {
 public:
  using TypeOf = std::function<TensorType(const WeightSpec&)>;
  QuantisedSource(TypeOf type_of, std::uint64_t seed) : type_of_(std::move(type_of)), seed_(seed) {}

  TensorType type(const WeightSpec& spec) const override {
    const TensorType type = type_of_(spec);
    const BlockFormat* format = block_format(type);
    const bool fits =
        format != nullptr && spec.role != WeightRole::Norm && spec.cols % format->num_weights == 0;
    return fits ? type : TensorType::Float32;
  }

  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    const BlockFormat* format = block_format(type(spec));
    for (std::int64_t row = row_begin; row < row_end; ++row, out += spec.cols) {
      if (format == nullptr) {
        Rng rng(seed_ + static_cast<std::uint64_t>(row), spec.name);
        for (std::int64_t k = 0; k < spec.cols; ++k) {
          out[k] = static_cast<float>(rng.uniform() - 0.5);
        }
      } else {
        const std::vector<std::byte> blocks = row_blocks(spec, row);
        dequantise(format->type, blocks.data(), spec.cols / format->num_weights, out);
      }
    }
  }

  void read_blocks(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
                   std::byte* out) const override {
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      for (const std::byte byte : row_blocks(spec, row)) *out++ = byte;
    }
  }

 private:
  std::vector<std::byte> row_blocks(const WeightSpec& spec, std::int64_t row) const {
    Rng rng(seed_ + static_cast<std::uint64_t>(row), spec.name);
    const TensorType stored = type(spec);
    return random_blocks(rng, stored, spec.cols / block_format(stored)->num_weights);
  }

  TypeOf type_of_;
  std::uint64_t seed_;
};

// The weights of another source, all of them float32.
class FloatSource final : public WeightSource {
 public:
  explicit FloatSource(const WeightSource& source) : source_(source) {}
  TensorType type(const WeightSpec&) const override { return TensorType::Float32; }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    source_.read(spec, row_begin, row_end, out);
  }

 private:
  const WeightSource& source_;
};

}  // namespace metronome::testing
