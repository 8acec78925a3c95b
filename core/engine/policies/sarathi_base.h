// What Sarathi-Serve's scheduler and the three that it carries for comparison share: first come,
// first served by arrival, the blocks of a whole prompt taken at admission, and preemption when a
// decode finds no free block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/scheduler.h"

namespace metronome {

class SarathiBase : public Scheduler {
 public:
  std::string refusal(const RequestSpec& spec) const override;
  // A plan with nothing to compute may still have refused or preempted somebody, or passed the turn
  // on: the next one goes on from there.
  TimeNs wake_time() const final { return may_go_on_ ? planned_at_ : kNever; }

 protected:
  // Requests with more tokens than `prompt_limit` are refused when it is their turn.
  SarathiBase(const SchedulerContext& context, std::int32_t prompt_limit);

  virtual void plan_step() = 0;
  void go_on() { may_go_on_ = true; }

  // One token for every running request whose prompt is done, in order. Each of them has to find a
  // free block, even if it needs none; otherwise the last in the list goes, in the end itself. The
  // list goes by arrival: so it stays by itself, since the last to arrive are preempted first and
  // the first of them come back first.
  void decode_running();

  // Recompute makes the output so far part of the prompt, so max_output_tokens counts again from
  // there, as in the engine.
  virtual void evict(Request& victim);

  // The head of the queue if it can be admitted now, else nullptr. Refuses those that outgrew the
  // prompt limit, and one for which even the empty cache has no room.
  Request* admissible();
  // Admits the head of the queue with a first chunk.
  void admit_chunk(Request& request, std::int32_t num_tokens);

  // Positions that get their blocks at admission.
  virtual std::int64_t num_reserved(std::int64_t num_tokens) const { return num_tokens; }

 private:
  void fill_plan() final;
  bool free_a_block(Request& request);
  bool fits(std::int64_t num_tokens, std::int64_t num_free) const;

  std::int32_t prompt_limit_;
  std::vector<std::int32_t> num_restarted_;  // by request: outputs that recompute made prompt
  TimeNs planned_at_ = 0;
  bool may_go_on_ = false;
};

}  // namespace metronome
