// SPDX-License-Identifier: Apache-2.0
// Causes of slow answers and late first tokens that a run's record shows: what no part of a gap
// has a name for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"

namespace metronome {

class JsonText;

struct Cause {
  std::string_view name;  // "graphs": a key of JSON
  std::string text;       // sentences with numbers
  double share = 0;       // of what the text says first: steps, tokens, requests; 0 to 1
};

// The facts of a run about its settings. `is_simulated`: its step times are those of the scenario's
// cost model.
struct CauseFacts {
  const RunRecord* record = nullptr;
  const Summary* summary = nullptr;
  const Scenario* scenario = nullptr;
  std::int64_t num_blocks = 0;
  bool is_simulated = false;
};

// The causes that are there, in a fixed order; of a run of several engines see fleet_causes.h:
//   graphs     decode steps beyond the largest captured CUDA graph
//   launches   steps with prompts that take as long as the host's launches of their kernels
//   padding    tokens that are computed only to fill up a captured size
//   drafts     drafts that were rejected, and what they took
//   apart      prompts in steps of their own, in rows, while answers stalled
//   slots      more requests may run than the KV cache holds
//   blocks     the queue waits for KV blocks
//   blocking   first tokens that waited for prompts of others
//   priority   requests that waited while less urgent ones ran
//   queue      a queue that grows until requests stop coming
std::vector<Cause> find_causes(const CauseFacts& facts);

void append_causes(const std::vector<Cause>& causes, JsonText& json);

}  // namespace metronome
