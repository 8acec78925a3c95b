// Profiles as the body of a cost model file: the tables, how blocks fill the device, and what of
// the model's shape they depend on.
#pragma once

#include <memory>

#include "core/base/json.h"
#include "sim/cost/cost_model_file.h"
#include "sim/profile/profile_model.h"

namespace metronome {

// Tells what was measured; the number of layers does not matter.
Json profile_body(const Profile& profile, const ModelConfig& model);

// Of a file of kind "profile". Throws ConfigError where its body is malformed.
Profile read_profile(const CostModelFile& file);

// Throws ConfigError naming the file where it was measured with a model of another shape, and
// UnplacedConfigError where `config` asks for what a profile has no times of.
std::unique_ptr<CostModel> make_profile_model(const CostModelFile& file, const ModelConfig& model,
                                              const HardwareSpec& hardware,
                                              const CostModelConfig& config);

}  // namespace metronome
