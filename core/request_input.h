// What an executor that computes has to know of a request beside its lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "core/sampling.h"
#include "core/workload.h"

namespace metronome {

class RequestInput {
 public:
  virtual ~RequestInput() = default;
  // Writes the prompt, as many ids as the request has prompt tokens.
  virtual void prompt(RequestId request, std::vector<TokenId>& out) const = 0;
  virtual SamplingParams sampling(RequestId request) const = 0;
};

// Prompts of a workload. Every request samples in the same way, with a seed of its own that follows
// from params.seed.
class WorkloadInput final : public RequestInput {
 public:
  // `workload` outlives this. `seed` is the scenario's, of the ids that prompts are drawn from.
  WorkloadInput(const Workload& workload, std::uint64_t seed, std::int64_t vocab_size,
                SamplingParams params);

  void prompt(RequestId request, std::vector<TokenId>& out) const override;
  SamplingParams sampling(RequestId request) const override;

 private:
  const Workload& workload_;
  std::uint64_t seed_;
  std::int64_t vocab_size_;
  SamplingParams params_;
};

}  // namespace metronome
