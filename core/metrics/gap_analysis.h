// SPDX-License-Identifier: Apache-2.0
// Why tokens came late. Splits every gap between two tokens of a request into causes, and ranks
// prefill chunks by how long they delayed other requests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/packed_column.h"
#include "core/base/types.h"
#include "core/metrics/run_record.h"

namespace metronome {

struct Stall;

// The parts of a gap by cause. They add up exactly to the gap.
struct GapParts {
  TimeNs decode_ns = 0;      // the decodes of the step that gave the token: always needed
  TimeNs draft_ns = 0;       // what drafts added to these decodes
  TimeNs encode_ns = 0;      // encoding of images, in that step or in earlier steps of the gap
  TimeNs prefill_ns = 0;     // prefill chunks in that step or in earlier steps of the gap
  TimeNs host_ns = 0;        // the device was idle between steps
  TimeNs waiting_ns = 0;     // decodes of steps that did not include the request
  TimeNs preemption_ns = 0;  // the whole gap, if the request itself was preempted in it

  TimeNs total_ns() const {
    return decode_ns + draft_ns + encode_ns + prefill_ns + host_ns + waiting_ns + preemption_ns;
  }
  // The encoding of images delayed the token for longer than prefills.
  bool is_of_images() const { return encode_ns > prefill_ns; }
  void operator+=(const GapParts& other);
  bool operator==(const GapParts&) const = default;
};

// A gap between two consecutive tokens of a request, emitted in steps `step_before` and
// `step_after`.
struct TokenGap {
  RequestId request = kNoRequest;  // kNoRequest: any that continued without preemption
  std::int32_t step_before = -1;
  std::int32_t step_after = -1;
  TimeNs gap_ns = 0;
};

// A prefill chunk and the delay it caused.
struct Culprit {
  std::int32_t chunk = -1;  // in RunRecord::prefills
  std::int32_t step = -1;   // in RunRecord::steps
  // The time of its step beyond the decodes, shared among prefill chunks by tokens.
  TimeNs added_ns = 0;
  std::int32_t num_delayed = 0;  // requests that waited for a token; unknown to GapCauses

  TimeNs stall_ns() const { return added_ns * num_delayed; }
};

// All delaying chunks of one request.
struct CulpritRequest {
  RequestId request = kNoRequest;
  std::int32_t num_chunks = 0;  // chunks that delayed a request
  std::int32_t max_delayed = 0;
  TimeNs stall_ns = 0;  // summed over its chunks
};

// A sum over gaps.
struct GapSum {
  GapParts parts;
  std::int64_t num_gaps = 0;
};

// The causes of gaps that lie within a range of steps.
class GapCauses {
 public:
  // For gaps that end in steps [first_step, last_step] and began there or one step before. Keeps a
  // reference to the record. The time of a step's decodes alone comes from the executor if it
  // reported one. Otherwise it is estimated (estimate_decode_ns).
  GapCauses(const RunRecord& record, std::int32_t first_step, std::int32_t last_step);

  // Whether any step's split is an estimate.
  bool is_estimated() const { return is_estimated_; }

  // Durations of a step's decodes, with what drafts added, and of its prefill chunks; their sum is
  // the step's duration.
  TimeNs decode_ns(std::int32_t step) const { return decode_sum(step) - decode_sum(step - 1); }
  // The part of decode_ns() that drafts added.
  TimeNs draft_ns(std::int32_t step) const {
    return draft_times_.empty() ? 0 : std::min(draft_times_[place(step)], decode_ns(step));
  }
  // Of prefill chunks, with the encoding of their images.
  TimeNs prefill_ns(std::int32_t step) const { return prefill_sum(step) - prefill_sum(step - 1); }
  // The part of prefill_ns() that encodes images.
  TimeNs encode_ns(std::int32_t step) const { return encode_sum(step) - encode_sum(step - 1); }

  GapParts parts(const TokenGap& gap) const;
  // The cause of a gap, as all reports name it. It is the chunk with most of the gap's prefill
  // time, over all of its steps; the first of equals. `chunk` is -1 when there was no prefill, or
  // the request itself was preempted.
  Culprit worst_chunk(const TokenGap& gap) const;
  // Tokens of all prefill chunks computed during the gap.
  std::int64_t num_prefill_tokens(const TokenGap& gap) const;

