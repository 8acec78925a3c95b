// SPDX-License-Identifier: Apache-2.0
// Runs one decision case step by step.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/engine/arrival_gate.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/scheduler.h"
#include "core/workload/workload.h"
#include "engines/decisions/decision_case.h"

namespace metronome {

class DecisionReplay {
 public:
  // Keeps a reference to the case.
  explicit DecisionReplay(const DecisionCase& c);

  bool has_ended() const { return is_stuck_ || num_ended_ == case_.requests.size(); }
  void check_integrity() const {
    kv_cache_.check_integrity(requests_);
    scheduler_->check_encoder();
  }
  // One step in the format of the engine's log. Requires that the case has not ended. Throws
  // ConfigError if the engine keeps running without ending a request.
  Json step();

  // The parts that a format's log_step() writes.
  const DecisionCase& decision_case() const { return case_; }
  const Scheduler& scheduler() const { return *scheduler_; }
  const KvCacheManager& kv_cache() const { return kv_cache_; }
  const Request& request(RequestId id) const { return requests_[id]; }
  bool has_drafts() const { return case_.setup.scheduler.drafts.num_tokens > 0; }
  bool is_waiting_for_nothing(const StepPlan& plan) const;
  const std::string& name_of(RequestId id) const { return case_.requests[list_index(id)].id; }
  Json names_of(const std::vector<RequestId>& ids) const;
  Json names_of(const std::vector<Request*>& requests) const;
  std::vector<RequestId> in_list_order(std::vector<RequestId> ids) const;
  Json tokens_of(const StepPlan& plan) const;
  Json tables_of(const Request& request) const;

 private:
  void add_arrivals();
  Json plan_and_commit();
  std::vector<RequestId> commit_oldest(Json& log);  // the requests that ended
  TokenId output_token(std::size_t i, std::int32_t k) const;
  void add_drafts(const StepPlan& plan, const ScheduledChunk& chunk, StepResult& result);
  void check_progress(bool has_progressed);
  std::size_t list_index(RequestId id) const { return order_[index(id)]; }

  struct DraftCursor {  // the next entries of DecisionRequest's lists
    std::size_t accepted = 0;
    std::size_t proposed = 0;
  };

  const DecisionCase& case_;
  std::vector<DraftCursor> cursors_;  // by RequestId
  std::vector<std::size_t> order_;    // index in the list, by RequestId
  Workload workload_;
  PrefixHasher hasher_;
  KvCacheManager kv_cache_;
  RequestTable requests_;
  std::optional<Scheduler> scheduler_;
  ArrivalGate gate_;
  bool had_prompts_ = false;        // the last plan
  std::deque<StepPlan> in_flight_;  // oldest first
  CommitReport report_;
  std::int64_t step_ = 0;
  std::int64_t num_launched_ = 0;   // steps with chunks
  std::int64_t last_progress_ = 0;  // step
  std::size_t num_ended_ = 0;
  bool is_stuck_ = false;
};

}  // namespace metronome
