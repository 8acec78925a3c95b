// SPDX-License-Identifier: Apache-2.0
#include "core/engine/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "core/base/bits.h"
#include "core/base/error.h"
#include "core/engine/sampling_math.h"

namespace metronome {
namespace {

// Writes the keys of the `count` likeliest tokens to `keys`, in no defined order. It shrinks the
// collected keys from time to time, so most tokens cost one comparison.
void select_likeliest(std::span<const float> logits, std::size_t count,
                      std::vector<std::uint64_t>& keys) {
  const std::size_t limit = 2 * count + 1024;
  std::uint64_t smallest = 0;
  const auto thin_out = [&] {
    const auto last = keys.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(keys.begin(), last, keys.end(), std::greater<>());
    smallest = *last;
    keys.resize(count);
  };
  keys.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const std::uint64_t key = key_of(logits[i], i);
    if (key <= smallest) continue;
    keys.push_back(key);
    if (keys.size() == limit) thin_out();
  }
  thin_out();
}

void check_finite(std::span<const float> logits, std::int64_t position) {
  std::uint32_t carries = 0;  // carries into the sign bit, from an exponent of all ones
  for (const float logit : logits) {
    carries |= (bits_as<std::uint32_t>(logit) & 0x7fffffffu) + 0x00800000u;
  }
  if ((carries >> 31) == 0) return;
  const auto bad = std::find_if_not(logits.begin(), logits.end(),
                                    [](float logit) { return std::isfinite(logit); });
  throw std::runtime_error(fmt::format("the logit of token {} at position {} is {}",
                                       bad - logits.begin(), position, std::to_string(*bad)));
}

// The largest of some logits. Compares in strides, of which compilers make vectors.
float largest_of(std::span<const float> logits) {
  constexpr std::size_t kStride = 16;
  std::array<float, kStride> largest;
  largest.fill(logits[0]);
  std::size_t i = 0;
  for (; i + kStride <= logits.size(); i += kStride) {
    for (std::size_t j = 0; j < kStride; ++j) {
      largest[j] = logits[i + j] > largest[j] ? logits[i + j] : largest[j];
    }
  }
  for (; i < logits.size(); ++i) largest[0] = std::max(largest[0], logits[i]);
  return *std::max_element(largest.begin(), largest.end());
}

// The first of the likeliest tokens.
std::size_t likeliest_of(std::span<const float> logits) {
  constexpr std::size_t kPart = 4096;  // the token is searched in one part only
  std::span<const float> best;
  float largest = 0;
  for (std::size_t first = 0; first < logits.size(); first += kPart) {
    const std::span<const float> part =
        logits.subspan(first, std::min(kPart, logits.size() - first));
    const float of_part = largest_of(part);
    if (!best.empty() && of_part <= largest) continue;
    best = part;
    largest = of_part;
  }
  const auto found = std::find(best.begin(), best.end(), largest) - best.begin();
  return static_cast<std::size_t>(best.data() - logits.data() + found);
}

// Each token's probability relative to the likeliest token, whose weight is 1.
void weigh(std::span<const float> logits, float largest, double temperature,
           std::vector<double>& weights) {
  weights.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    weights[i] = exp_of_negative((static_cast<double>(logits[i]) - largest) / temperature);
  }
}

float narrowed(double logit) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(logit, -kLargest, kLargest));
}

// How often each token is in a text.
void count_tokens(std::span<const TokenId> token_ids, std::size_t vocab_size,
                  std::vector<std::int32_t>& counts) {
  counts.assign(vocab_size, 0);
  for (const TokenId id : token_ids) {
    if (static_cast<std::size_t>(value(id)) < vocab_size)
      ++counts[static_cast<std::size_t>(value(id))];
  }
}

double sum_of(const std::vector<double>& weights) {
  return std::accumulate(weights.begin(), weights.end(), 0.0);
}

}  // namespace

double sampling_uniform(std::uint64_t seed, std::int64_t position) {
  return uniform_of(seed, position);
}

SampledToken Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                             std::int64_t position, const PrecedingText& text) {
  METRONOME_CHECK(!logits.empty() && logits.size() <= INT32_MAX, "there are tokens to choose from");
  METRONOME_CHECK(params.temperature >= 0 && params.top_k >= 0 && params.top_p > 0 &&
                      params.top_p <= 1 && params.min_p >= 0 && params.min_p <= 1 &&
                      params.repetition_penalty > 0,
                  "sampling parameters are validated before");
  check_finite(logits, position);
  const std::span<const float> changed =
      params.changes_logits() ? adjusted(logits, params, text) : logits;
  SampledToken sampled;
  sampled.token = params.temperature == 0
                      ? TokenId{static_cast<std::int32_t>(likeliest_of(changed))}
                      : TokenId{draw(changed, largest_of(changed), params, position)};
  if (params.num_logprobs >= 0) {
    sampled.logprobs = logprobs(logits, sampled.token, params.num_logprobs);
  }
  return sampled;
}

