// SPDX-License-Identifier: Apache-2.0
// Log probabilities for tokens of a simulated model, which has none: of the form of real ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/sampling.h"
#include "serve/server/api_request.h"

namespace metronome {

// A token at `position` of its text has these, in the form of SampledToken::logprobs: the token is
// the likeliest, and other tokens of the model follow. They depend on `seed`, `position` and the
// token alone.
std::vector<TokenLogprob> simulated_logprobs(const ServedModel& model, std::uint64_t seed,
                                             std::int64_t position, TokenId token,
                                             std::int32_t num_logprobs);

// The log probabilities of a prompt's token at `position`. The first has none, as nothing precedes
// it.
std::vector<TokenLogprob> simulated_prompt_logprobs(const ServedModel& model, std::uint64_t seed,
                                                    std::span<const TokenId> prompt,
                                                    std::size_t position,
                                                    std::int32_t num_logprobs);

}  // namespace metronome
