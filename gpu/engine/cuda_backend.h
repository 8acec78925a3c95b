// Scenarios on an NVIDIA GPU.
#pragma once

#include <memory>

#include "core/run/run.h"

namespace metronome {

// Null in a build without CUDA (CMake option METRONOME_CUDA).
//
// prepare() throws ConfigError: beside what the scenario itself gets wrong, no driver or no GPU, a
// GPU or a model the kernels are not made for, weights that are missing or malformed, and sizes the
// GPU's memory has no room for. load() puts the weights on the GPU, chooses algorithms, checks that
// chunk-invariance holds, and throws ConfigError where it does not.
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace metronome
