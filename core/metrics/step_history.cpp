// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/step_history.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace metronome {

namespace {

bool is_rare(const StepEntry& step) {
  return (step.num_draft_tokens | step.num_accepted_tokens) != 0 ||
         (step.draft_ns | step.encode_ns) != 0 || step.failed || step.extrapolated;
}

bool is_rare(const StepTimes& times) {
  return (times.draft_ns | times.encode_ns) != 0 || times.is_extrapolated;
}

}  // namespace

void set_times(const StepTimes& times, StepEntry& step) {
  step.planned_at = times.planned_at;
  step.started_at = times.started_at;
  step.finished_at = times.finished_at;
  step.decode_only_ns = times.decode_only_ns;
  step.draft_ns = times.draft_ns;
  step.encode_ns = times.encode_ns;
  step.extrapolated = times.is_extrapolated;
  step.num_used_blocks = times.num_used_blocks;
}

void StepHistory::push_back(const StepEntry& step, std::span<const StepTimes> times) {
  const auto is_rare_time = [](const StepTimes& time) { return is_rare(time); };
  if (!has_rare_ && !knows_continued_ && step.num_continued == 0 && !is_rare(step) &&
      std::none_of(times.begin(), times.end(), is_rare_time)) {
    while (!times.empty()) {
      const std::size_t num_steps = std::min(times.size(), PackedColumn::kBlock - num_open_);
      put_repeats(step, times.first(num_steps));
      times = times.subspan(num_steps);
    }
    return;
  }
  StepEntry entry = step;
  for (const StepTimes& time : times) {
    set_times(time, entry);
    push_back(entry);
  }
}

// Of steps that fit into the open block and have nothing rare: column by column.
void StepHistory::put_repeats(const StepEntry& step, std::span<const StepTimes> times) {
  const auto fill = [&](Column column, std::int64_t value) {
    std::fill_n(open_[column].data() + num_open_, times.size(), value);
  };
  const auto put = [&](Column column, const auto& value_of) {
    std::transform(times.begin(), times.end(), open_[column].data() + num_open_, value_of);
  };
  const std::int64_t num_decodes = step.num_decode_tokens;
  put(kFinished, [](const StepTimes& t) { return t.finished_at; });
  TimeNs before = last_end_;
  put(kPlanned, [&before](const StepTimes& t) {
    return t.planned_at - std::exchange(before, t.finished_at);
  });
  put(kStarted, [](const StepTimes& t) { return t.started_at - t.planned_at; });
  fill(kPrefillTokens, step.num_prefill_tokens);
  fill(kDecodeTokens, num_decodes);
  fill(kRunning, step.num_running - num_decodes);
  fill(kEmitted, step.num_emitted - num_decodes);
  fill(kWaiting, step.num_waiting);
  put(kUsedBlocks, [](const StepTimes& t) { return std::int64_t{t.num_used_blocks}; });
  fill(kFirstChunk, step.first_prefill_chunk);
  fill(kChunks, step.num_prefill_chunks);
  put(kDecodeOnly, [](const StepTimes& t) {
    const bool knows_decodes = t.decode_only_ns != kNoTime;
    return knows_decodes ? t.finished_at - t.started_at - t.decode_only_ns : kUnknown;
  });
  fill(kPreempted, step.num_preempted);
  last_end_ = before;
  num_open_ += times.size();
  if (num_open_ == PackedColumn::kBlock) pack();
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
  put(kWaiting, step.num_waiting);
  put(kUsedBlocks, step.num_used_blocks);
  put(kFirstChunk, step.first_prefill_chunk);
  put(kChunks, step.num_prefill_chunks);
  const bool knows_decodes = step.decode_only_ns != kNoTime;
  put(kDecodeOnly, knows_decodes ? step.duration_ns() - step.decode_only_ns : kUnknown);
  put(kPreempted, step.num_preempted);
  if (knows_continued_) put(kContinued, num_decodes - step.num_continued);
  const bool has_rare = is_rare(step) || (!knows_continued_ && step.num_continued != 0);
  if (has_rare_ || has_rare) [[unlikely]]
    put_rare(step);
  last_end_ = step.finished_at;
  if (++num_open_ == PackedColumn::kBlock) pack();
}

void StepHistory::put_rare(const StepEntry& step) {
  if (!has_rare_) add_rare_columns();
  const auto put = [this](Column column, std::int64_t value) { open_[column][num_open_] = value; };
  if (!knows_continued_) put(kContinued, step.num_continued);
  put(kFlags, (step.failed ? 1 : 0) + (step.extrapolated ? 2 : 0));
  put(kDraftTime, step.draft_ns);
  put(kEncodeTime, step.encode_ns);
  put(kDrafted, step.num_draft_tokens);
  put(kAccepted, step.num_accepted_tokens);
}

// Zeros for the steps so far, which the open block has already.
void StepHistory::add_rare_columns() {
  constexpr Block kZeros = {};
  for (std::size_t c = knows_continued_ ? kFlags : kContinued; c < kNumColumns; ++c) {
    while (columns_[c].size() < num_packed()) columns_[c].append_block(kZeros);
  }
  has_rare_ = true;
}

