// One run of a scenario on some backend: prepared first, so that whatever is wrong with it is said
// before anything runs; then executed, events out.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/clock.h"
#include "core/engine/engine.h"
#include "core/engine/request_feed.h"
#include "core/engine/step_predictor.h"
#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"

namespace metronome {

// Of the requests that failed or were refused for one reason: the first of them, and why.
struct FailureMessage {
  EndReason reason = EndReason::None;
  std::string text;  // "request 3: needs 900 prompt + 200 output tokens; max_model_len is 1024"
};

struct RunOutcome {
  bool completed = false;                // false: `progress` ended the run early
  std::vector<FailureMessage> messages;  // one a reason
  std::string remark;                    // of the policy on its decisions; empty: nothing
};

// A scenario with everything looked up: what will run, before it runs.
class PreparedRun {
 public:
  virtual ~PreparedRun() = default;

  ModelConfig model;
  std::string device;  // what it runs on: "h200", "AMD EPYC 9654, 8 threads"
  EngineSetup setup;
  std::shared_ptr<StepTimePredictor> predictor;  // that of `setup`, where the policy asks for one
  std::string warning;       // what is allowed but worth knowing; empty: nothing
  std::string weights_text;  // where the weights come from; empty: there are none

  void predict_with(std::shared_ptr<StepTimePredictor> made) {
    predictor = std::move(made);
    setup.predictor = predictor.get();
  }

  // Throws ConfigError for a workload that cannot be run.
  virtual void check_workload(const Workload&) const {}

  // Brings into memory what run() needs, before its clock starts. Calls `poll` now and then; what
  // that throws ends it. Throws ConfigError.
  virtual void load(const std::function<void()>& poll) { poll(); }

  // The next run() draws what is random in its times for the n-th time; before the first call, and
  // for 0, as the scenario's seed says. Without effect where nothing is.
  virtual void draw_noise(std::int32_t) {}

  // Runs the workload to its end. Every event goes to every sink, in order. `clock` is virtual for
  // the simulator, real for what computes, and starts at 0. `progress` is called now and then,
  // where steps are long also in the middle of one; what it throws ends the run.
  virtual RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                         const ProgressFn& progress) = 0;

  // Serves the requests of `feed` until it says that no more will come. `clock` runs in real time;
  // that of the simulator at the pace of whoever made it. What the clock or the feed throws ends
  // it.
  virtual void serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) = 0;
};

// What executes scenarios. Prepares several runs in turn, which may share what is costly to set up.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual bool is_measured() const = 0;  // times are real: clock, date and results vary
  // Throws ConfigError.
  virtual std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) = 0;
};

// The engine's loop over what comes, on an executor.
void serve_requests(const EngineSetup& setup, Executor& executor, Clock& clock, RequestFeed& feed,
                    std::span<EventSink* const> sinks);

// The engine's loop over a workload, on an executor.
RunOutcome run_workload(const EngineSetup& setup, Executor& executor, Clock& clock,
                        const Workload& workload, std::span<EventSink* const> sinks,
                        const ProgressFn& progress, std::int64_t steps_per_progress);

// Everything a run needs, looked up and drawn: what is wrong with it has been said by now.
struct PreparedVariant {
  Scenario scenario;
  std::unique_ptr<PreparedRun> run;
  std::shared_ptr<const Workload> workload;  // one for all variants that agree on it
};

}  // namespace metronome
