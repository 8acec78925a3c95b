// SPDX-License-Identifier: Apache-2.0
// Rows of model_family.h: families without experts that are made of the same parts as Llama and
// GPT-2.
#pragma once

#include <span>

#include "core/model/model_family.h"

namespace metronome {

std::span<const ModelFamily> dense_families();

}  // namespace metronome
