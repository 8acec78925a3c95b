// SPDX-License-Identifier: Apache-2.0
// One run of a scenario on a backend. Preparation reports every error before anything runs. Then
// the run executes and emits events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/clock.h"
#include "core/engine/drive.h"
#include "core/engine/engine.h"
#include "core/engine/front_end.h"
#include "core/engine/request_feed.h"
#include "core/engine/step_predictor.h"
#include "core/model/model_config.h"
#include "core/run/time_accuracy.h"
#include "core/workload/workload.h"

namespace metronome {

struct Scenario;

// The first request that failed or was rejected for one reason, and why.
struct FailureMessage {
  EndReason reason = EndReason::None;
  std::string text;  // "request 3: needs 900 prompt + 200 output tokens; max_model_len is 1024"
};

struct RunOutcome {
  bool completed = false;                // false: `progress` ended the run early
  std::size_t num_unsent = 0;            // requests of sessions that an earlier failure ended
  std::vector<FailureMessage> messages;  // one per reason
  std::string remark;                    // the policy's remark on its decisions; may be empty
};

// A scenario with everything resolved, ready to run.
class PreparedRun {
 public:
  virtual ~PreparedRun() = default;

  ModelConfig model;
  std::string device;  // hardware or device model: "h200", "AMD EPYC 9654, 8 threads"
  EngineSetup setup;
  std::shared_ptr<StepTimePredictor> predictor;  // the one in `setup`; null unless the policy asks
                                                 // for it
  FrontEnd front_end;                            // simulated before the engine sees a request
  std::string warning;  // for settings that are allowed but worth knowing; may be empty
  // Of a run of several engines: "8 replicas behind vllm_router"; empty: it has one. `model`,
  // `setup` and the like are then those of most of them.
  std::string fleet_text;
  std::int64_t num_gpus = 0;  // of all engines; 0: those of the scenario's one engine
  std::optional<double> price_per_gpu_hour = {};  // of a fleet: the mean of its GPUs
  std::string weights_text;                       // origin of the weights; empty if there are none
  // Requests may ask for penalties and logit_bias. A simulation has no logits that they change.
  bool takes_penalties = true;

  void predict_with(std::shared_ptr<StepTimePredictor> made) {
    predictor = std::move(made);
    setup.predictor = predictor.get();
  }

  // Throws ConfigError or UnplacedConfigError for a workload that cannot run.
  virtual void check_workload(const Workload&) const {}

  // Loads what run() needs into memory, before its clock starts. Calls `poll` from time to time; an
  // exception from it ends the loading. Throws ConfigError.
  virtual void load(const std::function<void()>& poll) { poll(); }

  // Makes the next run() use the n-th draw of its random times. Draw 0, the default, follows from
  // the scenario's seed. Has no effect on a backend without random times.
  virtual void draw_noise(std::int32_t) {}

  // Makes each step of the next run() take `factor` times its time on the device, which policies
  // do not know. Has no effect on a backend that computes.
  virtual void scale_steps(double /*factor*/) {}

  // The distance of simulated times from measured ones in runs like this, with so many requests
  // that wait or run on average. nullopt: times are measured, or nothing was compared.
  virtual std::optional<TimeAccuracy> accuracy(double /*num_in_system*/) const {
    return std::nullopt;
  }

  // Runs the workload to its end. Every sink receives every event, in order. `clock` starts at 0;
  // it is virtual for the simulator and real for backends that compute. `progress` is called from
  // time to time, also within long steps. An exception from it ends the run.
  virtual RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                         const ProgressFn& progress) = 0;

  // Serves the requests of `feed` until the feed ends. `clock` runs in real time. The simulator's
  // clock runs at the pace that its creator set. An exception from the clock or the feed ends the
  // call.
  virtual void serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) = 0;
};

// Whether a run can take a workload. Throws ConfigError.
void check_workload(const Scenario& scenario, const PreparedRun& run, const Workload& workload);

// Executes scenarios. Prepares several runs in turn, which may share costly setup.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual bool is_measured() const = 0;  // times are real: they vary between runs
  // Throws ConfigError.
  virtual std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) = 0;
};

// Runs the engine's loop over the requests of `feed`, on an executor.
void serve_requests(const EngineSetup& setup, Executor& executor, Clock& clock, RequestFeed& feed,
                    std::span<EventSink* const> sinks);

// Runs the engine's loop over a workload, on an executor.
RunOutcome run_workload(const EngineSetup& setup, Executor& executor, Clock& clock,
                        const Workload& workload, std::span<EventSink* const> sinks,
                        const ProgressFn& progress, std::int64_t steps_per_progress,
                        const FrontEnd& front_end = {});

}  // namespace metronome
