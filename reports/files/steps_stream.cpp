// SPDX-License-Identifier: Apache-2.0
#include "reports/files/steps_stream.h"

#include <span>
#include <utility>

#include "core/base/json_text.h"
#include "reports/files/json_lines.h"
#include "reports/files/steps_jsonl.h"
#include "system/progress.h"

namespace metronome {

StepsStream::StepsStream(std::string path, std::int64_t max_bytes)
    : max_bytes_(max_bytes), file_(std::move(path), throw_if_interrupted) {
  thread_ = std::thread([this] { write(); });
}

// Without finish() nobody wants the file: what is not written yet is dropped.
StepsStream::~StepsStream() {
  {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    parts_.clear();
  }
  end_thread();
}

void StepsStream::take(std::unique_ptr<const StepHistory> steps, std::vector<PrefillChunk> chunks) {
  if (steps->empty()) return;
  constexpr std::size_t kMaxParts = 64;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return parts_.size() < kMaxParts || is_done_; });
    if (is_done_) return;
    parts_.push_back({std::move(steps), std::move(chunks)});
  }
  changed_.notify_one();
}

void StepsStream::end_thread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool StepsStream::finish() {
  end_thread();
  if (error_) std::rethrow_exception(error_);
  return !is_too_large_;
}

StepsStream::Part StepsStream::next_part() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !parts_.empty() || has_ended_; });
  if (parts_.empty()) return {};
  Part part = std::move(parts_.front());
  parts_.pop_front();
  changed_.notify_one();
  return part;
}

bool StepsStream::is_abandoned() {
  const std::lock_guard lock(mutex_);
  return is_abandoned_;
}

void StepsStream::write() {
  try {
    is_too_large_ = !write_parts();
    if (!is_too_large_ && !is_abandoned()) file_.sync();
    file_.close();
  } catch (...) {
    error_ = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    parts_.clear();
  }
  changed_.notify_one();
}

// Returns false when the file becomes too large.
bool StepsStream::write_parts() {
  constexpr std::int64_t kBytesPerSync = std::int64_t{4} << 20;
  JsonText json;
  std::size_t position = 0;
  std::int64_t next_sync = kBytesPerSync;
  for (Part part = next_part(); part.steps != nullptr; part = next_part()) {
    std::span<const PrefillChunk> chunks = part.chunks;
    for (const StepEntry& step : *part.steps) {
      const auto num_chunks = static_cast<std::size_t>(step.num_prefill_chunks);
      append_step(position++, step, chunks.first(num_chunks), {}, json);
      chunks = chunks.subspan(num_chunks);
      if (json.size() < kFlushBytes) continue;
      file_.write(json.view());
      json.clear();
      if (file_.num_bytes() > max_bytes_) return false;
      if (file_.num_bytes() < next_sync) continue;
      file_.begin_sync();
      next_sync += kBytesPerSync;
    }
  }
  file_.write(json.view());
  return file_.num_bytes() <= max_bytes_;
}

}  // namespace metronome
