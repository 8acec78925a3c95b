// SPDX-License-Identifier: Apache-2.0
// Weights drawn from a seed, each element independently.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "models/weights/float16.h"
#include "models/weights/model_weights.h"

namespace metronome {
namespace {

bool is_norm_bias(const WeightSpec& spec) {
  return spec.role == WeightRole::Bias && spec.name.find("norm") != std::string::npos;
}

class RandomWeights final : public WeightSource {
 public:
  RandomWeights(const ModelConfig& model, std::uint64_t seed)
      : seed_(seed),
        type_(model.bytes_per_weight == 2 ? TensorType::BFloat16 : TensorType::Float32),
        norm_(model.has_unit_offset_norms ? 0.0f : 1.0f) {}

  TensorType type(const WeightSpec&) const override { return type_; }

  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    METRONOME_CHECK(0 <= row_begin && row_begin <= row_end && row_end <= spec.rows,
                    "rows outside of the tensor");
    const auto first = static_cast<std::uint64_t>(row_begin * spec.cols);
    const auto count = static_cast<std::uint64_t>((row_end - row_begin) * spec.cols);
    if (spec.role == WeightRole::Norm || spec.role == WeightRole::GatedNorm) {
      std::fill_n(out, count, spec.role == WeightRole::Norm ? norm_ : 1.0f);
      return;
    }
    if (is_norm_bias(spec)) {
      std::fill_n(out, count, 0.0f);
      return;
    }
    const std::uint64_t key = random_weight_key(seed_, spec.name);
    const float scale = random_weight_scale(spec.cols);
    for (std::uint64_t i = 0; i < count; ++i) {
      const float drawn = random_weight(key, first + i, scale);
      out[i] = type_ == TensorType::BFloat16 ? float_of_bf16(bf16_of_float(drawn)) : drawn;
    }
  }

 private:
  std::uint64_t seed_;
  TensorType type_;
  float norm_;
};

}  // namespace

std::uint64_t random_weight_key(std::uint64_t seed, const std::string& name) {
  return Rng(seed, name)();
}

float random_weight_scale(std::int64_t cols) { return std::sqrt(3.0f / static_cast<float>(cols)); }

float random_weight(std::uint64_t key, std::uint64_t element, float scale) {
  // 2^24 values around zero. Every operation except the last product is exact.
  const auto drawn = static_cast<std::int32_t>(mix64(key + element) >> 40);
  return static_cast<float>(drawn - (1 << 23)) * 0x1p-23f * scale;
}

std::unique_ptr<WeightSource> random_weights(const ModelConfig& model, std::uint64_t seed) {
  return std::make_unique<RandomWeights>(model, seed);
}

}  // namespace metronome
