// SPDX-License-Identifier: Apache-2.0
// A run of decodes: requests that take one token in every step.
//
// Such a request changes in no step but by its position, which is a subtraction. So plans do not
// list it: they say how many requests the run has, who joined it and who left it. A request is
// looked at when it needs a block or takes its last token; a calendar knows the step.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/types.h"
#include "core/engine/request.h"
#include "core/engine/step_plan.h"

namespace metronome {

// The requests of a run in service order, and their positions in the step at hand.
class RunMembers {
 public:
  // Its chunk begins at `start` + num_steps(). The difference is below 2^31.
  struct Member {
    RequestId request;
    std::int32_t start;
  };

  bool empty() const { return members_.empty(); }
  std::int32_t size() const { return static_cast<std::int32_t>(members_.size()); }
  std::span<const Member> all() const { return members_; }
  // ScheduledChunk::generation of each.
  std::span<const std::uint8_t> generations() const { return generations_; }
  // Whether no member was preempted, so that all have generation 0.
  bool has_one_generation() const { return num_later_generations_ == 0; }
  // Steps that the run took before the step at hand.
  std::int32_t num_steps() const { return num_steps_; }
  std::int32_t position_of(const Member& member) const { return member.start + num_steps_; }
  // The positions that each decode attends to, its own among them, summed over all members.
  std::int64_t sum_of_contexts() const {
    return sum_of_starts_ + std::int64_t{size()} * (std::int64_t{num_steps_} + 1);
  }
  // The sum of contexts, each at most `window`. O(members) when members change or reach the window.
  std::int64_t sum_of_contexts(std::int64_t window) const;
  ScheduledChunk chunk(std::size_t i) const {
    return {.request = members_[i].request,
            .first_position = position_of(members_[i]),
            .num_tokens = 1,
            .kind = ChunkKind::Decode,
            .samples_token = true,
            .generation = generations_[i]};
  }
  // The chunks of all in the midst of others, of which so many come before them. Those of the run
  // are marked as `emitted`.
  void list(std::span<const ScheduledChunk> others, std::size_t place, bool emitted,
            std::vector<ScheduledChunk>& out) const;

  // Its chunk begins at `position` in the step at hand.
  void append(RequestId request, std::int32_t position, std::uint8_t generation);
  // Removes the members at these indices, which ascend.
  void erase(std::span<const std::int32_t> places);
  void clear();
  void take_steps(std::int32_t num_steps) { num_steps_ += num_steps; }

 private:
  std::vector<Member> members_;
  std::vector<std::uint8_t> generations_;
  std::int32_t num_steps_ = 0;
  std::int64_t sum_of_starts_ = 0;
  std::int64_t num_later_generations_ = 0;  // that are not 0
  // sum_of_contexts(window) as of a step. It grows by num_growing a step, before a member's context
  // exceeds the window.
  struct WindowSum {
    std::int64_t window = 0;
    std::int64_t sum = 0;
    std::int64_t num_growing = 0;
    std::int32_t begin = 0;  // it holds for steps [begin, end)
    std::int32_t end = 0;
  };
  mutable WindowSum window_sum_;
};

// The steps of a run at which its requests need attention, and those that end one.
class RunCalendar {
 public:
  // Nothing is further ahead than so many steps. A request that needs nothing sooner is looked at
  // in vain.
  static constexpr std::int32_t kHorizon = 512;

  struct Entry {
    std::int64_t order;  // of service
    Request* request;
  };

  RunCalendar() : slots_(kNumSlots) {}
  // 0 <= num_steps <= num_to_end: after so many steps from step `now` it needs attention, and takes
  // its last token.
  void add(const Entry& entry, std::int32_t now, std::int32_t num_steps, std::int32_t num_to_end) {
    slots_[place(now + std::min(num_steps, kHorizon - 1))].push_back(entry);
    // A later end is marked when the request is looked at again, within the horizon. The last slot
    // may be that of a step whose entries are not dropped yet.
    if (num_to_end < kNumSlots - 1)
      ends_[place(now + num_to_end) / 64] |= end_bit(now + num_to_end);
  }
  // The entries of a step, in service order. Valid until drop(); others may be added meanwhile.
  std::span<const Entry> due(std::int32_t step) {
    const std::vector<Entry>& entries = slots_[place(step)];
    return entries.size() > 1 ? sorted(step) : entries;
  }
  std::span<const Entry> due_unsorted(std::int32_t step) const { return slots_[place(step)]; }
  // Forgets the entries of a step.
  void drop(std::int32_t step) {
    ends_[place(step) / 64] &= ~end_bit(step);
    slots_[place(step)].clear();
  }
  // Steps from `step` on without entries, at most kHorizon; and without a last token.
  std::int32_t num_free_steps(std::int32_t step) const;
  std::int32_t num_endless_steps(std::int32_t step) const;
  void clear();

 private:
  std::span<const Entry> sorted(std::int32_t step);
  static constexpr std::int32_t kNumSlots = 2 * kHorizon;
  static std::size_t place(std::int32_t step) { return static_cast<std::size_t>(step) % kNumSlots; }
  static std::uint64_t end_bit(std::int32_t step) { return std::uint64_t{1} << step % 64; }

  std::vector<std::vector<Entry>> slots_;
  std::array<std::uint64_t, kNumSlots / 64> ends_ = {};  // bits: a request takes its last token
};

}  // namespace metronome
