// SPDX-License-Identifier: Apache-2.0
// A scenario on the simulator: a cost model replaces the device.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/hardware/hardware.h"
#include "core/run/run.h"
#include "core/scenario/setting.h"
#include "sim/cost/checked.h"
#include "sim/cost/cost_model.h"
#include "sim/drafts/acceptance.h"
#include "sim/encoder_cost.h"
#include "sim/step_noise.h"

namespace metronome {

struct Scenario;

struct Simulation final : PreparedRun {
  HardwareSpec hardware;
  std::unique_ptr<CostModel> cost_model;
  NoisyCostModel* noise = nullptr;          // same object as `cost_model`, if its times are drawn
  std::optional<Acceptance> acceptance;     // of drafts, if there are any
  std::optional<EncoderCost> encoder_cost;  // of a model with a vision tower
  TimeNs cold_start_ns = 0;
  double step_scale = 1;  // of scale_steps()
  // The source of step times, and how far such times were off.
  std::string step_times;
  CheckedRun checked;                        // by runs that were compared
  std::optional<TimeAccuracy> own_accuracy;  // by held-out steps of the file itself

  void check_workload(const Workload& workload) const override;
  void draw_noise(std::int32_t n) override;
  void scale_steps(double factor) override { step_scale = factor; }
  std::optional<TimeAccuracy> accuracy(double num_in_system) const override;
  RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                 const ProgressFn& progress = {}) override;
  void serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) override;
};

// Predicts step times from the scenario's `hardware` and `cost_model`, for a policy that needs
// them. Throws ConfigError.
std::unique_ptr<StepTimePredictor> make_step_predictor(const Scenario& scenario,
                                                       const ModelConfig& model);

// Device time to encode an image of so many embeddings; 0: none, or the GPU's peaks are not known.
// Throws ConfigError.
TimeNs image_encode_ns(const Scenario& scenario, const ModelConfig& model,
                       std::int32_t num_embeddings);

// A scenario's host as settings of `cost_model`, to replay another policy on it.
struct HostSettings {
  std::vector<Setting> times;   // without the gap between steps, if that was measured
  std::vector<Setting> graphs;  // which passes run as CUDA graphs
};
// Throws ConfigError.
HostSettings host_settings(const Scenario& scenario);

// The scenario as Metronome's own engines run it: they launch kernels from C++, not from Python.
Scenario on_own_engine(Scenario scenario);

// Resolves names, cost model and KV capacity. Throws ConfigError.
Simulation prepare_simulation(const Scenario& scenario);

class SimulatedBackend final : public Backend {
 public:
  std::string_view name() const override { return "sim"; }
  bool is_measured() const override { return false; }
  std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) override;
};

}  // namespace metronome
