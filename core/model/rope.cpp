// SPDX-License-Identifier: Apache-2.0
#include "core/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/math.h"

namespace metronome {
namespace {

// Every operation rounds to float where transformers' tensors do, so the results have the same
// bits. Only the power itself may differ, in the last bit.
float llama3_frequency(float frequency, const RopeScaling& scaling) {
  const double positions = static_cast<double>(scaling.original_max_positions);
  const auto longest_kept = static_cast<float>(positions / scaling.high_freq_factor);
  const auto shortest_scaled = static_cast<float>(positions / scaling.low_freq_factor);
  const auto factor = static_cast<float>(scaling.factor);
  const float wavelength = 1.0f / frequency * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > shortest_scaled) return frequency / factor;
  if (wavelength < longest_kept) return frequency;
  const float turns = 1.0f / wavelength * static_cast<float>(positions);
  const float share = (turns - static_cast<float>(scaling.low_freq_factor)) /
                      static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0f - share) * frequency / factor + share * frequency;
}

// The pair that turns `turns` times in the original positions, as a number between pairs.
double yarn_pair(double turns, double num_rotated, double theta, double positions) {
  return num_rotated * log_of(positions / (turns * 2 * std::numbers::pi)) / (2 * log_of(theta));
}

// Scales the frequencies of slow pairs, keeps those of fast ones, with a linear ramp between.
void scale_by_yarn(const RopeScaling& scaling, double theta, std::vector<float>& frequencies) {
  const double num_rotated = 2 * static_cast<double>(frequencies.size());
  const auto positions = static_cast<double>(scaling.original_max_positions);
  double low = yarn_pair(scaling.beta_fast, num_rotated, theta, positions);
  double high = yarn_pair(scaling.beta_slow, num_rotated, theta, positions);
  if (scaling.truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, num_rotated - 1);
  if (low == high) high += 0.001;  // as transformers does, against a division by zero
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float place =
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(place, 0.0f, 1.0f);
    const float slow = frequencies[i] / static_cast<float>(scaling.factor);
    frequencies[i] = slow * (1.0f - kept) + frequencies[i] * kept;
  }
}

bool has_own_base(const ModelConfig& model, bool is_window_layer) {
  return is_window_layer && model.rope_local_theta != 0;
}

// Divides each pair's power of the base. Longer contexts have divisors of their own.
const std::vector<double>& long_factors(const RopeScaling& scaling) {
  return scaling.uses_long_factors ? scaling.long_factors : scaling.short_factors;
}

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& model, bool is_window_layer) {
  std::vector<float> frequencies;
  if (model.has_learned_positions) return frequencies;
  const bool is_local = has_own_base(model, is_window_layer);
  const RopeScaling scaling = is_local ? RopeScaling{} : model.rope_scaling;
  const auto theta = static_cast<float>(is_local ? model.rope_local_theta : model.rope_theta);
  const std::int64_t num_rotated = model.num_rotated();
  for (std::int64_t i = 0; i + 1 < num_rotated; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(num_rotated);
    auto power = static_cast<float>(pow_of(double{theta}, double{exponent}));
    if (scaling.kind == RopeScaling::Kind::LongRope) {
      power *= static_cast<float>(long_factors(scaling)[static_cast<std::size_t>(i / 2)]);
    }
    float frequency = 1.0f / power;
    if (scaling.kind == RopeScaling::Kind::Linear) {
      frequency /= static_cast<float>(scaling.factor);
    } else if (scaling.kind == RopeScaling::Kind::Llama3) {
      frequency = llama3_frequency(frequency, scaling);
    }
    frequencies.push_back(frequency);
  }
  if (scaling.kind == RopeScaling::Kind::Yarn) {
    scale_by_yarn(scaling, double{theta}, frequencies);
  }
  return frequencies;
}

float rope_magnitude(const ModelConfig& model, bool is_window_layer) {
  if (has_own_base(model, is_window_layer)) return 1;
  return static_cast<float>(model.rope_scaling.attention_factor);
}

float query_scale_at(const ModelConfig& model, std::int64_t position) {
  if (model.query_scale_beta == 0) return 1;
  const auto num_stretches = static_cast<double>(position / model.query_scale_positions);
  return static_cast<float>(1 + model.query_scale_beta * log_of(1 + num_stretches));
}

}  // namespace metronome
