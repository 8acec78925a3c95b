#include "core/metrics/step_history.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace metronome {

void StepHistory::push_back(const StepEntry& step, std::span<const StepTimes> times) {
  StepEntry entry = step;
  for (const StepTimes& time : times) {
    entry.planned_at = time.planned_at;
    entry.started_at = time.started_at;
    entry.finished_at = time.finished_at;
    entry.decode_only_ns = time.decode_only_ns;
    entry.extrapolated = time.is_extrapolated;
    entry.num_used_blocks = time.num_used_blocks;
    push_back(entry);
  }
}

// Moves the open block to the columns.
void StepHistory::pack() {
  std::array<std::int64_t, PackedColumn::kBlock> values;
  const auto pack_column = [&](Column column, const auto& value_of) {
    for (std::size_t i = 0; i < PackedColumn::kBlock; ++i) values[i] = value_of(open_[i]);
    columns_[column].append_block(values);
  };
  TimeNs before = num_packed() > 0 ? finished_at(num_packed() - 1) : 0;
  pack_column(kPlanned, [&before](const StepEntry& step) {
    return step.planned_at - std::exchange(before, step.finished_at);
  });
  pack_column(kStarted, [](const StepEntry& step) { return step.started_at - step.planned_at; });
  pack_column(kPrefillTokens, [](const StepEntry& step) { return step.num_prefill_tokens; });
  pack_column(kDecodeTokens, [](const StepEntry& step) { return step.num_decode_tokens; });
  const auto beyond_decodes = [](std::int32_t count, const StepEntry& step) {
    return std::int64_t{count} - step.num_decode_tokens;
  };
  pack_column(kRunning, [&](const StepEntry& s) { return beyond_decodes(s.num_running, s); });
  pack_column(kEmitted, [&](const StepEntry& s) { return beyond_decodes(s.num_emitted, s); });
  pack_column(kContinued, [&](const StepEntry& s) {
    return knows_continued_ ? beyond_decodes(s.num_continued, s) : s.num_continued;
  });
  pack_column(kWaiting, [](const StepEntry& step) { return step.num_waiting; });
  pack_column(kUsedBlocks, [](const StepEntry& step) { return step.num_used_blocks; });
  pack_column(kPreempted, [](const StepEntry& step) { return step.num_preempted; });
  pack_column(kFlags, [](const StepEntry& step) {
    return (step.failed ? 1 : 0) + (step.extrapolated ? 2 : 0);
  });
  pack_column(kFirstChunk, [](const StepEntry& step) { return step.first_prefill_chunk; });
  pack_column(kChunks, [](const StepEntry& step) { return step.num_prefill_chunks; });
  pack_column(kDecodeOnly, [](const StepEntry& step) {
    const bool is_known = step.decode_only_ns != kNoTime;
    return is_known ? step.duration_ns() - step.decode_only_ns : kUnknown;
  });
  pack_column(kFinished, [](const StepEntry& step) { return step.finished_at; });
  open_.clear();
}

void StepHistory::set_continued(std::span<const std::int32_t> num_continued) {
  PackedColumn column;
  for (std::size_t i = 0; i < num_packed(); ++i) {
    column.push_back(num_continued[i] - columns_[kDecodeTokens][i]);
  }
  columns_[kContinued] = std::move(column);
  knows_continued_ = true;
  for (std::size_t i = num_packed(); i < num_continued.size(); ++i) {
    open_[i - num_packed()].num_continued = num_continued[i];
  }
}

template <class Get>
StepEntry StepHistory::entry_of(const Get& value, TimeNs before) const {
  const auto number = [&](Column column) { return static_cast<std::int32_t>(value(column)); };
  StepEntry step;
  step.finished_at = value(kFinished);
  step.planned_at = before + value(kPlanned);
  step.started_at = step.planned_at + value(kStarted);
  step.num_prefill_tokens = number(kPrefillTokens);
  step.num_decode_tokens = number(kDecodeTokens);
  step.num_running = step.num_decode_tokens + number(kRunning);
  step.num_emitted = step.num_decode_tokens + number(kEmitted);
  step.num_continued = number(kContinued) + (knows_continued_ ? step.num_decode_tokens : 0);
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
  if (i >= num_packed()) return open(i);
  return entry_of([&](Column column) { return columns_[column][i]; },
                  i > 0 ? finished_at(i - 1) : 0);
}

void StepHistory::Iterator::read() {
  constexpr std::size_t kBlock = PackedColumn::kBlock;
  const std::size_t num_steps = std::min(kBlock, log_->size() - position_);
  if (num_steps == 0) return;
  if (position_ >= log_->num_packed()) {
    block_ = log_->open_;
    return;
  }
  std::array<std::array<std::int64_t, kBlock>, kNumColumns> values;
  for (std::size_t c = 0; c < kNumColumns; ++c) {
    log_->columns_[c].read_block(position_ / kBlock, values[c]);
  }
  TimeNs before = position_ > 0 ? log_->finished_at(position_ - 1) : 0;
  block_.resize(num_steps);
  for (std::size_t i = 0; i < num_steps; ++i) {
    block_[i] = log_->entry_of([&](Column column) { return values[column][i]; }, before);
    before = block_[i].finished_at;
  }
}

std::size_t StepHistory::num_bytes() const {
  return std::accumulate(
      columns_.begin(), columns_.end(), std::size_t{0},
      [](std::size_t sum, const PackedColumn& c) { return sum + c.num_bytes(); });
}

}  // namespace metronome
