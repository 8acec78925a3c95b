// SPDX-License-Identifier: Apache-2.0
#include "models/weights/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/core.h>
#include <numbers>
#include <string>
#include <vector>

#include "core/base/math.h"

namespace metronome {
namespace {

using Kind = RopeScaling::Kind;

constexpr const char* kLlama3Divisors = "rope_freqs.weight";
constexpr const char* kShortDivisors = "rope_factors_short.weight";
constexpr const char* kLongDivisors = "rope_factors_long.weight";

// The divisors that Llama 3's rule gives each pair (conversion/llama.py of llama.cpp).
std::vector<double> llama3_divisors(const ModelConfig& model, const RopeScaling& scaling) {
  std::vector<double> divisors;
  const double positions = static_cast<double>(scaling.original_max_positions);
  for (std::int64_t i = 0; i + 1 < model.head_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(model.head_dim);
    const double wavelength = 2 * std::numbers::pi * pow_of(model.rope_theta, exponent);
    if (wavelength < positions / scaling.high_freq_factor) {
      divisors.push_back(1);
    } else if (wavelength > positions / scaling.low_freq_factor) {
      divisors.push_back(scaling.factor);
    } else {
      const double smooth = (positions / wavelength - scaling.low_freq_factor) /
                            (scaling.high_freq_factor - scaling.low_freq_factor);
      divisors.push_back(1 / ((1 - smooth) / scaling.factor + smooth));
    }
  }
  return divisors;
}

std::vector<float> divisors_of(const GgufFile& file, const GgufTensor& tensor,
                               std::int64_t num_rotated) {
  const auto num_pairs = static_cast<std::size_t>(num_rotated / 2);
  if (tensor.type->name != "F32" || tensor.shape.size() != 1 ||
      tensor.bytes.size() != num_pairs * sizeof(float)) {
    file.fail(tensor.name,
              fmt::format("has another type or shape; allowed: F32, one for each of {} pairs",
                          num_pairs));
  }
  std::vector<float> divisors(num_pairs);
  if (num_pairs > 0) std::memcpy(divisors.data(), tensor.bytes.data(), tensor.bytes.size());
  return divisors;
}

// Every published Llama 3 has factors 1 and 4; the other two numbers are found by trying.
RopeScaling find_llama3_scaling(const std::vector<float>& divisors, const ModelConfig& model) {
  RopeScaling scaling;
  scaling.factor = as_written(*std::max_element(divisors.begin(), divisors.end()));
  scaling.kind = Kind::Llama3;
  for (std::int64_t positions = 16; positions <= 1 << 20; positions *= 2) {
    scaling.original_max_positions = positions;
    const std::vector<double> expected = llama3_divisors(model, scaling);
    constexpr double kTolerance = 1e-4;  // the file's were computed in float32
    if (std::equal(divisors.begin(), divisors.end(), expected.begin(), expected.end(),
                   [](double stored, double computed) {
                     return std::abs(stored - computed) <= kTolerance * computed;
                   })) {
      return scaling;
    }
  }
  return {};
}

void read_llama3(const GgufFile& file, ModelConfig& model) {
  const GgufTensor* tensor = file.find_tensor(kLlama3Divisors);
  if (tensor == nullptr || model.head_dim < 2 || model.rope_theta < 1) return;
  const std::vector<float> divisors = divisors_of(file, *tensor, model.head_dim);
  if (std::all_of(divisors.begin(), divisors.end(), [](float d) { return d == 1; })) return;
  if (model.rope_scaling.kind == Kind::None) {
    model.rope_scaling = find_llama3_scaling(divisors, model);
  }
  if (model.rope_scaling.kind != Kind::Llama3) {
    model.refuse(kLlama3Divisors,
                 "holds other divisors than those of Llama 3; allowed: Llama 3's rule with "
                 "factors 1 and 4");
  }
}

std::int64_t original_positions(const GgufKeys& keys, const ModelConfig& model) {
  return keys.integer("rope.scaling.original_context_length")
      .value_or(model.max_position_embeddings);
}

void read_yarn(const GgufKeys& keys, double factor, ModelConfig& model) {
  RopeScaling& scaling = model.rope_scaling;
  scaling.kind = Kind::Yarn;
  scaling.factor = factor == 0 ? 1 : factor;
  scaling.original_max_positions = original_positions(keys, model);
  scaling.beta_fast = keys.number("rope.scaling.yarn_beta_fast").value_or(32);
  scaling.beta_slow = keys.number("rope.scaling.yarn_beta_slow").value_or(1);
  // The rule of arXiv 2309.00071, section 3.4.
  const double by_rule = scaling.factor <= 1 ? 1 : 0.1 * log_of(scaling.factor) + 1;
  scaling.attention_factor = keys.number("rope.scaling.yarn_attn_factor").value_or(by_rule) *
                             keys.number("rope.scaling.attn_factor").value_or(1);
  const auto refuse_other = [&](const char* key, double usual) {
    if (keys.number(key).value_or(usual) == usual) return;
    model.refuse(keys.full(key), fmt::format("is not supported; allowed: {}", std::llround(usual)));
  };
  refuse_other("rope.scaling.yarn_ext_factor", 1);
  refuse_other("rope.scaling.yarn_log_multiplier", 0);
}

std::vector<double> long_rope_divisors(const GgufFile& file, const GgufTensor& tensor,
                                       const ModelConfig& model) {
  std::vector<double> divisors;
  for (const float divisor : divisors_of(file, tensor, model.num_rotated())) {
    divisors.push_back(as_written(divisor));
  }
  return divisors;
}

void read_long_rope(const GgufFile& file, const GgufKeys& keys, ModelConfig& model) {
  const GgufTensor* const of_short = file.find_tensor(kShortDivisors);
  const GgufTensor* const of_long = file.find_tensor(kLongDivisors);
  if (of_short == nullptr || of_long == nullptr) {
    model.refuse(of_short == nullptr ? kShortDivisors : kLongDivisors,
                 "is missing; allowed: a divisor for each rotated pair");
    return;
  }
  RopeScaling& scaling = model.rope_scaling;
  scaling.kind = Kind::LongRope;
  scaling.short_factors = long_rope_divisors(file, *of_short, model);
  scaling.long_factors = long_rope_divisors(file, *of_long, model);
  scaling.original_max_positions = original_positions(keys, model);
  scaling.attention_factor = keys.number("rope.scaling.attn_factor").value_or(1);
}

}  // namespace

void read_gguf_rope(const GgufFile& file, const GgufKeys& keys, ModelConfig& model) {
  model.rope_theta = keys.number("rope.freq_base").value_or(1e4);
  const double factor =
      keys.number("rope.scaling.factor").value_or(keys.number("rope.scale_linear").value_or(0));
  const std::string kind = keys.text_or("rope.scaling.type", "linear");
  // Phi-3's files have no type.
  const bool has_long_factors =
      file.find_tensor(kShortDivisors) != nullptr || file.find_tensor(kLongDivisors) != nullptr;
  if (kind == "longrope" || has_long_factors) {
    read_long_rope(file, keys, model);
  } else if (kind == "yarn") {
    read_yarn(keys, factor, model);
  } else if (kind == "linear" && factor != 0 && factor != 1) {
    model.rope_scaling.kind = Kind::Linear;
    model.rope_scaling.factor = factor;
  } else if (kind != "none" && kind != "linear") {
    model.refuse(keys.full("rope.scaling.type"),
                 gguf_shown(kind) + " is not supported; allowed: none, linear, yarn, longrope");
  }
  read_llama3(file, model);
}

}  // namespace metronome
