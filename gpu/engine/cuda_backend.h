// SPDX-License-Identifier: Apache-2.0
// Runs scenarios on an NVIDIA GPU.
#pragma once

#include <memory>

#include "core/run/run.h"

namespace metronome {

// Null in a build without CUDA (CMake option METRONOME_CUDA).
//
// prepare() throws ConfigError for errors of the scenario itself and for any of these:
// - there is no driver or no GPU;
// - the kernels do not support the GPU or the model;
// - weights are missing or malformed;
// - the sizes do not fit into the GPU's memory.
//
// load() puts the weights on the GPU, chooses algorithms and checks chunk-invariance. It throws
// ConfigError if that does not hold.
std::unique_ptr<Backend> make_cuda_backend();

}  // namespace metronome
