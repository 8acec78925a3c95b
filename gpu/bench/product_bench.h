// SPDX-License-Identifier: Apache-2.0
// Times a model's linear layers with every kernel that computes them, and compares them with the
// machine's least time.
#pragma once

#include "gpu/plan/product_report.h"

namespace metronome {

// Empty in a build without CUDA.
ProductBenchFn make_product_bench();

}  // namespace metronome
