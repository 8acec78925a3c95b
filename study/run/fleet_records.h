// SPDX-License-Identifier: Apache-2.0
// What a fleet's run keeps: the steps of all replicas, or figures and the steps of chosen replicas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/engine/event.h"
#include "core/metrics/fleet_figures.h"
#include "core/metrics/run_record.h"
#include "reports/files/variant_result.h"

namespace metronome {

struct PreparedVariant;

// Whether a run of the variant keeps the steps of all its engines (FleetConfig::keeps_steps).
bool keeps_steps(const PreparedVariant& variant);
// Where it does not: for FleetFigures.
FleetFigures::Options figures_options(const PreparedVariant& variant);
// Where it does not, and the scenario does not say so: a warning. Empty otherwise.
std::string unasked_figures_text(const PreparedVariant& variant);
// Throws ConfigError where it does not.
void require_steps(const PreparedVariant& variant);

// Records the chosen replicas of a run, each as if it were the only engine.
class ChosenReplicas final : public EventSink {
 public:
  // `variant` outlives it.
  explicit ChosenReplicas(const PreparedVariant& variant) : variant_(variant) {}

  EventSink* of_replica(const ReplicaScope& scope) override;
  void on_event(const Event&, const Request&) override {}
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}

  // Their results, but for `files`: each with the settings of its own engine, and without a digest
  // and a request rate. `label` is that of the run.
  std::vector<ReplicaOutcome> finish(const std::string& label);

 private:
  struct Chosen {
    ReplicaScope scope;
    std::unique_ptr<RunRecorder> recorder;
  };
  const PreparedVariant& variant_;
  std::vector<Chosen> chosen_;
};

}  // namespace metronome
