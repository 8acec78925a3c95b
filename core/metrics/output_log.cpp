// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/output_log.h"

#include "core/base/rng.h"
#include "core/metrics/digest.h"

namespace metronome {

void OutputLog::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                        const RequestTable&) {
  const StepResult& result = *step.result;
  if (result.failed || result.sampled_tokens.empty()) return;
  has_tokens_ = true;
  for_each_token(chunks, result, [&](const ScheduledChunk& chunk, std::size_t i) {
    if (outputs_.size() <= index(chunk.request)) outputs_.resize(index(chunk.request) + 1);
    Output& output = outputs_[index(chunk.request)];
    output.token_ids.push_back(result.sampled_tokens[i]);
    num_token_bytes_ += sizeof(TokenId);
    if (!result.logprobs.empty() && !result.logprobs[i].empty()) {
      const std::vector<TokenLogprob>& logprobs = result.logprobs[i];
      output.logprobs.push_back(logprobs);
      num_token_bytes_ += sizeof(logprobs) + logprobs.size() * sizeof(TokenLogprob);
    }
  });
}

std::string OutputLog::digest() const {
  if (!has_tokens_) return {};
  std::uint64_t state = 0;
  for (const Output& output : outputs_) {
    state = mix64(state ^ output.token_ids.size());
    for (const TokenId token : output.token_ids) {
      state = mix64(state ^ static_cast<std::uint64_t>(value(token)));
    }
  }
  return hex_digits(state);
}

}  // namespace metronome
