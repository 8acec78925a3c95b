// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/replica_record.h"

#include <cstdint>
#include <span>

namespace metronome {

RunRecord record_of_replica(const RunRecord& record, std::size_t replica) {
  const ReplicaRecord& part = record.replicas[replica];
  RunRecord own;
  for (auto at = record.steps.from(part.first_step); at.position() < part.end_step(); ++at) {
    StepEntry step = *at;
    const auto first = static_cast<std::size_t>(step.first_prefill_chunk);
    step.first_prefill_chunk = static_cast<std::int32_t>(own.prefills.size());
    for (std::size_t c = 0; c < static_cast<std::size_t>(step.num_prefill_chunks); ++c) {
      own.prefills.push_back(record.prefills[first + c]);
    }
    own.steps.push_back(step);
  }
  own.requests = record.requests;
  own.class_names = record.class_names;
  own.handed_over = record.handed_over;
  own.drafts = record.drafts;
  own.has_encodings = record.has_encodings;
  const auto first_step = static_cast<std::int32_t>(part.first_step);
  for (std::size_t i = 0; i < own.requests.size(); ++i) {
    RequestRecord& request = own.requests[i];
    const bool is_own = record.replica_of[i] == static_cast<std::int32_t>(replica);
    if (!is_own) request = {};
    request.first_run = static_cast<std::uint32_t>(own.runs.size());
    if (!record.first_count.empty()) own.first_count.push_back(own.token_counts.size());
    if (!is_own) continue;
    if (request.max_itl_step >= 0) request.max_itl_step -= first_step;
    for (TokenRun run : record.runs_of(i)) {
      run.first_step -= first_step;
      own.runs.push_back(run);
    }
    const std::span<const std::uint8_t> counts = record.counts_of(i);
    own.token_counts.insert(own.token_counts.end(), counts.begin(), counts.end());
  }
  return own;
}

}  // namespace metronome
