// SPDX-License-Identifier: Apache-2.0
// The base of Sarathi-Serve's scheduler and of its three schedulers for comparison. They serve by
// arrival, take the blocks of a whole prompt at admission, and preempt when a decode finds no free
// block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/policy.h"

namespace metronome {

class SarathiBase : public Policy {
 public:
  std::string refusal(const Books& books, const RequestSpec& spec) const override;
  // A plan with nothing to compute may still have rejected or preempted a request, or passed the
  // turn on. Then the next plan continues from there.
  TimeNs wake_time(const Books&) const final { return may_go_on_ ? planned_at_ : kNever; }

 protected:
  // A request with more tokens than `prompt_limit` is rejected at the head of the queue.
  explicit SarathiBase(std::int32_t prompt_limit) : prompt_limit_(prompt_limit) {}

  Books& books() const { return *books_; }  // of the plan that it fills
  virtual void plan_step() = 0;
  void go_on() { may_go_on_ = true; }

  // Plans one token for every running request with a computed prompt, in order. Each must find a
  // free block, even if it needs none. Otherwise the last request in the list is preempted, finally
  // the request itself. The list stays sorted by arrival: the last to arrive are preempted first,
  // and the earliest of them return first.
  void decode_running();

  // After a recompute the previous output is part of the prompt. As in the engine,
  // max_output_tokens then counts again from there.
  virtual void evict(Request& victim);

  // The head of the queue if it can be admitted now, else nullptr. Rejects requests beyond the
  // prompt limit, and a request that even an empty cache has no room for.
  Request* admissible();
  // Admits the head of the queue with a first chunk.
  void admit_chunk(Request& request, std::int32_t num_tokens);

  // Number of positions that get blocks at admission.
  virtual std::int64_t num_reserved(std::int64_t num_tokens) const { return num_tokens; }

 private:
  void fill(Books& books) final;
  bool free_a_block(Request& request);
  bool fits(const KvCacheManager& kv_cache, std::int64_t num_tokens, std::int64_t num_free) const;

  Books* books_ = nullptr;
  std::int32_t prompt_limit_;
  std::vector<std::int32_t> num_restarted_;  // by request: outputs that count as prompt
  TimeNs planned_at_ = 0;
  bool may_go_on_ = false;
};

}  // namespace metronome
