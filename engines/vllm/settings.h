// SPDX-License-Identifier: Apache-2.0
// The keys of `scheduler` that vLLM has.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

namespace metronome {

class FieldVisitor;

constexpr std::string_view kVllmPolicies[] = {"fcfs", "priority"};  // by VllmConfig::Policy
// By VllmConfig::version; the last one is the default. rules.h says how they differ.
constexpr std::string_view kVllmVersions[] = {"0.19", "0.20", "0.21", "0.22", "0.23",
                                              "0.24", "0.25", "0.26", "0.27", "0.28",
                                              "0.29", "0.30", "0.31", "0.32", "0.33"};
constexpr int kFirstVllmMinor = 19;
// The first version whose rules for drafts, recurrent states and images are known.
constexpr int kFirstGroupsMinor = 33;

struct VllmConfig {
  enum class Policy : std::uint8_t { Fcfs, Priority };
  int version = static_cast<int>(std::size(kVllmVersions)) - 1;  // index into kVllmVersions
  Policy scheduling_policy = Policy::Fcfs;
  bool enable_chunked_prefill = true;
  std::int32_t long_prefill_token_threshold = 0;  // tokens per request and step; 0 = no limit
  bool scheduler_reserve_full_isl = true;         // admit only if the whole prompt has room
  std::int32_t max_num_active_seqs = 0;           // requests running at once; 0 = max_num_seqs
  // The threshold is at least the budget divided by the requests that run or wait.
  bool long_prefill_token_threshold_adaptive = false;
  // Steps from one with prompt tokens to the next, while requests decode and the queue is short.
  std::int32_t prefill_schedule_interval = 1;
  bool disable_chunked_mm_input = false;  // no chunk ends inside an image

  int minor() const { return kFirstVllmMinor + version; }  // 33 for 0.33
};

void visit_fields(FieldVisitor& visitor, VllmConfig& config);

}  // namespace metronome
