// Records a server's requests as the results of a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/event.h"
#include "core/metrics/digest.h"
#include "core/metrics/output_log.h"
#include "core/metrics/run_record.h"
#include "core/run/run.h"
#include "reports/files/result_folder.h"
#include "serve/server/live_engine.h"

namespace metronome {

// The served requests with their prompts are also written, as kServedTraceFile, a trace of format
// sharegpt. With that trace as its workload, `metronome run` decides as a simulated server did,
// step by step. Exceptions: clients disconnected, or sent back answers that they had received. A
// run of a trace cannot know the blocks of those answers.
class ServedRecord final : private EventSink {
 public:
  // Creates the folder at once, so that its errors are reported before serving. Throws ConfigError,
  // UsageError. `date` is that of the start.
  ServedRecord(const std::string& folder, const Backend& backend, const PreparedVariant& variant,
               std::string date);

  // For LiveEngine::serve(). `engine` outlives the calls.
  std::vector<EventSink*> sinks(const LiveEngine& engine);

  // Writes the results, after the engine has ended.
  void write();

 private:
  struct Served {
    TimeNs arrival = 0;
    std::vector<TokenId> prompt;
  };

  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}
  void write_trace(const RunRecord& record);

  ResultFolder folder_;
  const Backend& backend_;
  const PreparedVariant& variant_;
  std::string date_;
  const LiveEngine* engine_ = nullptr;
  EventDigest digest_;
  RunRecorder recorder_;
  OutputLog outputs_;
  std::vector<Served> served_;  // by request id
};

}  // namespace metronome
