// SPDX-License-Identifier: Apache-2.0
// Rows of model_family.h: mixtures of experts, and models with latent attention.
#pragma once

#include <span>

#include "core/model/model_family.h"

namespace metronome {

std::span<const ModelFamily> expert_families();

}  // namespace metronome
