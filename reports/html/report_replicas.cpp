// SPDX-License-Identifier: Apache-2.0
// The report's data of the replicas of a fleet: a heat map over time, and the steps of each.
#include <algorithm>
#include <vector>

#include "reports/html/report_columns.h"
#include "reports/html/report_data.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxBins = 240;
constexpr std::size_t kMaxReplicas = 256;  // in the heat map
constexpr std::size_t kMaxReplicasWithSteps = 64;
constexpr double kPermille = 1000;

// The work of a replica in each of equal spans of time: sums over nanoseconds.
struct Bins {
  explicit Bins(std::size_t count) : busy(count), running(count), waiting(count), blocks(count) {}

  // `amount` holds from `begin` until `end`.
  static void add(std::vector<double>& sums, TimeNs width, TimeNs begin, TimeNs end,
                  double amount) {
    for (TimeNs at = begin; at < end;) {
      const auto bin = std::min(static_cast<std::size_t>(at / width), sums.size() - 1);
      const TimeNs next = std::min(end, static_cast<TimeNs>(bin + 1) * width);
      const TimeNs until = next > at ? next : end;
      sums[bin] += amount * static_cast<double>(until - at);
      at = until;
    }
  }

  std::vector<double> busy, running, waiting, blocks;
};

Bins fill_bins(const RunRecord& record, const ReplicaRecord& replica, std::size_t count,
               TimeNs width) {
  Bins bins(count);
  visit_steps(record, replica, [&](const StepEntry& step, TimeNs until) {
    Bins::add(bins.busy, width, step.started_at, step.finished_at, 1);
    Bins::add(bins.running, width, step.planned_at, until, step.num_running);
    Bins::add(bins.waiting, width, step.planned_at, until, step.num_waiting);
    if (replica.num_blocks == 0) return;
    Bins::add(bins.blocks, width, step.planned_at, until,
              step.num_used_blocks / static_cast<double>(replica.num_blocks));
  });
  return bins;
}

void append_bins(const std::vector<double>& sums, double unit, TimeNs width, VlqText& text) {
  for (const double sum : sums) {
    text.append_delta(static_cast<std::int64_t>(sum / static_cast<double>(width) * unit + 0.5));
  }
}

// Rows of the heat map, one after the other.
void append_heat(const RunRecord& record, JsonText& json) {
  const std::size_t num_rows = std::min(record.replicas.size(), kMaxReplicas);
  TimeNs end = 1;
  for (const ReplicaRecord& replica : record.replicas) {
    if (replica.num_steps == 0) continue;
    end = std::max(end, record.steps.finished_at(replica.end_step() - 1));
  }
  const TimeNs width = (end + static_cast<TimeNs>(kMaxBins) - 1) / static_cast<TimeNs>(kMaxBins);
  VlqText busy, running, waiting, blocks;
  for (std::size_t r = 0; r < num_rows; ++r) {
    const Bins bins = fill_bins(record, record.replicas[r], kMaxBins, width);
    append_bins(bins.busy, kPermille, width, busy);
    append_bins(bins.running, kPermille, width, running);
    append_bins(bins.waiting, kPermille, width, waiting);
    append_bins(bins.blocks, kPermille, width, blocks);
  }
  json.field("num_replicas", record.replicas.size());
  json.field("num_rows", num_rows);
  json.field("num_bins", kMaxBins);
  json.field("bin_ns", width);
  json.field("busy", busy.text());
  json.field("running", running.text());
  json.field("waiting", waiting.text());
  json.field("kv", blocks.text());
}

}  // namespace

void append_replicas(const RunRecord& record, const GapAnalysis& analysis,
                     const ReportLimits& limits, JsonText& json) {
  if (record.replicas.empty()) return;
  json.key("replicas");
  json.begin_object();
  append_heat(record, json);
  const std::vector<TimeNs> times = device_times(record);
  const std::size_t num_shown = std::min(record.replicas.size(), kMaxReplicasWithSteps);
  json.key("steps");
  json.begin_array();
  for (std::size_t r = 0; r < num_shown; ++r) {
    const ReplicaRecord& replica = record.replicas[r];
    append_steps_of(record, analysis, {replica.first_step, replica.end_step()}, times,
                    std::max<std::size_t>(limits.max_steps / num_shown, 40), json);
  }
  json.end_array();
  json.end_object();
}

}  // namespace metronome