// Moves the open block to the columns.
void StepHistory::pack() {
  for (std::size_t c = 0; c < kNumUsual; ++c) columns_[c].append_block(open_[c]);
  for (std::size_t c = kNumUsual; c < kNumColumns; ++c) {
    if (!is_absent(static_cast<Column>(c))) columns_[c].append_block(open_[c]);
  }
  num_open_ = 0;
}

std::unique_ptr<const StepHistory> StepHistory::part(std::size_t begin, std::size_t end) const {
  auto steps = std::make_unique<StepHistory>();
  steps->first_begin_ = end_before(begin);
  const std::size_t first = begin / PackedColumn::kBlock;
  const std::size_t last = std::min(end, num_packed()) / PackedColumn::kBlock;
  const bool has_open = end > num_packed();
  for (std::size_t c = 0; c < kNumColumns; ++c) {
    if (c == kContinued || is_absent(static_cast<Column>(c))) continue;
    steps->columns_[c] = columns_[c].share_blocks(first, last);
    if (has_open) steps->open_[c] = open_[c];
  }
  if (has_open) steps->num_open_ = num_open_;
  steps->last_end_ = steps->end_before(steps->size());
  if (has_rare_) steps->add_rare_columns();
  return steps;
}

void StepHistory::set_continued(std::span<const std::int32_t> num_continued) {
  PackedColumn column;
  Block block;
  for (std::size_t begin = 0; begin < size(); begin += PackedColumn::kBlock) {
    read_block(kDecodeTokens, begin, block);
    const std::size_t num_steps = std::min(PackedColumn::kBlock, size() - begin);
    for (std::size_t i = 0; i < num_steps; ++i) block[i] -= num_continued[begin + i];
    if (begin < num_packed()) {
      column.append_block(block);
    } else {
      open_[kContinued] = block;
    }
  }
  columns_[kContinued] = std::move(column);
  knows_continued_ = true;
}

// Field by field in place: a copy of the whole entry would wait for each store.
template <class Get>
void StepHistory::set_entry(const Get& value, TimeNs before, StepEntry& step) const {
  const auto number = [&](Column column) { return static_cast<std::int32_t>(value(column)); };
  const TimeNs finished_at = value(kFinished);
  const TimeNs planned_at = before + value(kPlanned);
  const TimeNs started_at = planned_at + value(kStarted);
  const std::int32_t num_decodes = number(kDecodeTokens);
  step.planned_at = planned_at;
  step.started_at = started_at;
  step.finished_at = finished_at;
  step.num_prefill_tokens = number(kPrefillTokens);
  step.num_decode_tokens = num_decodes;
  step.num_running = num_decodes + number(kRunning);
  step.num_emitted = num_decodes + number(kEmitted);
  step.num_continued = continued_of(num_decodes, value(kContinued));
  step.num_waiting = number(kWaiting);
  step.num_used_blocks = number(kUsedBlocks);
  step.num_preempted = number(kPreempted);
  step.first_prefill_chunk = number(kFirstChunk);
  step.num_prefill_chunks = number(kChunks);
  const std::int64_t decode_only = value(kDecodeOnly);
  step.decode_only_ns = decode_only == kUnknown ? kNoTime : finished_at - started_at - decode_only;
  if (!has_rare_) return;
  step.failed = (number(kFlags) & 1) != 0;
  step.extrapolated = (number(kFlags) & 2) != 0;
  step.draft_ns = value(kDraftTime);
  step.encode_ns = value(kEncodeTime);
  step.num_draft_tokens = number(kDrafted);
  step.num_accepted_tokens = number(kAccepted);
}

StepEntry StepHistory::operator[](std::size_t i) const {
  StepEntry step;
  set_entry([&](Column column) { return value(column, i); }, end_before(i), step);
  return step;
}

void StepHistory::read_block(Column column, std::size_t begin, Block& out) const {
  if (is_absent(column)) {
    out.fill(0);
  } else if (begin < num_packed()) {
    columns_[column].read_block(begin / PackedColumn::kBlock, out);
  } else {
    out = open_[column];
  }
}

void StepHistory::Iterator::read() {
  constexpr std::size_t kBlock = PackedColumn::kBlock;
  const std::size_t begin = position_ / kBlock * kBlock;
  if (position_ == log_->size()) return;
  std::array<Block, kNumColumns> values;
  const std::size_t num_columns = log_->has_rare_ ? kNumColumns : kContinued + 1;
  for (std::size_t c = 0; c < num_columns; ++c) {
    log_->read_block(static_cast<Column>(c), begin, values[c]);
  }
  // block_ is that of the steps before, if there are any.
  TimeNs before = block_.empty() ? log_->end_before(begin) : block_.back().finished_at;
  block_.resize(std::min(kBlock, log_->size() - begin));
  for (std::size_t i = 0; i < block_.size(); ++i) {
    log_->set_entry([&](Column column) { return values[column][i]; }, before, block_[i]);
    before = values[kFinished][i];
  }
}

std::size_t StepHistory::num_bytes() const {
  return std::accumulate(
      columns_.begin(), columns_.end(), std::size_t{0},
      [](std::size_t sum, const PackedColumn& c) { return sum + c.num_bytes(); });
}

}  // namespace metronome