 protected:
  static std::size_t at(std::int32_t step) { return static_cast<std::size_t>(step); }
  const RunRecord& record() const { return record_; }
  const std::vector<PreemptionRecord>& preemptions() const { return preemptions_; }
  bool is_preempted(const TokenGap& gap) const;
  template <class Visit>
  void for_each_chunk(std::int32_t step, Visit visit) const;

 private:
  std::size_t place(std::int32_t step) const { return at(step - first_step_); }
  TimeNs sum(const PackedColumn& sums, std::int32_t step) const {
    return step < first_step_ ? 0 : sums[place(step)];
  }
  TimeNs decode_sum(std::int32_t step) const { return sum(decode_sum_, step); }
  TimeNs prefill_sum(std::int32_t step) const { return sum(prefill_sum_, step); }
  TimeNs encode_sum(std::int32_t step) const {
    return encode_sum_.size() == 0 ? 0 : sum(encode_sum_, step);
  }
  void sum_steps(std::int32_t last_step);

  const RunRecord& record_;
  std::int32_t first_step_;
  bool is_estimated_ = false;
  // Sums over steps [first_step_, s].
  PackedColumn decode_sum_;
  PackedColumn prefill_sum_;
  PackedColumn encode_sum_;                    // empty: no run with images
  std::vector<TimeNs> draft_times_;            // by step; empty: no run with drafts
  std::vector<PreemptionRecord> preemptions_;  // by request, then time
};

// The causes of all gaps of a run, their sums, and who waited.
class GapAnalysis : public GapCauses {
 public:
  // Keeps a reference to the record.
  explicit GapAnalysis(const RunRecord& record);

  // See GapCauses; with the number of delayed requests.
  Culprit worst_chunk(const TokenGap& gap) const;
  // Requests waiting for a token during a step, without those preempted in the gap.
  std::int32_t num_delayed(std::int32_t step) const { return num_delayed_[at(step)]; }
  // The number of requests that a gap kept waiting, as all reports show it. These are all requests
  // waiting for a token in the step that ended it. For a preempted request it is 1, because only
  // that request has the gap.
  std::int32_t num_waiting(const TokenGap& gap) const;
  // Sum over all gaps of all requests.
  const GapParts& total() const { return total_; }
  // Sum over the gaps longer than `limit_ns`; -1: all gaps.
  GapSum beyond(TimeNs limit_ns) const;

  // The longest gaps, longest first; ties order by time, then by request. At most `max_per_step`
  // gaps of each step, because a stall usually delays every request.
  std::vector<TokenGap> longest_gaps(std::size_t max_gaps, std::int32_t max_per_step) const;
  // Ordered by stall_ns, then by step and index in the step. Excludes chunks with stall_ns 0.
  std::vector<Culprit> culprits(std::size_t max_culprits) const;
  std::vector<CulpritRequest> culprit_requests(std::size_t max_requests) const;

 private:
  void walk_gaps();
  void correct_swift_returns();
  void add_step(std::int32_t step, std::int64_t num_gaps, GapParts& sum) const;
  void move_to_preemption(std::int32_t step, GapParts& sum) const;
  std::vector<TokenGap> gaps_in_runs(std::size_t max_steps, std::int32_t max_per_step) const;
  template <class Visit>
  void for_each_culprit(Visit visit) const;

  std::vector<std::int32_t> num_delayed_;
  std::vector<TokenGap> swift_returns_;  // with preemption, between tokens of consecutive steps
  GapParts total_;
};

// The cause of a gap of a request, as a stall. Requires that `gaps` cover it.
Stall explain_gap(const RunRecord& record, const GapCauses& gaps, const TokenGap& gap);

// How long the device worked on each step. A step launched while the previous one still ran begins
// at that one's end.
std::vector<TimeNs> device_times(const RunRecord& record);

// Estimates the time of each step's decodes alone, by least squares of relative error over the
// steps without prefill. The terms are a base, the number of decodes and the number of used KV
// blocks; no coefficient is negative. With fewer than 16 such steps the fit uses all steps and a
// term for prefill tokens. An estimate never exceeds the step's duration.
std::vector<TimeNs> estimate_decode_ns(const RunRecord& record);

}  // namespace metronome
