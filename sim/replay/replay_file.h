// SPDX-License-Identifier: Apache-2.0
// The body of a cost model file of kind `replay`, and the conversion of a record into it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/base/json.h"
#include "core/engine/engine_choices.h"
#include "core/metrics/run_record.h"
#include "sim/cost/cost_model_file.h"
#include "sim/fitted/fitted_model.h"
#include "sim/replay/replay_model.h"

namespace metronome {

struct CostModelConfig;

// Other facts of the run that a replay needs.
struct RecordedSetup {
  StepShape step_shape = StepShape::Mixed;
  std::int32_t async_depth = 1;
  TimeNs cold_start_ns = 0;  // that a simulation of the run adds to the first launch
  // The host's own work took time: it planned later than tokens and requests arrived.
  bool is_measured = false;
};

// The steps of a record. A simulation with the same requests and settings begins and ends each step
// at the recorded instant. The composition is unknown for failed steps and for steps with
// unrecorded decodes. In a measured run a request may arrive while the host works between two
// steps. A simulated host works afterwards and sees that request one step later.
std::vector<RecordedStep> replay_steps(const RunRecord& record, const RecordedSetup& setup);

// `fitted` gives the times of steps that were not recorded.
Json replay_body(const std::vector<RecordedStep>& steps, const FittedModel& fitted,
                 const ModelConfig& model);

// Throws ConfigError with file and key if replay_body() did not write the body.
std::vector<RecordedStep> read_replay(const CostModelFile& file);

// See make_cost_model() and make_fitted_cost_model().
std::unique_ptr<CostModel> make_replay_cost_model(const CostModelFile& file,
                                                  const ModelConfig& model,
                                                  const HardwareSpec& hardware,
                                                  const CostModelConfig& config);

}  // namespace metronome
