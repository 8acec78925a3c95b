// SPDX-License-Identifier: Apache-2.0
// The ends of an engine's last steps, and the shortest and the longest gap between them over any
// range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/types.h"

namespace metronome {

class RecentSteps {
 public:
  // The extremes of some gaps. `max_step` ends the first longest one; -1: there is none.
  struct Extremes {
    TimeNs min_ns = 0;
    TimeNs max_ns = 0;
    std::int64_t max_step = -1;

    void fold(TimeNs shortest, TimeNs longest, std::int64_t step) {
      if (max_step < 0) {
        *this = {shortest, longest, step};
        return;
      }
      min_ns = std::min(min_ns, shortest);
      if (longest > max_ns) {
        max_ns = longest;
        max_step = step;
      }
    }
  };

  // The index of the next step.
  std::int64_t size() const { return first_ + static_cast<std::int64_t>(ends_.size()); }
  // Steps that are kept.
  std::size_t num_kept() const { return ends_.size(); }

  void push(TimeNs finished_at) {
    const std::int64_t step = size();
    const TimeNs gap = ends_.empty() ? 0 : finished_at - ends_.back();
    ends_.push_back(finished_at);
    if (step % kBlock == 0) blocks_.emplace_back();
    blocks_.back().fold(gap, gap, step);
  }
  TimeNs finished_at(std::int64_t step) const { return ends_[place(step)]; }
  // Folds the gaps that end in steps [begin, end), of which the step before `begin` is kept, too.
  void fold(std::int64_t begin, std::int64_t end, Extremes& extremes) const {
    for (std::int64_t s = begin; s < end;) {
      if (s % kBlock == 0 && s + kBlock <= end) {
        const Extremes& block = blocks_[static_cast<std::size_t>((s - first_) / kBlock)];
        extremes.fold(block.min_ns, block.max_ns, block.max_step);
        s += kBlock;
        continue;
      }
      const TimeNs gap = finished_at(s) - finished_at(s - 1);
      extremes.fold(gap, gap, s++);
    }
  }
  // Forgets steps before this one, but for at most kBlock of them.
  void drop_before(std::int64_t step) {
    const auto num_blocks =
        static_cast<std::ptrdiff_t>(std::max<std::int64_t>(step - first_, 0) / kBlock);
    ends_.erase(ends_.begin(), ends_.begin() + num_blocks * kBlock);
    blocks_.erase(blocks_.begin(), blocks_.begin() + num_blocks);
    first_ += num_blocks * kBlock;
  }

 private:
  static constexpr std::int32_t kBlock = 32;
  std::size_t place(std::int64_t step) const { return static_cast<std::size_t>(step - first_); }

  std::int64_t first_ = 0;  // a multiple of kBlock
  std::vector<TimeNs> ends_;
  std::vector<Extremes> blocks_;  // of the gaps that end in each kBlock steps
};

}  // namespace metronome
