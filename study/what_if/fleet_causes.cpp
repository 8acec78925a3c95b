// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/fleet_causes.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/metrics/replica_record.h"

namespace metronome {
namespace {

// Times in which a replica would have served a request at once: nobody waited, and a slot was free.
class FreeTimes {
 public:
  FreeTimes(const RunRecord& record, std::size_t replica, std::int64_t max_num_seqs) {
    // One that failed, came or went was not there all the time.
    for (const FleetEvent& event : record.fleet_events) {
      if (event.replica == static_cast<std::int32_t>(replica)) return;
    }
    const ReplicaRecord& part = record.replicas[replica];
    if (part.starts_off) return;
    TimeNs begin = 0;
    TimeNs last_end = 0;
    bool is_free = true;
    for (auto at = record.steps.from(part.first_step); at.position() < part.end_step(); ++at) {
      const StepEntry& step = *at;
      // Between steps it is idle.
      if (!is_free) add(last_end, step.planned_at);
      const bool was_free = std::exchange(
          is_free, step.num_waiting == 0 && (max_num_seqs == 0 || step.num_running < max_num_seqs));
      if (was_free && !is_free) add(begin, step.planned_at);
      if (!was_free && is_free) begin = step.planned_at;
      last_end = step.finished_at;
    }
    add(is_free ? begin : last_end, kNever);
  }

  // Of the time from `from` until `until`.
  TimeNs within(TimeNs from, TimeNs until) const { return before(until) - before(from); }

 private:
  void add(TimeNs begin, TimeNs end) {
    if (begin >= end) return;
    sums_.push_back(sums_.empty() ? 0 : sums_.back() + ends_.back() - begins_.back());
    begins_.push_back(begin);
    ends_.push_back(end);
  }
  TimeNs before(TimeNs time) const {
    const auto behind = std::upper_bound(begins_.begin(), begins_.end(), time);
    if (behind == begins_.begin()) return 0;
    const auto i = static_cast<std::size_t>(behind - begins_.begin()) - 1;
    return sums_[i] + std::min(time, ends_[i]) - begins_[i];
  }

  std::vector<TimeNs> begins_, ends_, sums_;  // sums_: of the intervals before
};

// A request that waited although another replica was free.
struct LateByRouter {
  std::size_t request = 0;
  std::size_t free_replica = 0;
  TimeNs free_ns = 0;  // of its wait
};

void find_router(const CauseFacts& facts, std::vector<Cause>& causes) {
  constexpr TimeNs kNoticed = kNsPerSecond / 10;
  constexpr double kShare = 0.1;  // of all TTFT
  const RunRecord& record = *facts.record;
  std::vector<FreeTimes> free;
  for (std::size_t r = 0; r < record.replicas.size(); ++r) {
    free.emplace_back(record, r, facts.scenario->engine.max_num_seqs);
  }
  LateByRouter worst;
  std::int64_t num = 0, num_late = 0;
  double late = 0, total = 0;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (request.first_token == kNoTime || record.replica_of[i] < 0) continue;
    ++num;
    total += static_cast<double>(request.ttft_ns());
    const TimeNs from = request.arrival + record.front_end_ns(i);
    LateByRouter one = {i};
    for (std::size_t r = 0; r < free.size(); ++r) {
      if (record.replica_of[i] == static_cast<std::int32_t>(r)) continue;
      const TimeNs free_ns = free[r].within(from, std::max(from, request.first_scheduled));
      if (free_ns > one.free_ns) one = {i, r, free_ns};
    }
    late += static_cast<double>(one.free_ns);
    num_late += one.free_ns >= kNoticed ? 1 : 0;
    if (one.free_ns > worst.free_ns) worst = one;
  }
  const double share = total > 0 ? late / total : 0;
  if (num_late == 0 || share < kShare) return;
  causes.push_back(
      {"router",
       fmt::format("The router {} made first tokens late: {} of {} waited in the queue of a "
                   "replica while another one had nobody waiting and a free slot, {} % of all "
                   "TTFT. Request {} waited {} ms for replica {}; for {} ms of that, replica {} "
                   "had nobody waiting.",
                   facts.scenario->fleet.router, grouped_text(num_late), count_text(num, "request"),
                   fixed_text(100 * share, 0), worst.request,
                   ms_text(to_ms(record.queue_ns(worst.request))), record.replica_of[worst.request],
                   ms_text(to_ms(worst.free_ns)), worst.free_replica),
       share});
}

// Requests that waited in front of all replicas.
void find_gateway(const CauseFacts& facts, std::vector<Cause>& causes) {
  constexpr double kShare = 0.1;  // of all TTFT
  const RunRecord& record = *facts.record;
  double waited = 0, total = 0;
  std::size_t worst = 0;
  TimeNs longest = 0;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (request.first_token == kNoTime) continue;
    const TimeNs wait = record.front_end_ns(i);
    waited += static_cast<double>(wait);
    total += static_cast<double>(request.ttft_ns());
    if (wait <= longest) continue;
    longest = wait;
    worst = i;
  }
  const double share = total > 0 ? waited / total : 0;
  if (!facts.scenario->fleet.gateway.max_in_flight || share < kShare) return;
  causes.push_back(
      {"gateway",
       fmt::format("Requests waited in the gateway, which lets {} in at once: {} % of all TTFT. "
                   "Request {} waited {} ms there. A higher fleet.gateway.max_in_flight, or more "
                   "replicas, lets them in earlier.",
                   count_text(*facts.scenario->fleet.gateway.max_in_flight, "request"),
                   fixed_text(100 * share, 0), worst, ms_text(to_ms(longest))),
       share});
}

}  // namespace

std::vector<Cause> find_fleet_causes(const CauseFacts& facts) {
  std::vector<Cause> causes;
  find_gateway(facts, causes);
  find_router(facts, causes);
  const std::size_t num_own = causes.size();
  Scenario scenario = *facts.scenario;
  scenario.fleet = {};
  for (std::size_t r = 0; r < facts.record->replicas.size(); ++r) {
    const RunRecord record = record_of_replica(*facts.record, r);
    const std::int64_t own_blocks = facts.record->replicas[r].num_blocks;
    const std::int64_t num_blocks = own_blocks > 0 ? own_blocks : facts.num_blocks;
    const Summary summary = summarize(record, {scenario.slo, num_blocks});
    for (Cause& cause : find_causes({.record = &record,
                        .summary = &summary,
                        .scenario = &scenario,
                        .num_blocks = num_blocks,
                        .is_simulated = facts.is_simulated})) {
      const auto known =
          std::find_if(causes.begin() + static_cast<std::ptrdiff_t>(num_own), causes.end(),
                       [&cause](const Cause& one) { return one.name == cause.name; });
      if (known != causes.end() && known->share >= cause.share) continue;
      cause.text = fmt::format("Replica {}: {}", r, cause.text);
      if (known == causes.end()) {
        causes.push_back(std::move(cause));
      } else {
        *known = std::move(cause);
      }
    }
  }
  return causes;
}

}  // namespace metronome
