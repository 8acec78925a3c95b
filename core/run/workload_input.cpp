#include "core/run/workload_input.h"

#include <utility>

#include "core/base/rng.h"

namespace metronome {

WorkloadInput::WorkloadInput(const Workload& workload, std::uint64_t seed, std::int64_t vocab_size,
                             SamplingParams params)
    : workload_(workload), seed_(seed), vocab_size_(vocab_size), params_(std::move(params)) {}

void WorkloadInput::prompt(RequestId request, std::vector<TokenId>& out) const {
  workload_.prompt_token_ids(index(request), seed_, vocab_size_, out);
}

SamplingParams WorkloadInput::sampling(RequestId request) const {
  SamplingParams params = params_;
  params.seed = mix64(mix64(params_.seed) ^ index(request));
  return params;
}

}  // namespace metronome
