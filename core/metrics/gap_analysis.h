// Why tokens came late: every gap between two tokens of a request, split into what the device did
// meanwhile, and the prefill chunks ranked by how long they kept others waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/run_record.h"

namespace metronome {

// Where the time of a gap went. The parts add up to the gap, exactly.
struct GapParts {
  TimeNs decode_ns = 0;   // the decodes of the step that gave the token: what it costs anyway
  TimeNs prefill_ns = 0;  // prefill chunks: beside the decodes of that step, or in steps before it
  TimeNs host_ns = 0;     // the device stood idle between steps
  TimeNs waiting_ns = 0;  // decodes of steps that passed the request over
  TimeNs preemption_ns = 0;  // the whole of a gap in which the request itself was preempted

  TimeNs total_ns() const { return decode_ns + prefill_ns + host_ns + waiting_ns + preemption_ns; }
  void operator+=(const GapParts& other);
  bool operator==(const GapParts&) const = default;
};

// Between two neighbouring tokens of a request, given with steps `step_before` and `step_after`.
struct TokenGap {
  RequestId request = kNoRequest;  // kNoRequest: any whose cadence went on, without preemption
  std::int32_t step_before = -1;
  std::int32_t step_after = -1;
  TimeNs gap_ns = 0;
};

// A prefill chunk and whom it held up.
struct Culprit {
  std::int32_t chunk = -1;  // in RunRecord::prefills
  std::int32_t step = -1;   // in RunRecord::steps
  // Its share, by tokens, of what its step took beyond the decodes.
  TimeNs added_ns = 0;
  std::int32_t num_victims = 0;  // requests between two of their tokens

  TimeNs victim_ns() const { return added_ns * num_victims; }
};

// All chunks of one request.
struct CulpritRequest {
  RequestId request = kNoRequest;
  std::int32_t num_chunks = 0;  // that held anybody up
  std::int32_t max_victims = 0;
  TimeNs victim_ns = 0;  // summed over its chunks
};

// Many gaps together.
struct GapSum {
  GapParts parts;
  std::int64_t num_gaps = 0;
};

class GapAnalysis {
 public:
  // Keeps the record. What a step's decodes would have taken alone is the executor's word where it
  // gave it, and estimated otherwise (estimate_decode_ns).
  explicit GapAnalysis(const RunRecord& record);

  // Whether any step's split is an estimate.
  bool is_estimated() const { return is_estimated_; }

  // What the decodes of a step took, and its prefill chunks; together its duration.
  TimeNs decode_ns(std::int32_t step) const { return decode_sum(step) - decode_sum(step - 1); }
  TimeNs prefill_ns(std::int32_t step) const { return prefill_sum(step) - prefill_sum(step - 1); }
  // Requests between two tokens during a step, but for those that were preempted meanwhile.
  std::int32_t num_victims(std::int32_t step) const {
    return victims_[static_cast<std::size_t>(step)];
  }

  GapParts parts(const TokenGap& gap) const;
  // Requests that a gap kept waiting, wherever their number is told: all between two tokens in the
  // step that ended it; of a preempted request itself alone, its gap is nobody else's.
  std::int32_t num_waiting(const TokenGap& gap) const;
  // Over all gaps of all requests.
  const GapParts& total() const { return total_; }
  // Over the gaps longer than `limit_ns`; -1: all.
  GapSum beyond(TimeNs limit_ns) const;

  // The cause of a gap, wherever one is named: the chunk that took most of its prefill time, over
  // all of its steps, the first of equals. `chunk` is -1 when none took any, or the request itself
  // was preempted.
  Culprit worst_chunk(const TokenGap& gap) const;
  // Tokens of all chunks that were computed during the gap.
  std::int64_t num_prefill_tokens(const TokenGap& gap) const;

  // The longest gaps, longest first; of equals the earlier, then the lower request. Of each step at
  // most `max_per_step`: a stall usually hits everybody.
  std::vector<TokenGap> longest_gaps(std::size_t max_gaps, std::int32_t max_per_step) const;
  // By victim_ns, then step and place in it; none with victim_ns 0.
  std::vector<Culprit> culprits(std::size_t max_culprits) const;
  std::vector<CulpritRequest> culprit_requests(std::size_t max_requests) const;

 private:
  TimeNs decode_sum(std::int32_t step) const { return step < 0 ? 0 : decode_sum_[at(step)]; }
  TimeNs prefill_sum(std::int32_t step) const { return step < 0 ? 0 : prefill_sum_[at(step)]; }
  static std::size_t at(std::int32_t step) { return static_cast<std::size_t>(step); }
  bool is_preempted(const TokenGap& gap) const;
  void sum_steps();
  void walk_gaps();
  void correct_swift_returns();
  void move_to_preemption(std::int32_t step, GapParts& sum) const;
  std::vector<TokenGap> gaps_in_runs(std::size_t max_steps, std::int32_t max_per_step) const;
  template <class Visit>
  void for_each_chunk(std::int32_t step, Visit visit) const;
  template <class Visit>
  void for_each_culprit(Visit visit) const;

  const RunRecord& record_;
  bool is_estimated_ = false;
  std::vector<TimeNs> decode_sum_;   // over steps [0, s]
  std::vector<TimeNs> prefill_sum_;  // over steps [0, s]
  std::vector<std::int32_t> victims_;
  std::vector<PreemptionRecord> preemptions_;  // by request, then time
  std::vector<TokenGap> swift_returns_;        // preempted, between tokens of neighbouring steps
  GapParts total_;
};

// How long the device worked on each step: from its start, or the end of the step before where that
// is later (it was handed over while that still ran), to its end.
std::vector<TimeNs> device_times(const RunRecord& record);

// What the decodes of each step would have taken alone, by least squares of relative error over the
// steps without prefill: a base, a part for each decode and one for each KV block in use, none
// negative. With fewer than 16 such steps all steps count, with a part for each prefill token.
// Never longer than the step itself.
std::vector<TimeNs> estimate_decode_ns(const RunRecord& record);

}  // namespace metronome
