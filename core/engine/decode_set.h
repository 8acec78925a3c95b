// SPDX-License-Identifier: Apache-2.0
// The requests that decode in every step, planned as a run (decode_run.h) without being listed.
// Books asks it for the decodes of a plan; Scheduler counts the steps that are committed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/decode_run.h"
#include "core/engine/encoder_cache.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/request.h"
#include "core/engine/step_plan.h"

namespace metronome {

class DecodeSet {
 public:
  // `running` is the running list in service order. It outlives the set. The first num_covered() of
  // it are the members of the run, in order, and between them requests whose last token is in
  // flight or that have ended.
  DecodeSet(KvCacheManager& kv_cache, const std::vector<Request*>& running, bool plans_runs)
      : kv_cache_(kv_cache),
        running_(running),
        plans_runs_(plans_runs && kv_cache.allows_runs()),
        num_growing_(kv_cache.grows_together() ? static_cast<std::size_t>(kv_cache.block_size())
                                               : 0) {}

  void begin_plan();
  // See Books::plan_run().
  std::size_t plan(StepPlan& plan, bool needs_free_block);
  // The requests behind the run that decode join it with the next plan. Notes in a plan with chunks
  // who joined and left.
  void end_plan(StepPlan& plan, const EncoderCache* encoder);

  // All requests leave the run. Decodes of it in `plan`, which is under construction, become
  // chunks. nullptr: no plan is.
  void end(StepPlan* plan);
  // Before a request is preempted or ends: it loses the tokens of the run's steps in flight.
  void leave(Request& request, bool has_ended);
  // A request at this place left the running list.
  void forget_place(std::size_t place) {
    if (place < num_covered_) --num_covered_;
  }

  // Requests whose last token is in flight: those of the run, and those told. Not with drafts.
  // Valid in a plan; after it, requests that ended since are among them.
  const std::vector<const Request*>& finishing() const { return finishing_; }
  void note_planned(const Request& request) {
    if (request.has_last_token_in_flight() && !kv_cache_.verifies_drafts()) [[unlikely]]
      finishing_.push_back(&request);
  }
  // Of the next step of the run, as far as it is not planned yet.
  std::int32_t num_decodes_due() const { return members_.size(); }
  std::int64_t num_blocks_due() const;

  std::size_t num_covered() const { return num_covered_; }
  bool covers_by_arrival() const { return covers_by_arrival_; }  // those are in order of arrival
  // Whether the current plan has a run with this request.
  bool plans(const StepPlan& plan, const Request& request) const {
    return plan.run.num_decodes > 0 && request.run_end >= clock_.num_planned;
  }
  bool is_in_flight(const Request& request) const { return request.run_end > clock_.num_committed; }

  // See Scheduler::num_repeats() and plan_repeats().
  std::int32_t num_repeats() const;
  void plan_repeats(std::span<StepTimes> steps);

  void commit_steps(std::int32_t num_steps) { clock_.num_committed += num_steps; }
  std::int32_t num_committed() const { return clock_.num_committed; }
  // Up to this step of the run a request lost a token.
  std::int32_t num_lost_steps() const { return num_lost_steps_; }

 private:
  std::int32_t position_of(const Request& request) const {
    return request.computed_tokens + clock_.num_planned - request.run_begin;
  }
  void enter_in_calendar(const RunCalendar::Entry& entry, std::int32_t position, std::int32_t step);
  void list(std::size_t num_members, StepPlan& plan);
  // ---- Members that take their blocks together ----
  std::size_t turn_of(const Request& request) const;
  std::int32_t num_growing(std::int32_t step) const {
    return num_growing_.empty()
               ? 0
               : num_growing_[static_cast<std::size_t>(step) % num_growing_.size()];
  }
  void let_grow_together(Request& request);
  void look_at_each();
  void hash_late(Request& request, bool has_ended);
  void extend(const StepPlan& plan, const EncoderCache* encoder);

  KvCacheManager& kv_cache_;
  const std::vector<Request*>& running_;
  const bool plans_runs_;
  bool takes_run_ = false;         // this plan's policy goes on with the run
  bool steps_run_ = false;         // the current plan has the run, or the last one had
  bool has_only_run_ = false;      // the last plan; it left all else as it was
  bool needs_free_block_ = false;  // see Books::plan_run()
  RunClock clock_;
  // [step modulo 4]: the steps that were committed when that step was planned.
  std::array<std::int32_t, 4> num_committed_at_plan_ = {};
  RunMembers members_;
  std::vector<Request*> requests_;  // of members_; behind them those that join with the next plan
  std::size_t num_covered_ = 0;
  bool covers_by_arrival_ = true;
  RunCalendar calendar_;
  std::int64_t next_order_ = 0;
  // [step modulo block size]: members that take a block in such a step together. Empty: none may.
  std::vector<std::int32_t> num_growing_;
  std::vector<Request*> last_decodes_;  // members that took their last token in the last plan
  std::vector<const Request*> finishing_;
  bool has_ended_finishing_ = false;  // some may have ended since the last plan
  bool is_planning_ = false;
  PlannedRun changes_;  // since the last plan with chunks
  std::int32_t num_lost_steps_ = 0;
};

}  // namespace metronome
