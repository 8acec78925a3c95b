// SPDX-License-Identifier: Apache-2.0
#include "core/engine/decode_run.h"

#include <algorithm>
#include <bit>

namespace metronome {

std::int64_t RunMembers::sum_of_contexts(std::int64_t window) const {
  WindowSum& cached = window_sum_;
  if (cached.window != window || num_steps_ < cached.begin || num_steps_ >= cached.end) {
    cached = {.window = window, .begin = num_steps_, .end = INT32_MAX};
    for (const Member& member : members_) {
      const std::int64_t context = std::int64_t{position_of(member)} + 1;
      cached.sum += std::min(context, window);
      if (context >= window) continue;
      ++cached.num_growing;
      const std::int64_t num_more = window - context;  // steps until it fills the window
      cached.end =
          static_cast<std::int32_t>(std::min<std::int64_t>(cached.end, num_steps_ + num_more + 1));
    }
  }
  return cached.sum + cached.num_growing * (num_steps_ - cached.begin);
}

void RunMembers::list(std::span<const ScheduledChunk> others, std::size_t place, bool emitted,
                      std::vector<ScheduledChunk>& out) const {
  const std::span<const ScheduledChunk> before = others.first(place);
  const std::span<const ScheduledChunk> behind = others.subspan(place);
  out.assign(before.begin(), before.end());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    out.push_back(chunk(i));
    out.back().num_emitted = emitted ? 1 : 0;
  }
  out.insert(out.end(), behind.begin(), behind.end());
}

void RunMembers::append(RequestId request, std::int32_t position, std::uint8_t generation) {
  members_.push_back({request, position - num_steps_});
  generations_.push_back(generation);
  num_later_generations_ += generation != 0 ? 1 : 0;
  window_sum_ = {};
  sum_of_starts_ += members_.back().start;
}

void RunMembers::erase(std::span<const std::int32_t> places) {
  if (places.empty()) return;
  window_sum_ = {};
  std::ptrdiff_t to = places.front();
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::ptrdiff_t gone = places[i];
    sum_of_starts_ -= members_[static_cast<std::size_t>(gone)].start;
    num_later_generations_ -= generations_[static_cast<std::size_t>(gone)] != 0 ? 1 : 0;
    const std::ptrdiff_t stop = i + 1 < places.size() ? places[i + 1] : std::ssize(members_);
    std::move(members_.begin() + gone + 1, members_.begin() + stop, members_.begin() + to);
    std::move(generations_.begin() + gone + 1, generations_.begin() + stop,
              generations_.begin() + to);
    to += stop - gone - 1;
  }
  members_.resize(static_cast<std::size_t>(to));
  generations_.resize(static_cast<std::size_t>(to));
}

void RunMembers::clear() {
  members_.clear();
  generations_.clear();
  window_sum_ = {};
  sum_of_starts_ = 0;
  num_later_generations_ = 0;
}

std::span<const RunCalendar::Entry> RunCalendar::sorted(std::int32_t step) {
  std::vector<Entry>& entries = slots_[place(step)];
  const auto before = [](const Entry& a, const Entry& b) { return a.order < b.order; };
  if (!std::is_sorted(entries.begin(), entries.end(), before)) {
    std::sort(entries.begin(), entries.end(), before);
  }
  return entries;
}

std::int32_t RunCalendar::num_free_steps(std::int32_t step) const {
  std::int32_t num_steps = 0;
  while (num_steps < kHorizon && slots_[place(step + num_steps)].empty()) ++num_steps;
  return num_steps;
}

std::int32_t RunCalendar::num_endless_steps(std::int32_t step) const {
  std::int32_t num_steps = 0;
  while (num_steps < kHorizon) {
    const std::int32_t bit = (step + num_steps) % 64;
    const std::uint64_t bits = ends_[place(step + num_steps) / 64] >> bit;
    if (bits != 0) return std::min(num_steps + std::countr_zero(bits), kHorizon);
    num_steps += 64 - bit;
  }
  return kHorizon;
}

void RunCalendar::clear() {
  for (std::vector<Entry>& entries : slots_) entries.clear();
  ends_ = {};
}

}  // namespace metronome