std::span<const float> Sampler::adjusted(std::span<const float> logits,
                                         const SamplingParams& params, const PrecedingText& text) {
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias) {
    float& logit = adjusted_.at(static_cast<std::size_t>(value(id)));
    logit = narrowed(static_cast<double>(logit) + bias);
  }
  if (params.repetition_penalty != 1) {
    count_tokens(text.token_ids, logits.size(), counts_);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (counts_[i] == 0) continue;
      const double logit = adjusted_[i];
      adjusted_[i] = narrowed(logit > 0 ? logit / params.repetition_penalty
                                        : logit * params.repetition_penalty);
    }
  }
  if (params.presence_penalty != 0 || params.frequency_penalty != 0) {
    count_tokens(text.token_ids.subspan(text.num_prompt_tokens), logits.size(), counts_);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (counts_[i] == 0) continue;
      adjusted_[i] =
          narrowed(adjusted_[i] - params.frequency_penalty * counts_[i] - params.presence_penalty);
    }
  }
  return adjusted_;
}

// min_p and top_k each keep a prefix of the tokens in descending order, so their order does not
// matter. Applying top_k first reduces the tokens to weigh. Tokens dropped later get weight 0.
std::int32_t Sampler::draw(std::span<const float> logits, float largest,
                           const SamplingParams& params, std::int64_t position) {
  const auto count = static_cast<std::size_t>(params.top_k);
  const bool is_cut = count > 0 && count < logits.size();
  if (is_cut) collect_likeliest(logits, count);
  const std::span<const float> kept = is_cut ? kept_logits_ : logits;
  weigh(kept, largest, params.temperature, weights_);
  if (params.min_p > 0) {
    for (double& weight : weights_) weight = weight >= params.min_p ? weight : 0;
  }
  if (params.top_p < 1) drop_by_top_p(kept, params.top_p);

  const double target = sampling_uniform(params.seed, position) * sum_of(weights_);
  double reached = 0;
  std::size_t drawn = 0;
  for (std::size_t i = 0; i < kept.size() && reached <= target; ++i) {
    if (weights_[i] == 0) continue;
    drawn = i;  // the last token, if rounding raised the target to the sum
    reached += weights_[i];
  }
  return is_cut ? kept_ids_[drawn] : static_cast<std::int32_t>(drawn);
}

void Sampler::collect_likeliest(std::span<const float> logits, std::size_t count) {
  select_likeliest(logits, count, keys_);
  kept_ids_.clear();
  for (const std::uint64_t key : keys_) {
    kept_ids_.push_back(static_cast<std::int32_t>(index_of(key)));
  }
  std::sort(kept_ids_.begin(), kept_ids_.end());
  kept_logits_.clear();
  for (const std::int32_t id : kept_ids_)
    kept_logits_.push_back(logits[static_cast<std::size_t>(id)]);
}

// Finds the key of the last kept token digit by digit, without sorting. For each digit it adds up
// the weights, finds the digit where they reach `needed`, and continues with the keys of that
// digit.
void Sampler::drop_by_top_p(std::span<const float> logits, double top_p) {
  const double needed = top_p * sum_of(weights_);
  keys_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (weights_[i] > 0) keys_.push_back(key_of(logits[i], i));
  }
  std::uint64_t last = 0;
  double reached = 0;  // weight of the tokens before those in keys_
  for (int shift = 56; shift >= 0; shift -= 8) {
    std::array<double, 256> sums{};
    for (const std::uint64_t key : keys_) sums[key >> shift & 255] += weights_[index_of(key)];
    std::size_t digit = 256;
    while (digit > 0 && reached + sums[digit - 1] < needed) reached += sums[--digit];
    if (digit == 0) break;  // through rounding the parts are less than their sum: keep all of them
    last |= std::uint64_t{--digit} << shift;
    std::erase_if(keys_, [&](std::uint64_t key) { return key >> shift != last >> shift; });
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (key_of(logits[i], i) < last) weights_[i] = 0;
  }
}

std::vector<TokenLogprob> Sampler::logprobs(std::span<const float> logits, TokenId token,
                                            std::int32_t num_logprobs) {
  const float largest = largest_of(logits);
  weigh(logits, largest, 1, weights_);
  const double log_total = log_of(sum_of(weights_));
  std::vector<TokenLogprob> logprobs;
  const auto add = [&](std::size_t id) {
    const double logprob = (static_cast<double>(logits[id]) - largest) - log_total;
    logprobs.push_back({TokenId{static_cast<std::int32_t>(id)}, static_cast<float>(logprob)});
  };
  add(static_cast<std::size_t>(value(token)));
  const std::size_t count = std::min(static_cast<std::size_t>(num_logprobs), logits.size());
  if (count == 0) return logprobs;
  select_likeliest(logits, count, keys_);
  std::sort(keys_.begin(), keys_.end(), std::greater<>());
  for (const std::uint64_t key : keys_) add(index_of(key));
  return logprobs;
}

}  // namespace metronome
