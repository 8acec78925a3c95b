// SPDX-License-Identifier: Apache-2.0
// Samples a token from logits. A draw depends only on the request's seed and the token's position.
// It is independent of the batch, the step and the number of preemptions.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// The parameters have the meaning of vLLM's SamplingParams.
struct SamplingParams {
  double temperature = 0;  // >= 0; 0 = greedy
  std::int32_t top_k = 0;  // keep the k likeliest tokens; 0 = all
  double top_p = 1;        // (0, 1]; keep the likeliest tokens with this total probability
  double min_p = 0;        // [0, 1]; minimum probability relative to the likeliest token
  // Subtracted from the logit of each token of the answer: once, and for each time it is there.
  double presence_penalty = 0;
  double frequency_penalty = 0;
  // > 0. Positive logits of tokens of the prompt and the answer are divided by it, others
  // multiplied.
  double repetition_penalty = 1;
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to the logits of tokens
  std::uint64_t seed = 0;                                  // of the request
  std::vector<TokenId> stop_token_ids = {};                // sampling one of them ends the request
  bool ignore_eos = false;         // continue after the model's end-of-text tokens
  std::int32_t num_logprobs = -1;  // likeliest tokens to report in addition; -1 = none

  // By a bias or a penalty.
  bool changes_logits() const {
    return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1 ||
           !logit_bias.empty();
  }
};

// The text before a sampled token, of which penalties speak.
struct PrecedingText {
  std::span<const TokenId> token_ids;  // prompt and answer
  std::size_t num_prompt_tokens = 0;
};

struct TokenLogprob {
  TokenId token{};
  float logprob = 0;  // natural logarithm of the softmax of the model's logits

  bool operator==(const TokenLogprob&) const = default;
};

struct SampledToken {
  TokenId token{};
  // With num_logprobs >= 0: the sampled token, then the num_logprobs likeliest in descending order
  // (ties: the lower id first).
  std::vector<TokenLogprob> logprobs;
};

// Samples from logits [vocab_size]. `position` is the new token's position in its request (prompt
// included), so a recomputed request repeats its draws.
//
// First the bias changes the logits, then the penalties do: repetition, frequency, presence, as in
// vLLM. They look at the request's own text alone. A changed logit stays in the range of floats.
// Greedy takes the largest logit; ties take the lowest id. Otherwise it divides by temperature,
// drops tokens by min_p and keeps the top_k. Of the renormalised rest it keeps the shortest prefix
// in descending order that reaches top_p, at least one token. Then it inverts the cumulative
// distribution, in order of id, with one uniform number. Of equal logits the lower id counts as
// likelier. vLLM instead keeps all ties with the k-th and cuts ties at top_p in no defined order.
//
// The same logits give the same bits on every compiler and machine. Arithmetic is double, the order
// of every sum is fixed, and no C library function is used, because their results differ between
// versions and processors.
//
// Requires parameters within their ranges. Throws std::runtime_error if a logit is not finite.
// Cost: O(vocab_size + n log n), where n is top_k and num_logprobs.
class Sampler {
 public:
  SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                      std::int64_t position, const PrecedingText& text = {});

  // The log probabilities that sample() reports, for a `token` sampled elsewhere: those of the
  // model's logits, without bias and penalties. Requires num_logprobs >= 0.
  std::vector<TokenLogprob> logprobs(std::span<const float> logits, TokenId token,
                                     std::int32_t num_logprobs);

 private:
  std::span<const float> adjusted(std::span<const float> logits, const SamplingParams& params,
                                  const PrecedingText& text);
  std::int32_t draw(std::span<const float> logits, float largest, const SamplingParams& params,
                    std::int64_t position);
  void collect_likeliest(std::span<const float> logits, std::size_t count);
  void drop_by_top_p(std::span<const float> logits, double top_p);

  // Buffers reused between calls.
  std::vector<float> adjusted_;         // logits with bias and penalties
  std::vector<std::int32_t> counts_;    // by id: how often a token is in the text
  std::vector<std::int32_t> kept_ids_;  // by top_k, in order of id
  std::vector<float> kept_logits_;      // logits of kept_ids_
  std::vector<double> weights_;         // of all tokens, or of the kept ones; 0 = dropped
  std::vector<std::uint64_t> keys_;
};

// The uniform number in [0, 1) of a draw: a multiple of 2^-53.
double sampling_uniform(std::uint64_t seed, std::int64_t position);

}  // namespace metronome
