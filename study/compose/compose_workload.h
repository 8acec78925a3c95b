// SPDX-License-Identifier: Apache-2.0
// The workload of a scenario that is composed from options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/compose/scenario_request.h"
#include "study/compose/yaml_draft.h"

namespace metronome {

struct ComposedWorkload {
  const WorkloadPreset* preset = nullptr;  // whose lengths these are; nullptr: none
  std::int64_t longest = 0;                // tokens of the longest request; 0: a file's
};

// Sets the keys of `workload`. `context` is the longest request that the server takes, in tokens.
// Of `num_ranks` equal engines, the workload is the share of one. Throws UsageError for options
// that contradict each other.
ComposedWorkload set_workload(const ScenarioRequest& request, std::int64_t num_ranks,
                              std::int64_t context,
                              YamlDraft& draft, std::vector<std::string>& notes);

}  // namespace metronome
