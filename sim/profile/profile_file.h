// SPDX-License-Identifier: Apache-2.0
// Profiles as the body of a cost model file: the tables, how blocks fill the device, and the
// relevant part of the model's shape.
#pragma once

#include <memory>

#include "core/base/json.h"
#include "sim/cost/cost_model_file.h"
#include "sim/profile/profile_model.h"

namespace metronome {

// Describes the measured model; the number of layers does not matter.
Json profile_body(const Profile& profile, const ModelConfig& model);

// Reads a file of kind "profile". Throws ConfigError if its body is malformed.
Profile read_profile(const CostModelFile& file);

// Throws ConfigError with the file's name if it was measured with a model of another shape. Throws
// UnplacedConfigError if `config` asks for something that a profile has no times of.
std::unique_ptr<CostModel> make_profile_model(const CostModelFile& file, const ModelConfig& model,
                                              const HardwareSpec& hardware,
                                              const CostModelConfig& config);

}  // namespace metronome
