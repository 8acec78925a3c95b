// What a server served, as the results of a run.
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

// The requests that were served, with their prompts, are written too: as kServedTraceFile, a trace
// of format sharegpt. A simulated server decides as `metronome run` does with that trace as its
// workload, step by step, unless clients left, or sent back answers that they had got (whose blocks
// a run of a trace cannot know).
class ServedRecord final : private EventSink {
 public:
  // Makes the folder at once, so that what is wrong with it is said before anybody is served.
  // Throws ConfigError, UsageError.
  // `date` is that of the start.
  ServedRecord(const std::string& folder, const Backend& backend, const PreparedVariant& variant,
               std::string date);

  // For LiveEngine::serve(). `engine` outlives the calls.
  std::vector<EventSink*> sinks(const LiveEngine& engine);

  // Once the engine has ended.
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
