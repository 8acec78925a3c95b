#include "core/metrics/step_history.h"

#include <algorithm>
#include <numeric>

namespace metronome {

void StepHistory::push_back(const StepEntry& step) {
  const StepTimes times = {.planned_at = step.planned_at,
                           .started_at = step.started_at,
                           .finished_at = step.finished_at,
                           .decode_only_ns = step.decode_only_ns,
                           .is_extrapolated = step.extrapolated};
  push_back(step, {&times, 1});
}

void StepHistory::push_back(const StepEntry& step, std::span<const StepTimes> times) {
  TimeNs before = empty() ? 0 : finished_at(size() - 1);
  for (const StepTimes& time : times) {
    columns_[kFinished].push_back(time.finished_at);
    columns_[kPlanned].push_back(time.planned_at - before);
    columns_[kStarted].push_back(time.started_at - time.planned_at);
    columns_[kFlags].push_back((step.failed ? 1 : 0) + (time.is_extrapolated ? 2 : 0));
    const TimeNs duration = time.finished_at - time.started_at;
    const bool is_known = time.decode_only_ns != kNoTime;
    columns_[kDecodeOnly].push_back(is_known ? duration - time.decode_only_ns : kUnknown);
    before = time.finished_at;
  }
  const auto append = [&](Column column, std::int64_t value) {
    columns_[column].append(value, times.size());
  };
  const std::int64_t decodes = step.num_decode_tokens;
  append(kPrefillTokens, step.num_prefill_tokens);
  append(kDecodeTokens, decodes);
  append(kRunning, step.num_running - decodes);
  append(kEmitted, step.num_emitted - decodes);
  append(kContinued, step.num_continued - decodes);
  append(kWaiting, step.num_waiting);
  append(kUsedBlocks, step.num_used_blocks);
  append(kPreempted, step.num_preempted);
  append(kFirstChunk, step.first_prefill_chunk);
  append(kChunks, step.num_prefill_chunks);
}

void StepHistory::set_continued(std::span<const std::int32_t> num_continued) {
  PackedColumn column;
  for (std::size_t i = 0; i < num_continued.size(); ++i) {
    column.push_back(num_continued[i] - columns_[kDecodeTokens][i]);
  }
  columns_[kContinued] = std::move(column);
}

template <class Get>
StepEntry StepHistory::entry_of(const Get& value, TimeNs before) {
  const auto number = [&](Column column) { return static_cast<std::int32_t>(value(column)); };
  StepEntry step;
  step.finished_at = value(kFinished);
  step.planned_at = before + value(kPlanned);
  step.started_at = step.planned_at + value(kStarted);
  step.num_prefill_tokens = number(kPrefillTokens);
  step.num_decode_tokens = number(kDecodeTokens);
  step.num_running = step.num_decode_tokens + number(kRunning);
  step.num_emitted = step.num_decode_tokens + number(kEmitted);
  step.num_continued = step.num_decode_tokens + number(kContinued);
  step.num_waiting = number(kWaiting);
  step.num_used_blocks = number(kUsedBlocks);
  step.num_preempted = number(kPreempted);
  step.failed = (number(kFlags) & 1) != 0;
  step.extrapolated = (number(kFlags) & 2) != 0;
  step.first_prefill_chunk = number(kFirstChunk);
  step.num_prefill_chunks = number(kChunks);
  const std::int64_t decode_only = value(kDecodeOnly);
  if (decode_only != kUnknown) step.decode_only_ns = step.duration_ns() - decode_only;
  return step;
}

StepEntry StepHistory::operator[](std::size_t i) const {
  return entry_of([&](Column column) { return columns_[column][i]; },
                  i > 0 ? finished_at(i - 1) : 0);
}

void StepHistory::Iterator::read() {
  constexpr std::size_t kBlock = PackedColumn::kBlock;
  const std::size_t num_steps = std::min(kBlock, log_->size() - position_);
  if (num_steps == 0) return;
  std::array<std::array<std::int64_t, kBlock>, kNumColumns> values;
  for (std::size_t c = 0; c < kNumColumns; ++c) {
    log_->columns_[c].read_block(position_ / kBlock, values[c]);
  }
  TimeNs before = position_ > 0 ? log_->finished_at(position_ - 1) : 0;
  block_.resize(num_steps);
  for (std::size_t i = 0; i < num_steps; ++i) {
    block_[i] = entry_of([&](Column column) { return values[column][i]; }, before);
    before = block_[i].finished_at;
  }
}

std::size_t StepHistory::num_bytes() const {
  return std::accumulate(
      columns_.begin(), columns_.end(), std::size_t{0},
      [](std::size_t sum, const PackedColumn& c) { return sum + c.num_bytes(); });
}

}  // namespace metronome
