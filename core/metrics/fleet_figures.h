// SPDX-License-Identifier: Apache-2.0
// The figures of a fleet's run in memory that does not grow with its steps, and by a few bytes for
// each request. Counts, means and extremes are those of summarize(); percentiles are those of
// histograms (TimeHistogram). Some figures need the steps, and are unknown: the cause of the
// longest gap, and AnswerRates.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/packed_column.h"
#include "core/engine/event.h"
#include "core/metrics/replica_figures.h"
#include "core/metrics/slo_config.h"
#include "core/metrics/summary.h"
#include "core/metrics/time_histogram.h"

namespace metronome {

// Takes requests as they end, in an order that depends on the run alone.
class EndedRequestSink {
 public:
  virtual ~EndedRequestSink() = default;
  virtual void take(const EndedRequest& request) = 0;
};

// Of the requests of one kind.
class GroupFigures {
 public:
  void add(const RequestRecord& request, const SloConfig& slo);
  void add(const GroupFigures& others);
  GroupSummary summary(double duration_s) const;

  std::int64_t num_requests = 0, num_ended = 0, num_completed = 0, num_good = 0;
  std::int64_t num_input_tokens = 0, num_output_tokens = 0;  // of completed requests
  std::int64_t num_admitted_tokens = 0, num_hit_tokens = 0;  // of prompts
  bool has_slo = false;
  TimeHistogram ttft, tpot, e2el;
  TimeNs shortest_gap_ns = INT64_MAX, longest_gap_ns = kNoTime;
};

class FleetFigures final : public EventSink {
 public:
  struct Options {
    SloConfig slo = {};
    std::vector<std::string> class_names = {};  // of RequestRecord::class_number, from 1
    FrontEnd front_end = {};
    TimeNs first_arrival = 0;
  };
  // `requests` outlives it; null: nobody takes them.
  FleetFigures(Options options, EndedRequestSink* requests);

  EventSink* of_replica(const ReplicaScope& scope) override;
  bool follows_ends() const override { return true; }
  void on_replica_end(std::int32_t replica) override;
  void on_fleet_event(const FleetEvent& event) override;
  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}

  // Of everything so far; call it once, after the run.
  Summary finish();

 private:
  ReplicaFigures& part(std::int32_t replica) { return *parts_[static_cast<std::size_t>(replica)]; }
  void complete(EndedRequest request);
  void take_earlier(EndedRequest& request);
  void count(const EndedRequest& request);
  void note_longest_gap(const EndedRequest& request);
  void set_requests(Summary& summary) const;
  void set_groups(Summary& summary) const;
  void set_steps(Summary& summary) const;
  void set_gaps(Summary& summary) const;
  void set_peaks(Summary& summary) const;
  void set_replicas(Summary& summary) const;

  Options options_;
  EndedRequestSink* requests_;
  std::vector<std::unique_ptr<ReplicaFigures>> parts_;
  std::vector<GroupFigures> by_replica_;
  // By class number and priority.
  std::map<std::pair<std::uint16_t, std::int32_t>, GroupFigures> kinds_;
  TimeHistogram queue_, front_end_, jitter_;
  std::map<EndReason, std::int64_t> ends_;
  std::int64_t num_preemptions_ = 0;
  TimeNs duration_ns_ = 0;
  PackedColumn arrivals_, last_tokens_;  // of completed requests
  Stall longest_;
  std::vector<FleetEvent> events_;
  // By number: requests that a replica lost. They go on elsewhere, or end in front of the replicas.
  std::map<std::uint32_t, EndedRequest> interrupted_;
};

}  // namespace metronome
