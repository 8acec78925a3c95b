// SPDX-License-Identifier: Apache-2.0
// Replaces the CUDA backend and benchmarks in builds without CUDA.
#include "gpu/bench/bench.h"
#include "gpu/bench/product_bench.h"
#include "gpu/engine/cuda_backend.h"

namespace metronome {

std::unique_ptr<Backend> make_cuda_backend() { return nullptr; }
BenchFn make_gpu_bench() { return nullptr; }
ProductBenchFn make_product_bench() { return nullptr; }

}  // namespace metronome
