// SPDX-License-Identifier: Apache-2.0
// The plan of each step of a bench, and prompts that share prefixes.
#pragma once

#include <utility>
#include <vector>

#include "core/engine/kv/prefix_hash.h"
#include "core/workload/workload.h"
#include "tests/engine_harness.h"

namespace metronome::testing {

// The request and the tokens of each chunk, in the order of the plan.
using Planned = std::vector<std::pair<int, int>>;

inline Planned planned_by(const StepPlan& plan) {
  Planned planned;
  for (const ScheduledChunk& chunk : plan.chunks) {
    planned.emplace_back(static_cast<int>(index(chunk.request)), chunk.num_tokens);
  }
  return planned;
}

// Makes a step and returns what was launched; nothing if nothing was.
inline Planned step(Bench& bench) {
  const std::size_t num_before = bench.executor.plans.size();
  bench.engine.step();
  bench.engine.check_integrity();
  if (bench.executor.plans.size() == num_before) return {};
  return planned_by(bench.executor.plans.back());
}

inline std::vector<int> preempted_last(const Bench& bench) {
  std::vector<int> ids;
  for (const RequestId id : bench.executor.plans.back().preempted) {
    ids.push_back(static_cast<int>(index(id)));
  }
  return ids;
}

// Prompts in order of submission, each of runs of tokens {content, tokens}: prompts that begin with
// the same content share that prefix. Later prompts are unique.
class SharedPrompts {
 public:
  explicit SharedPrompts(const std::vector<std::vector<PromptSegment>>& prompts) {
    workload_.segment_begin.push_back(0);
    for (const std::vector<PromptSegment>& prompt : prompts) {
      for (const PromptSegment& segment : prompt) workload_.segments.push_back(segment);
      workload_.segment_begin.push_back(static_cast<std::uint32_t>(workload_.segments.size()));
    }
  }
  SharedPrompts(const SharedPrompts&) = delete;
  SharedPrompts& operator=(const SharedPrompts&) = delete;

  const PrefixHasher* hasher() const { return &hasher_; }

 private:
  Workload workload_;
  PrefixHasher hasher_{&workload_};
};

}  // namespace metronome::testing
