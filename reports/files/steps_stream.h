// SPDX-License-Identifier: Apache-2.0
// Writes steps.jsonl while the run goes on, on a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/metrics/run_record.h"
#include "system/file_writer.h"

namespace metronome {

// For runs without drafts and images, whose lines depend on nothing that follows. The run waits
// when the thread is a few hundred thousand steps behind.
class StepsStream final : public StepSink {
 public:
  // Creates the file. Throws as FileWriter does.
  StepsStream(std::string path, std::int64_t max_bytes);
  StepsStream(const StepsStream&) = delete;
  StepsStream& operator=(const StepsStream&) = delete;
  ~StepsStream() override;

  void take(std::unique_ptr<const StepHistory> steps, std::vector<PrefillChunk> chunks) override;

  // Returns once all is on the disk: whether the file has at most `max_bytes`. A larger one is not
  // complete. Throws what the thread met: as FileWriter does, or Interrupted.
  bool finish();

 private:
  struct Part {
    std::unique_ptr<const StepHistory> steps;  // null: nothing follows
    std::vector<PrefillChunk> chunks;
  };

  void end_thread();
  // On the thread.
  void write();
  bool write_parts();
  Part next_part();
  bool is_abandoned();

  // Of the thread until it has ended.
  std::int64_t max_bytes_;
  FileWriter file_;
  bool is_too_large_ = false;
  std::exception_ptr error_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<Part> parts_;
  bool has_ended_ = false;  // nothing follows
  bool is_done_ = false;    // nothing more is written
  bool is_abandoned_ = false;

  std::thread thread_;
};

}  // namespace metronome
