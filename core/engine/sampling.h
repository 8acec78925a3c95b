// From logits to a token. A draw depends on the request's seed and the position of the token, and
// on nothing else: not on the batch, the step, or how often the request was preempted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// The meaning of each is vLLM's SamplingParams.
struct SamplingParams {
  double temperature = 0;  // >= 0; 0 = greedy
  std::int32_t top_k = 0;  // keep the k likeliest tokens; 0 = all
  double top_p = 1;        // (0, 1]; keep the likeliest tokens that together reach this share
  double min_p = 0;        // [0, 1]; keep tokens at least this share as likely as the likeliest
  std::uint64_t seed = 0;  // of the request
  std::vector<TokenId> stop_token_ids = {};  // a request that samples one of them ends with it
  bool ignore_eos = false;                   // do not end at the model's end-of-text tokens
  std::int32_t num_logprobs = -1;  // likeliest tokens to report beside the sampled; -1 = none
};

struct TokenLogprob {
  TokenId token{};
  float logprob = 0;  // natural logarithm of the softmax of the logits as the model gives them

  bool operator==(const TokenLogprob&) const = default;
};

struct SampledToken {
  TokenId token{};
  // With num_logprobs >= 0: the sampled token, then the num_logprobs likeliest in descending order
  // (of equals the lower id first).
  std::vector<TokenLogprob> logprobs;
};

// Samples from logits [vocab_size]. `position` is that of the new token in its request (prompt
// included), so that a recomputed request draws again what it drew before.
//
// Greedy takes the largest logit, of equals the lowest id. Otherwise: divide by temperature; drop
// by min_p; keep the top_k; of what is left, renormalised, keep the shortest prefix in descending
// order that reaches top_p, at least one; draw by one uniform number from the inverse of the
// distribution in order of id. Of equal logits the lower id counts as the likelier, where vLLM
// keeps all that tie with the k-th and cuts ties at top_p in no certain order.
//
// The same logits give the same bits on every compiler and machine: arithmetic is double, the order
// of every sum is fixed, and no function of the C library is used, whose results differ between
// versions and processors.
//
// Requires parameters within their ranges. Throws std::runtime_error if a logit is not finite.
// Cost: O(vocab_size + n log n), where n is top_k and num_logprobs.
class Sampler {
 public:
  SampledToken sample(std::span<const float> logits, const SamplingParams& params,
                      std::int64_t position);

  // What sample() reports beside `token`, where it was sampled elsewhere. Requires num_logprobs >=
  // 0.
  std::vector<TokenLogprob> logprobs(std::span<const float> logits, TokenId token,
                                     std::int32_t num_logprobs);

 private:
  std::int32_t draw(std::span<const float> logits, float largest, const SamplingParams& params,
                    std::int64_t position);
  void collect_likeliest(std::span<const float> logits, std::size_t count);
  void drop_by_top_p(std::span<const float> logits, double top_p);

  // Scratch, kept from call to call.
  std::vector<std::int32_t> kept_ids_;  // by top_k, in order of id
  std::vector<float> kept_logits_;      // theirs
  std::vector<double> weights_;         // of all tokens, or of the kept ones; 0 = dropped
  std::vector<std::uint64_t> keys_;
};

// The uniform number in [0, 1) of a draw: a multiple of 2^-53.
double sampling_uniform(std::uint64_t seed, std::int64_t position);

}  // namespace metronome
