// Prompts and sampling parameters of the requests of a workload.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/request_input.h"
#include "core/workload/workload.h"

namespace metronome {

// The requests of a workload as RequestInput. Every request samples in the same way, with its own
// seed derived from params.seed.
class WorkloadInput final : public RequestInput {
 public:
  // `workload` must outlive this. `seed` is the scenario's; it determines the token ids of prompts.
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
