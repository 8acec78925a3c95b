// Times of a model's linear layers by every kernel that computes them, beside the least time that
// the machine could take.
#pragma once

#include "gpu/plan/product_report.h"

namespace metronome {

// Empty in a build without CUDA.
ProductBenchFn make_product_bench();

}  // namespace metronome
