// From a scenario to an engine: fills in what the scenario leaves to the model, the policy, or the
// memory of the machine that executes it.
#pragma once

#include <cstdint>
#include <functional>

#include "core/engine/engine.h"
#include "core/model/model_config.h"
#include "core/scenario/scenario.h"

namespace metronome {

// How many blocks of `block_tokens` tokens the executor has memory for.
using KvCapacityFn = std::function<std::int64_t(std::int64_t block_tokens)>;

// What `auto` stands for resolved: the shape that the policy's engine has.
StepShape resolved_step_shape(const Scenario& scenario);

// Throws UnplacedConfigError when the scenario asks for more than model or memory allow.
EngineSetup make_engine_setup(const Scenario& scenario, const ModelConfig& model,
                              const KvCapacityFn& kv_capacity);

}  // namespace metronome
