// SPDX-License-Identifier: Apache-2.0
// Prompts and sampling parameters of the requests of a workload.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/engine/request_input.h"
#include "core/model/layer_parts.h"
#include "core/workload/workload.h"

namespace metronome {

// The requests of a workload as RequestInput. Every request samples in the same way, with its own
// seed derived from params.seed.
class WorkloadInput final : public RequestInput {
 public:
  // `workload` must outlive this. `seed` is the scenario's; it determines the token ids of prompts.
  // `tower` is the model's, for workloads with images.
  WorkloadInput(const Workload& workload, std::uint64_t seed, std::int64_t vocab_size,
                SamplingParams params, const VisionTower& tower = {});

  void prompt(RequestId request, std::vector<TokenId>& out) const override;
  SamplingParams sampling(RequestId request) const override;
  // An image of which only the number of tokens is known has the squarest of all such grids.
  std::span<const PromptImage> images(RequestId request) const override;

 private:
  const Workload& workload_;
  std::uint64_t seed_;
  std::int64_t vocab_size_;
  SamplingParams params_;
  VisionTower tower_;
  mutable std::map<RequestId, std::vector<PromptImage>> images_;  // of requests that were asked for
};

}  // namespace metronome
