// SPDX-License-Identifier: Apache-2.0
// Figures of each of several engines.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/metrics/summary.h"

namespace metronome {
namespace {

// The gaps between tokens, by the engine that gave them; also of requests that failed.
std::vector<std::vector<WeightedTime>> gaps_by_replica(const RunRecord& record) {
  std::vector<std::vector<WeightedTime>> gaps(record.replicas.size());
  std::size_t r = 0;
  TimeNs before = 0;
  record.steps.for_each_output([&](std::size_t step, const StepHistory::Output& output) {
    while (step >= record.replicas[r].end_step()) ++r;
    const TimeNs gap = output.finished_at - std::exchange(before, output.finished_at);
    if (output.num_continued > 0) gaps[r].push_back({gap, output.num_continued});
  });
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const std::span<const TokenRun> runs = record.runs_of(i);
    for (std::size_t k = 1; k < runs.size(); ++k) {
      const auto last = static_cast<std::size_t>(runs[k - 1].last_step());
      const auto next = static_cast<std::size_t>(runs[k].first_step);
      gaps[static_cast<std::size_t>(record.replica_of[i])].push_back(
          {record.steps.finished_at(next) - record.steps.finished_at(last), 1});
    }
  }
  return gaps;
}

void add_steps(const RunRecord& record, const ReplicaRecord& replica, double duration_ns,
               ReplicaSummary& summary) {
  double block_time = 0;
  std::int64_t peak_blocks = 0;
  TimeNs busy_ns = 0;
  visit_steps(record, replica, [&](const StepEntry& step, TimeNs until) {
    block_time +=
        static_cast<double>(std::max<TimeNs>(until - step.planned_at, 0)) * step.num_used_blocks;
    peak_blocks = std::max<std::int64_t>(peak_blocks, step.num_used_blocks);
    busy_ns += step.duration_ns();
  });
  if (duration_ns <= 0) return;
  const auto blocks = static_cast<double>(std::max<std::int64_t>(replica.num_blocks, 1));
  summary.busy_share = static_cast<double>(busy_ns) / duration_ns;
  summary.mean_kv_use = block_time / duration_ns / blocks;
  summary.peak_kv_use = static_cast<double>(peak_blocks) / blocks;
}

}  // namespace

std::vector<ReplicaSummary> summarize_replicas(const RunRecord& record, const SloConfig& slo) {
  std::vector<ReplicaSummary> summaries(record.replicas.size());
  std::vector<GroupSummary> groups = summarize_by_replica(record, slo);
  std::vector<std::int64_t> num_hits(summaries.size());
  std::vector<std::int64_t> num_admitted(summaries.size());
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (record.replica_of[i] < 0) continue;
    const auto r = static_cast<std::size_t>(record.replica_of[i]);
    const RequestRecord& request = record.requests[i];
    num_hits[r] += request.num_prefix_hit_tokens;
    if (request.first_scheduled != kNoTime) num_admitted[r] += request.num_prompt_tokens;
    if (!request.completed()) continue;
    summaries[r].total_input_tokens += request.num_prompt_tokens;
    summaries[r].total_output_tokens += request.num_output_tokens;
  }
  std::vector<std::vector<WeightedTime>> gaps = gaps_by_replica(record);
  const auto duration_ns = static_cast<double>(run_duration(record));
  for (std::size_t r = 0; r < summaries.size(); ++r) {
    ReplicaSummary& summary = summaries[r];
    summary.requests = std::move(groups[r]);
    summary.itl = describe(gaps[r]);
    if (num_admitted[r] > 0) {
      summary.prefix_hit_rate =
          static_cast<double>(num_hits[r]) / static_cast<double>(num_admitted[r]);
    }
    add_steps(record, record.replicas[r], duration_ns, summary);
  }
  return summaries;
}

}  // namespace metronome
