// SPDX-License-Identifier: Apache-2.0
#include "serve/server/simulated_logprobs.h"

#include <algorithm>

#include "core/base/rng.h"
#include "models/text/tokenizer.h"

namespace metronome {

std::vector<TokenLogprob> simulated_logprobs(const ServedModel& model, std::uint64_t seed,
                                             std::int64_t position, TokenId token,
                                             std::int32_t num_logprobs) {
  const std::uint64_t bits = mix64(mix64(seed ^ static_cast<std::uint64_t>(value(token))) ^
                                   static_cast<std::uint64_t>(position));
  // The token has at least 0.6 of the probability, and the others together less than the rest.
  const TokenLogprob first{token, static_cast<float>(-0.5 * unit_of(bits))};
  std::vector<TokenLogprob> logprobs = {first};
  if (num_logprobs > 0) logprobs.push_back(first);
  const auto num_tokens = static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::min(model.vocab_size, model.tokenizer->vocab_size()), 1));
  double logprob = -2 - unit_of(mix64(bits));
  // A small vocabulary may have fewer tokens.
  for (std::uint64_t i = 1; i <= 128 && std::ssize(logprobs) <= num_logprobs; ++i) {
    const auto other = static_cast<TokenId>(mix64(bits + i) % num_tokens);
    const bool is_there =
        std::any_of(logprobs.begin(), logprobs.end(),
                    [other](const TokenLogprob& entry) { return entry.token == other; });
    if (is_there || model.tokenizer->is_special(other)) continue;
    logprobs.push_back({other, static_cast<float>(logprob)});
    logprob -= 0.7;
  }
  return logprobs;
}

std::vector<TokenLogprob> simulated_prompt_logprobs(const ServedModel& model, std::uint64_t seed,
                                                    std::span<const TokenId> prompt,
                                                    std::size_t position,
                                                    std::int32_t num_logprobs) {
  if (position == 0) return {};
  return simulated_logprobs(model, seed, static_cast<std::int64_t>(position), prompt[position],
                            num_logprobs);
}

}  // namespace metronome
