// The steps of a run in a few bytes each.
//
// Most fields of a step equal those of the step before, or differ by little. So each field is a
// column of the bytes in which steps differ; times are differences to the times that they follow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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

// A growing list of steps. Reading a step by its index takes tens of nanoseconds; a single field
// has a function of its own where that is much used. Iteration is faster.
class StepHistory {
 public:
  // Reads a block of steps at a time.
  class Iterator {
   public:
    explicit Iterator(const StepHistory& log) : log_(&log) { read(); }
    const StepEntry& operator*() const { return block_[position_ % PackedColumn::kBlock]; }
    Iterator& operator++() {
      if (++position_ % PackedColumn::kBlock == 0) read();
      return *this;
    }
    std::size_t position() const { return position_; }

   private:
    void read();

    const StepHistory* log_;
    std::size_t position_ = 0;
    std::vector<StepEntry> block_;
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
  // Sets num_continued of all steps.
  void set_continued(std::span<const std::int32_t> num_continued);

  std::size_t size() const { return num_packed() + num_open_; }
  bool empty() const { return size() == 0; }
  // These require i < size().
  StepEntry operator[](std::size_t i) const;
  TimeNs finished_at(std::size_t i) const { return value(kFinished, i); }
  TimeNs planned_at(std::size_t i) const {
    return value(kPlanned, i) + (i > 0 ? finished_at(i - 1) : 0);
  }
  std::int32_t num_prefill_tokens(std::size_t i) const { return number(kPrefillTokens, i); }
  std::int32_t num_emitted(std::size_t i) const {
    return number(kEmitted, i) + number(kDecodeTokens, i);
  }
  std::int32_t num_continued(std::size_t i) const {
    return knows_continued_ ? number(kDecodeTokens, i) - number(kContinued, i)
                            : number(kContinued, i);
  }
  StepEntry back() const { return (*this)[size() - 1]; }  // requires a step

  Iterator begin() const { return Iterator(*this); }
  End end() const { return {size()}; }

  // Bytes of heap memory.
  std::size_t num_bytes() const;

 private:
  enum Column : std::size_t {
    kFinished,
    kPlanned,  // after the previous step's end
    kStarted,  // after planned_at
    kPrefillTokens,
    kDecodeTokens,
    kRunning,    // beyond the decode tokens
    kEmitted,    // beyond them
    kContinued,  // decode tokens beyond it after set_continued(); before, itself: mostly 0
    kWaiting,
    kUsedBlocks,
    kPreempted,
    kFlags,
    kFirstChunk,
    kChunks,
    kDecodeOnly,  // subtracted from the duration; kUnknown
    kDraftTime,
    kEncodeTime,
    kDrafted,
    kAccepted,
    kNumColumns
  };
  static constexpr std::int64_t kUnknown = INT64_MIN;

  // The step whose fields have these values; `before` is the previous step's end.
  template <class Get>
  StepEntry entry_of(const Get& value, TimeNs before) const;

  std::size_t num_packed() const { return columns_[kFinished].size(); }
  std::int64_t value(Column column, std::size_t i) const {
    return i < num_packed() ? columns_[column][i] : open_[column][i - num_packed()];
  }
  std::int32_t number(Column column, std::size_t i) const {
    return static_cast<std::int32_t>(value(column, i));
  }
  void pack();

  std::array<PackedColumn, kNumColumns> columns_;  // of all full blocks of steps
  // The last block, which is not full.
  using Block = std::array<std::int64_t, PackedColumn::kBlock>;
  std::array<Block, kNumColumns> open_ = {};
  std::size_t num_open_ = 0;
  TimeNs last_end_ = 0;           // finished_at of the last step
  bool knows_continued_ = false;  // set_continued() was called
};

}  // namespace metronome
