// SPDX-License-Identifier: Apache-2.0
// The steps of a run in a few bytes each.
//
// Most fields of a step equal those of the step before, or differ by little. So each field is a
// column of the bytes in which steps differ; times are differences to the times that they follow.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/packed_column.h"
#include "core/base/types.h"
#include "core/engine/step_plan.h"

namespace metronome {

// One committed step. The counts of running and waiting requests and of used blocks are taken right
// after planning.
struct StepEntry {
  TimeNs planned_at = 0;
  TimeNs started_at = 0;
  TimeNs finished_at = 0;
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;
  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  std::int32_t num_used_blocks = 0;
  std::int32_t num_preempted = 0;
  bool failed = false;
  bool extrapolated = false;       // StepResult::is_extrapolated
  std::int32_t num_emitted = 0;    // tokens that requests received
  std::int32_t num_continued = 0;  // tokens of requests that also got one in the previous step
  // Prefill chunks [first_prefill_chunk, first_prefill_chunk + num_prefill_chunks) of RunRecord.
  std::int32_t first_prefill_chunk = 0;
  std::int32_t num_prefill_chunks = 0;
  // StepResult::decode_only_ns; kNoTime: unknown to the executor.
  TimeNs decode_only_ns = kNoTime;
  TimeNs draft_ns = 0;                   // StepResult::draft_ns
  TimeNs encode_ns = 0;                  // StepResult::encode_ns
  std::int32_t num_draft_tokens = 0;     // of num_decode_tokens: drafts, padding among them
  std::int32_t num_accepted_tokens = 0;  // of these, received by requests

  std::int32_t num_tokens() const { return num_prefill_tokens + num_decode_tokens; }
  TimeNs duration_ns() const { return finished_at - started_at; }
  bool operator==(const StepEntry&) const = default;
};

// Sets what a repeated step has of its own.
void set_times(const StepTimes& times, StepEntry& step);

// A growing list of steps. Reading a step by its index takes tens of nanoseconds; a single field
// has a function of its own where that is much used. Iteration is faster.
class StepHistory {
 public:
  // Reads a block of steps at a time.
  class Iterator {
   public:
    // Begins at a step, or behind the last one.
    Iterator(const StepHistory& log, std::size_t position) : log_(&log), position_(position) {
      read();
    }
    const StepEntry& operator*() const { return block_[position_ % PackedColumn::kBlock]; }
    Iterator& operator++() {
      if (++position_ % PackedColumn::kBlock == 0) read();
      return *this;
    }
    std::size_t position() const { return position_; }

   private:
    void read();

    const StepHistory* log_;
    std::size_t position_;
    std::vector<StepEntry> block_;  // that of position_
  };
  struct End {
    std::size_t size;
    friend bool operator==(const Iterator& iterator, const End& end) {
      return iterator.position() == end.size;
    }
  };

  void push_back(const StepEntry& step);
  // Steps like `step` at these times.
  void push_back(const StepEntry& step, std::span<const StepTimes> times);
  // Steps [begin, end), which are numbered from 0, for another thread to read while this history
  // grows. Both are multiples of PackedColumn::kBlock; `end` may be size() instead. Their
  // num_continued is 0.
  std::unique_ptr<const StepHistory> part(std::size_t begin, std::size_t end) const;
  // Sets num_continued of all steps.
  void set_continued(std::span<const std::int32_t> num_continued);

  std::size_t size() const { return num_packed() + num_open_; }
  bool empty() const { return size() == 0; }
  // These require i < size().
  StepEntry operator[](std::size_t i) const;
  TimeNs finished_at(std::size_t i) const { return value(kFinished, i); }
  TimeNs planned_at(std::size_t i) const { return value(kPlanned, i) + end_before(i); }
  std::int32_t num_decode_tokens(std::size_t i) const { return number(kDecodeTokens, i); }
  std::int32_t num_tokens(std::size_t i) const {
    return num_prefill_tokens(i) + num_decode_tokens(i);
  }
  std::int32_t num_running(std::size_t i) const {
    return number(kRunning, i) + number(kDecodeTokens, i);
  }
  std::int32_t num_waiting(std::size_t i) const { return number(kWaiting, i); }
  std::int32_t num_used_blocks(std::size_t i) const { return number(kUsedBlocks, i); }
  std::int32_t num_preempted(std::size_t i) const { return number(kPreempted, i); }
  std::int32_t first_prefill_chunk(std::size_t i) const { return number(kFirstChunk, i); }
  std::int32_t num_prefill_chunks(std::size_t i) const { return number(kChunks, i); }
  std::int32_t num_prefill_tokens(std::size_t i) const { return number(kPrefillTokens, i); }
  std::int32_t num_emitted(std::size_t i) const {
    return number(kEmitted, i) + number(kDecodeTokens, i);
  }
  std::int32_t num_continued(std::size_t i) const {
    return continued_of(value(kDecodeTokens, i), value(kContinued, i));
  }
  StepEntry back() const { return (*this)[size() - 1]; }  // requires a step

