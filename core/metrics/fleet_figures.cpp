// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/fleet_figures.h"

#include <algorithm>
#include <fmt/core.h>
#include <limits>

#include "core/base/error.h"

namespace metronome {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double share_of(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

std::vector<TimeNs> sorted(const PackedColumn& column) {
  std::vector<TimeNs> values;
  values.reserve(column.size());
  for (std::size_t i = 0; i < column.size(); ++i) values.push_back(column[i]);
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

void GroupFigures::add(const RequestRecord& request, const SloConfig& slo) {
  ++num_requests;
  has_slo = has_slo || slo.of_class(request.class_number).has_limit();
  if (request.reason != EndReason::None) ++num_ended;
  if (request.first_scheduled != kNoTime) num_admitted_tokens += request.num_prompt_tokens;
  num_hit_tokens += request.num_prefix_hit_tokens;
  if (meets_slo(request, slo)) ++num_good;
  if (!request.completed()) return;
  ++num_completed;
  num_input_tokens += request.num_prompt_tokens;
  num_output_tokens += request.num_output_tokens;
  if (request.first_token == kNoTime) return;
  ttft.add(request.ttft_ns());
  e2el.add(request.e2el_ns());
  if (!request.has_itl()) return;
  tpot.add(static_cast<TimeNs>(request.tpot_ns() + 0.5));
  shortest_gap_ns = std::min(shortest_gap_ns, request.min_itl_ns);
  longest_gap_ns = std::max(longest_gap_ns, request.max_itl_ns);
}

void GroupFigures::add(const GroupFigures& others) {
  num_requests += others.num_requests;
  num_ended += others.num_ended;
  num_completed += others.num_completed;
  num_good += others.num_good;
  num_input_tokens += others.num_input_tokens;
  num_output_tokens += others.num_output_tokens;
  num_admitted_tokens += others.num_admitted_tokens;
  num_hit_tokens += others.num_hit_tokens;
  has_slo = has_slo || others.has_slo;
  ttft.add(others.ttft);
  tpot.add(others.tpot);
  e2el.add(others.e2el);
  shortest_gap_ns = std::min(shortest_gap_ns, others.shortest_gap_ns);
  longest_gap_ns = std::max(longest_gap_ns, others.longest_gap_ns);
}

GroupSummary GroupFigures::summary(double duration_s) const {
  GroupSummary summary;
  summary.num_requests = num_requests;
  summary.completed = num_completed;
  summary.ttft = ttft.describe();
  summary.tpot = tpot.describe();
  summary.e2el = e2el.describe();
  if (longest_gap_ns != kNoTime) summary.longest_gap_ms = to_ms(longest_gap_ns);
  if (!has_slo) return summary;
  summary.good = num_good;
  summary.request_goodput = duration_s > 0 ? static_cast<double>(num_good) / duration_s : 0.0;
  summary.slo_attainment = num_ended > 0 ? share_of(num_good, num_ended) : kUnknown;
  return summary;
}

FleetFigures::FleetFigures(Options options, EndedRequestSink* requests)
    : options_(std::move(options)), requests_(requests) {}

EventSink* FleetFigures::of_replica(const ReplicaScope& scope) {
  METRONOME_CHECK(static_cast<std::size_t>(scope.replica) == parts_.size(),
                  "replicas come in the order of their numbers");
  by_replica_.emplace_back();
  return parts_
      .emplace_back(
          std::make_unique<ReplicaFigures>(scope, options_.front_end, options_.first_arrival))
      .get();
}

void FleetFigures::on_replica_end(std::int32_t replica) {
  std::deque<EndedRequest>& ended = part(replica).ended();
  EndedRequest request = std::move(ended.front());
  ended.pop_front();
  complete(std::move(request));
}

void FleetFigures::on_fleet_event(const FleetEvent& event) {
  events_.push_back(event);
  if (event.change != FleetChange::Failed) return;
  // What it had before ended in order.
  std::deque<EndedRequest>& ended = part(event.replica).ended();
  for (EndedRequest& request : ended) {
    take_earlier(request);
    interrupted_.emplace(request.number, std::move(request));
  }
  ended.clear();
}

void FleetFigures::on_event(const Event& event, const Request& request) {
  EndedRequest ended;
  const auto number = static_cast<std::uint32_t>(event.request);
  const auto earlier = interrupted_.find(number);
  if (earlier != interrupted_.end()) {
    ended = std::move(earlier->second);
    interrupted_.erase(earlier);
  } else {
    ended.number = number;
    ended.record.arrival = request.arrival;
    ended.record.num_prompt_tokens = request.num_prompt_tokens;
    ended.record.max_output_tokens = request.max_output_tokens;
    ended.record.priority = request.priority;
    ended.record.class_number = request.class_number;
    ended.handed_over = event.time;
  }
  ended.record.ended = event.time;
  ended.record.reason = event.reason;
  complete(std::move(ended));
}

// Adds what other replicas computed for it before.
void FleetFigures::take_earlier(EndedRequest& request) {
  if (interrupted_.empty()) return;
  const auto earlier = interrupted_.find(request.number);
  if (earlier == interrupted_.end()) return;
  const EndedRequest& before = earlier->second;
  request.record.num_prefill_chunks += before.record.num_prefill_chunks;
  request.record.num_preemptions += before.record.num_preemptions;
  request.preempted.insert(request.preempted.begin(), before.preempted.begin(),
                           before.preempted.end());
  interrupted_.erase(earlier);
}

void FleetFigures::complete(EndedRequest request) {
  take_earlier(request);
  count(request);
  if (requests_ != nullptr) requests_->take(request);
}

void FleetFigures::count(const EndedRequest& request) {
  const RequestRecord& record = request.record;
  duration_ns_ = std::max({duration_ns_, record.ended, record.last_token});
  ++ends_[record.reason];
  num_preemptions_ += record.num_preemptions;
  kinds_[{record.class_number, record.priority}].add(record, options_.slo);
  if (request.replica >= 0) {
    by_replica_[static_cast<std::size_t>(request.replica)].add(record, options_.slo);
  }
  if (!record.completed()) return;
  const TimeNs front = request.handed_over == kNoTime ? 0 : request.handed_over - record.arrival;
  if (record.first_scheduled != kNoTime) {
    queue_.add(record.first_scheduled - record.arrival - front);
  }
  if (record.first_token == kNoTime) return;
  if (request.handed_over != kNoTime) front_end_.add(front);
  arrivals_.push_back(record.arrival);
  last_tokens_.push_back(record.last_token);
  if (!record.has_itl()) return;
  jitter_.add(record.jitter_ns());
  note_longest_gap(request);
}

void FleetFigures::note_longest_gap(const EndedRequest& request) {
  const RequestId id{request.number};
  const TimeNs gap = request.record.max_itl_ns;
  const bool has_one = longest_.request != kNoRequest;
  if (has_one && (gap < longest_.gap_ns || (gap == longest_.gap_ns && id > longest_.request)))
    return;
  longest_ = {};
  longest_.gap_ns = gap;
  longest_.request = id;
  longest_.began_at = request.longest_gap_began;
  longest_.cause = StallCause::Unkept;
}

Summary FleetFigures::finish() {
  for (const std::unique_ptr<ReplicaFigures>& part : parts_) part->finish();
  // No replica took them again.
  for (auto& [number, request] : std::exchange(interrupted_, {})) {
    count(request);
    if (requests_ != nullptr) requests_->take(request);
  }
  Summary summary;
  summary.duration_ns = duration_ns_;
  set_requests(summary);
  set_groups(summary);
  set_steps(summary);
  set_gaps(summary);
  set_peaks(summary);
  set_replicas(summary);
  summary.longest_stall = longest_;
  return summary;
}

void FleetFigures::set_requests(Summary& summary) const {
  GroupFigures all;
  for (const auto& [kind, group] : kinds_) all.add(group);
  summary.ttft = all.ttft.describe();
  summary.tpot = all.tpot.describe();
  summary.e2el = all.e2el.describe();
  summary.queue = queue_.describe();
  summary.front_end = front_end_.describe();
  summary.jitter = jitter_.describe();
  summary.num_requests = all.num_requests;
  for (const auto& [reason, count] : ends_) count_ends(reason, count, summary);
  summary.total_input_tokens = all.num_input_tokens;
  summary.total_output_tokens = all.num_output_tokens;
  summary.num_preemptions = num_preemptions_;
  if (all.num_admitted_tokens > 0) {
    summary.prefix_hit_rate = share_of(all.num_hit_tokens, all.num_admitted_tokens);
  }
  const std::optional<std::int64_t> good =
      options_.slo.limits_any() ? std::optional(all.num_good) : std::nullopt;
  set_rates(good, summary);
}

void FleetFigures::set_groups(Summary& summary) const {
  const double duration_s = to_seconds(duration_ns_);
  const std::vector<std::string>& names = options_.class_names;
  std::map<std::size_t, GroupFigures> classes;  // requests without one come last
  std::map<std::int32_t, GroupFigures> priorities;
  for (const auto& [kind, group] : kinds_) {
    const auto& [class_number, priority] = kind;
    classes[class_number == 0 ? names.size() : class_number - std::size_t{1}].add(group);
    priorities[priority].add(group);
  }
  if (!names.empty()) {
    for (const auto& [place, group] : classes) {
      summary.classes.push_back(group.summary(duration_s));
      summary.classes.back().name = place < names.size() ? names[place] : "none";
    }
  }
  const bool are_classes = !names.empty() && kinds_.size() == classes.size() &&
                           kinds_.size() == priorities.size();
  if (priorities.size() < 2 || are_classes) return;
  for (const auto& [priority, group] : priorities) {
    summary.priorities.push_back(group.summary(duration_s));
    summary.priorities.back().name = fmt::format("priority {}", priority);
  }
}

void FleetFigures::set_steps(Summary& summary) const {
  const auto duration = static_cast<double>(duration_ns_);
  double block_time = 0, running_time = 0, waiting_time = 0, num_blocks = 0;
  TimeNs busy_ns = 0;
  std::int64_t num_tokens = 0;
  for (const std::unique_ptr<ReplicaFigures>& part : parts_) {
    const StepTotals& own = part->totals();
    summary.num_steps += own.num_steps;
    summary.num_failed_steps += own.num_failed;
    summary.num_extrapolated_steps += own.num_extrapolated;
    summary.peak_running = std::max(summary.peak_running, own.peak_running);
    summary.peak_waiting = std::max(summary.peak_waiting, own.peak_waiting);
    summary.peak_kv_use =
        std::max(summary.peak_kv_use, share_of(own.peak_blocks, part->scope().num_blocks));
    num_blocks += static_cast<double>(part->scope().num_blocks);
    block_time += own.block_time;
    running_time += own.running_time;
    waiting_time += own.waiting_time;
    busy_ns += own.busy_ns;
    num_tokens += own.num_tokens;
  }
  if (summary.num_steps > 0) summary.mean_batch_tokens = share_of(num_tokens, summary.num_steps);
  if (duration <= 0) return;
  summary.busy_share =
      static_cast<double>(busy_ns) / duration / static_cast<double>(parts_.size());
  summary.mean_running = running_time / duration;
  summary.mean_waiting = waiting_time / duration;
  summary.mean_kv_use = block_time / duration / num_blocks;
}

void FleetFigures::set_gaps(Summary& summary) const {
  TimeHistogram gaps;
  for (const std::unique_ptr<ReplicaFigures>& part : parts_) {
    gaps.add(part->gaps());
    gaps.subtract(part->failed_gaps());
  }
  TimeNs shortest = INT64_MAX;
  TimeNs longest = 0;
  for (const auto& [kind, group] : kinds_) {
    shortest = std::min(shortest, group.shortest_gap_ns);
    longest = std::max(longest, group.longest_gap_ns);
  }
  gaps.set_extremes(shortest, longest);
  summary.itl = gaps.describe();
}

void FleetFigures::set_peaks(Summary& summary) const {
  std::vector<std::int64_t> tokens;
  for (const std::unique_ptr<ReplicaFigures>& part : parts_) {
    const std::vector<std::int64_t>& own = part->tokens_by_second();
    if (tokens.size() < own.size()) tokens.resize(own.size());
    for (std::size_t second = 0; second < own.size(); ++second) tokens[second] += own[second];
  }
  for (const std::int64_t count : tokens) {
    summary.max_output_tokens_per_s =
        std::max(summary.max_output_tokens_per_s, static_cast<double>(count));
  }
  const std::vector<TimeNs> arrivals = sorted(arrivals_);
  const std::vector<TimeNs> ends = sorted(last_tokens_);
  std::size_t num_arrived = 0;
  for (std::size_t num_gone = 0; num_gone < ends.size(); ++num_gone) {
    while (num_arrived < arrivals.size() && arrivals[num_arrived] < ends[num_gone]) ++num_arrived;
    summary.max_concurrent_requests = std::max(summary.max_concurrent_requests,
                                               static_cast<std::int64_t>(num_arrived - num_gone));
  }
}

void FleetFigures::set_replicas(Summary& summary) const {
  const auto duration = static_cast<double>(duration_ns_);
  RunRecord fleet;
  fleet.fleet_events = events_;
  for (std::size_t r = 0; r < parts_.size(); ++r) {
    const GroupFigures& group = by_replica_[r];
    const StepTotals& totals = parts_[r]->totals();
    const ReplicaScope& scope = parts_[r]->scope();
    fleet.replicas.push_back({.num_blocks = scope.num_blocks, .starts_off = scope.starts_off});
    ReplicaSummary& replica = summary.replicas.emplace_back();
    replica.requests = group.summary(to_seconds(duration_ns_));
    replica.requests.name = fmt::format("replica {}", r);
    replica.total_input_tokens = group.num_input_tokens;
    replica.total_output_tokens = group.num_output_tokens;
    replica.itl = parts_[r]->gaps().describe();
    if (group.num_admitted_tokens > 0) {
      replica.prefix_hit_rate = share_of(group.num_hit_tokens, group.num_admitted_tokens);
    }
    if (duration <= 0) continue;
    const auto num_blocks = static_cast<double>(std::max<std::int64_t>(scope.num_blocks, 1));
    replica.busy_share = static_cast<double>(totals.busy_ns) / duration;
    replica.mean_kv_use = totals.block_time / duration / num_blocks;
    replica.peak_kv_use = static_cast<double>(totals.peak_blocks) / num_blocks;
  }
  set_fleet(fleet, summary);
}

}  // namespace metronome
