// SPDX-License-Identifier: Apache-2.0
// Records a server's requests as the results of a run.
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/base/json_text.h"
#include "core/engine/event.h"
#include "core/metrics/digest.h"
#include "core/metrics/output_log.h"
#include "core/metrics/run_record.h"
#include "core/run/run.h"
#include "reports/files/result_folder.h"
#include "serve/server/live_engine.h"
#include "serve/server/served_journal.h"

namespace metronome {

struct PreparedVariant;

// The served requests with their prompts are also written, as kServedTraceFile, a trace of format
// sharegpt. Until then they are in a file beside the folder, FOLDER.served.jsonl, in the order of
// their ends. It is written as requests end, so it survives the process. With that trace as its
// workload, `metronome run` decides as a simulated server did, step by step. Exceptions: clients
// disconnected, or sent back answers that they had received. A run of a trace cannot know the
// blocks of those answers.
class ServedRecord final : private EventSink {
 public:
  // Creates folder and journal at once, so that errors are reported before serving. Throws
  // ConfigError, UsageError. `date` is that of the start.
  ServedRecord(const std::string& folder, const Backend& backend, const PreparedVariant& variant,
               std::string date);

  // For LiveEngine::serve(). `engine` outlives the calls.
  std::vector<EventSink*> sinks(const LiveEngine& engine);

  // Writes the results, after the engine has ended. If that fails, the journal stays.
  void write();

  ServedJournal& journal() { return journal_; }

  // The bytes of the record so far, in memory and in the journal. For any thread.
  std::int64_t num_bytes() const { return num_bytes_; }

 private:
  struct Served {
    TimeNs arrival = 0;
    ServedJournal::Line line = {};  // of its end
  };

  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;
  void count_bytes();
  ServedJournal::Line write_line(const Event& event, const Request& request);
  void write_images(const LiveRequest& request);
  void write_trace();

  ResultFolder folder_;
  ServedJournal journal_;
  const Backend& backend_;
  const PreparedVariant& variant_;
  std::string date_;
  const LiveEngine* engine_ = nullptr;
  EventDigest digest_;
  RunRecorder recorder_;
  OutputLog outputs_;
  std::vector<Served> served_;               // by request id
  std::set<std::uint64_t> recorded_images_;  // contents whose files are in the journal
  JsonText line_;                            // scratch
  std::atomic<std::int64_t> num_bytes_ = 0;
};

}  // namespace metronome