  Iterator begin() const { return from(0); }
  Iterator from(std::size_t i) const { return {*this, i}; }  // requires i <= size()
  End end() const { return {size()}; }

  // The tokens that a step gave, and the time of its end.
  struct Output {
    TimeNs finished_at;
    std::int32_t num_emitted;
    std::int32_t num_continued;
  };
  // Calls visit(i, Output) for every step i: several times as fast as iteration.
  template <class Visit>
  void for_each_output(const Visit& visit) const;

  // Bytes of heap memory.
  std::size_t num_bytes() const;

 private:
  using Block = std::array<std::int64_t, PackedColumn::kBlock>;

  enum Column : std::size_t {
    kFinished,
    kPlanned,  // after the previous step's end
    kStarted,  // after planned_at
    kPrefillTokens,
    kDecodeTokens,
    kRunning,  // beyond the decode tokens
    kEmitted,  // beyond them
    kWaiting,
    kUsedBlocks,
    kFirstChunk,
    kChunks,
    kDecodeOnly,  // subtracted from the duration; kUnknown
    kPreempted,
    kNumUsual,
    // Decode tokens beyond it after set_continued(). Before, itself, as a rare column.
    kContinued = kNumUsual,
    // 0 in all steps of most runs. Absent until a step has another value in one of them.
    kFlags,
    kDraftTime,
    kEncodeTime,
    kDrafted,
    kAccepted,
    kNumColumns
  };
  static constexpr std::int64_t kUnknown = INT64_MIN;

  // Sets the fields of a step, whose rare ones are 0, from these values; `before` is the previous
  // step's end.
  template <class Get>
  void set_entry(const Get& value, TimeNs before, StepEntry& step) const;

  TimeNs end_before(std::size_t i) const { return i > 0 ? finished_at(i - 1) : first_begin_; }
  std::size_t num_packed() const { return columns_[kFinished].size(); }
  bool is_absent(Column column) const {
    return column >= kNumUsual && !has_rare_ && !(column == kContinued && knows_continued_);
  }
  std::int64_t value(Column column, std::size_t i) const {
    if (is_absent(column)) return 0;
    return i < num_packed() ? columns_[column][i] : open_[column][i - num_packed()];
  }
  std::int32_t number(Column column, std::size_t i) const {
    return static_cast<std::int32_t>(value(column, i));
  }
  std::int32_t continued_of(std::int64_t num_decodes, std::int64_t stored) const {
    return static_cast<std::int32_t>(knows_continued_ ? num_decodes - stored : stored);
  }
  // Values of a column for the steps of a block, which has its first step at `begin`.
  void read_block(Column column, std::size_t begin, Block& out) const;
  void put_repeats(const StepEntry& step, std::span<const StepTimes> times);
  void put_rare(const StepEntry& step);
  void add_rare_columns();
  void pack();

  std::array<PackedColumn, kNumColumns> columns_;  // of all full blocks of steps
  std::array<Block, kNumColumns> open_ = {};       // the last block, which is not full
  std::size_t num_open_ = 0;
  TimeNs first_begin_ = 0;        // finished_at of the step before the first one
  TimeNs last_end_ = 0;           // finished_at of the last step
  bool has_rare_ = false;         // the rare columns are present
  bool knows_continued_ = false;  // set_continued() was called
};

template <class Visit>
void StepHistory::for_each_output(const Visit& visit) const {
  Block finished;
  Block decodes;
  Block emitted;
  Block continued;
  for (std::size_t begin = 0; begin < size(); begin += PackedColumn::kBlock) {
    read_block(kFinished, begin, finished);
    read_block(kDecodeTokens, begin, decodes);
    read_block(kEmitted, begin, emitted);
    read_block(kContinued, begin, continued);
    const std::size_t num_steps = std::min(PackedColumn::kBlock, size() - begin);
    for (std::size_t i = 0; i < num_steps; ++i) {
      visit(begin + i, Output{finished[i], static_cast<std::int32_t>(decodes[i] + emitted[i]),
                              continued_of(decodes[i], continued[i])});
    }
  }
}

}  // namespace metronome
