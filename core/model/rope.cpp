#include "core/model/rope.h"

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

}  // namespace

std::vector<float> rope_frequencies(const ModelConfig& model, bool is_window_layer) {
  const bool is_local = is_window_layer && model.rope_local_theta != 0;
  const auto theta = static_cast<float>(is_local ? model.rope_local_theta : model.rope_theta);
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i + 1 < model.head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(model.head_dim);
    const auto power = static_cast<float>(pow_of(double{theta}, double{exponent}));
    float frequency = 1.0f / power;
    if (!is_local && model.rope_scaling.kind == RopeScaling::Kind::Linear) {
      frequency /= static_cast<float>(model.rope_scaling.factor);
    } else if (!is_local && model.rope_scaling.kind == RopeScaling::Kind::Llama3) {
      frequency = llama3_frequency(frequency, model.rope_scaling);
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace metronome
