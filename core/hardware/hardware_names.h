// SPDX-License-Identifier: Apache-2.0
// GPUs under the names that drivers print and people type: core/hardware/hardware_names.yaml.
#pragma once

#include <string>
#include <string_view>

namespace metronome {

// The catalogue's name of the GPU that is called so: "NVIDIA GeForce RTX 3090" and "rtx3090" are
// rtx-3090, "h100" is h100-sxm. Empty: none.
std::string hardware_name(std::string_view name);

// The catalogue's name of the GPU that was meant, if only letters are wrong: another number is
// another GPU. Empty: none is near.
std::string nearest_hardware(std::string_view name);

}  // namespace metronome
