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
    entry.draft_ns = time.draft_ns;
    entry.encode_ns = time.encode_ns;
    entry.extrapolated = time.is_extrapolated;
    entry.num_used_blocks = time.num_used_blocks;
    push_back(entry);
  }
}

void StepHistory::push_back(const StepEntry& step) {
  const auto put = [this](Column column, std::int64_t value) { open_[column][num_open_] = value; };
  const std::int64_t num_decodes = step.num_decode_tokens;
  put(kFinished, step.finished_at);
  put(kPlanned, step.planned_at - last_end_);
  put(kStarted, step.started_at - step.planned_at);
  put(kPrefillTokens, step.num_prefill_tokens);
  put(kDecodeTokens, num_decodes);
  put(kRunning, step.num_running - num_decodes);
  put(kEmitted, step.num_emitted - num_decodes);
  put(kContinued, knows_continued_ ? num_decodes - step.num_continued : step.num_continued);
  put(kWaiting, step.num_waiting);
  put(kUsedBlocks, step.num_used_blocks);
  put(kPreempted, step.num_preempted);
  put(kFlags, (step.failed ? 1 : 0) + (step.extrapolated ? 2 : 0));
  put(kFirstChunk, step.first_prefill_chunk);
  put(kChunks, step.num_prefill_chunks);
  const bool knows_decodes = step.decode_only_ns != kNoTime;
  put(kDecodeOnly, knows_decodes ? step.duration_ns() - step.decode_only_ns : kUnknown);
  put(kDraftTime, step.draft_ns);
  put(kEncodeTime, step.encode_ns);
  put(kDrafted, step.num_draft_tokens);
  put(kAccepted, step.num_accepted_tokens);
  last_end_ = step.finished_at;
  if (++num_open_ == PackedColumn::kBlock) pack();
}

// Moves the open block to the columns.
void StepHistory::pack() {
  for (std::size_t c = 0; c < kNumColumns; ++c) columns_[c].append_block(open_[c]);
  num_open_ = 0;
}

void StepHistory::set_continued(std::span<const std::int32_t> num_continued) {
  PackedColumn column;
  for (std::size_t i = 0; i < size(); ++i) {
    const std::int64_t num_others = value(kDecodeTokens, i) - num_continued[i];
    if (i < num_packed()) {
      column.push_back(num_others);
    } else {
      open_[kContinued][i - num_packed()] = num_others;
    }
  }
  columns_[kContinued] = std::move(column);
  knows_continued_ = true;
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
  step.num_continued =
      knows_continued_ ? step.num_decode_tokens - number(kContinued) : number(kContinued);
  step.num_waiting = number(kWaiting);
  step.num_used_blocks = number(kUsedBlocks);
  step.num_preempted = number(kPreempted);
  step.failed = (number(kFlags) & 1) != 0;
  step.extrapolated = (number(kFlags) & 2) != 0;
  step.first_prefill_chunk = number(kFirstChunk);
  step.num_prefill_chunks = number(kChunks);
  step.draft_ns = value(kDraftTime);
  step.encode_ns = value(kEncodeTime);
  step.num_draft_tokens = number(kDrafted);
  step.num_accepted_tokens = number(kAccepted);
  const std::int64_t decode_only = value(kDecodeOnly);
  if (decode_only != kUnknown) step.decode_only_ns = step.duration_ns() - decode_only;
  return step;
}

StepEntry StepHistory::operator[](std::size_t i) const {
  return entry_of([&](Column column) { return value(column, i); }, i > 0 ? finished_at(i - 1) : 0);
}

void StepHistory::Iterator::read() {
  constexpr std::size_t kBlock = PackedColumn::kBlock;
  const std::size_t num_steps = std::min(kBlock, log_->size() - position_);
  if (num_steps == 0) return;
  std::array<Block, kNumColumns> values;
  if (position_ < log_->num_packed()) {
    for (std::size_t c = 0; c < kNumColumns; ++c) {
      log_->columns_[c].read_block(position_ / kBlock, values[c]);
    }
  } else {
    values = log_->open_;
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
