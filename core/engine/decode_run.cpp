#include "core/engine/decode_run.h"

#include <algorithm>

namespace metronome {

ScheduledChunk RunMembers::chunk(std::size_t i) const {
  return {.request = members_[i].request,
          .first_position = position_of(members_[i]),
          .num_tokens = 1,
          .kind = ChunkKind::Decode,
          .samples_token = true,
          .generation = generations_[i]};
}

std::int64_t RunMembers::sum_of_contexts(std::int64_t window) const {
  std::int64_t sum = 0;
  for (const Member& member : members_) {
    sum += std::min(std::int64_t{position_of(member)} + 1, window);
  }
  return sum;
}

void RunMembers::list(std::span<const ScheduledChunk> others, bool emitted,
                      std::vector<ScheduledChunk>& out) const {
  out.clear();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    out.push_back(chunk(i));
    out.back().emitted = emitted;
  }
  out.insert(out.end(), others.begin(), others.end());
}

void RunMembers::append(RequestId request, std::int32_t position, std::uint8_t generation) {
  members_.push_back({request, position - num_steps_});
  generations_.push_back(generation);
  num_later_generations_ += generation != 0 ? 1 : 0;
  sum_of_starts_ += members_.back().start;
}

void RunMembers::erase(std::span<const std::int32_t> places) {
  if (places.empty()) return;
  auto next = places.begin();
  auto to = static_cast<std::size_t>(*next);
  for (std::size_t from = to; from < members_.size(); ++from) {
    if (next != places.end() && static_cast<std::size_t>(*next) == from) {
      sum_of_starts_ -= members_[from].start;
      num_later_generations_ -= generations_[from] != 0 ? 1 : 0;
      ++next;
      continue;
    }
    members_[to] = members_[from];
    generations_[to++] = generations_[from];
  }
  members_.resize(to);
  generations_.resize(to);
}

void RunMembers::clear() {
  members_.clear();
  generations_.clear();
  sum_of_starts_ = 0;
  num_later_generations_ = 0;
}

void RunCalendar::take(std::int32_t step, std::vector<Entry>& out) {
  out.swap(slot(step));
  slot(step).clear();
  const auto before = [](const Entry& a, const Entry& b) { return a.order < b.order; };
  if (!std::is_sorted(out.begin(), out.end(), before)) std::sort(out.begin(), out.end(), before);
}

std::int32_t RunCalendar::num_free_steps(std::int32_t step) const {
  std::int32_t num_steps = 0;
  while (num_steps < kHorizon &&
         slots_[static_cast<std::size_t>(step + num_steps) % kHorizon].empty()) {
    ++num_steps;
  }
  return num_steps;
}

void RunCalendar::clear() {
  for (std::vector<Entry>& entries : slots_) entries.clear();
}

}  // namespace metronome
