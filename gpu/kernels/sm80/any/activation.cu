// SPDX-License-Identifier: Apache-2.0
// The gated activation of SwiGLU and GeGLU.
#include "gpu/kernels/common/gate.cuh"
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/common/vector.cuh"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 2;  // per thread: four loads in flight

// Blocks along x are tokens; blocks along y are parts of the row.
template <bool kIsGelu>
__global__ void __launch_bounds__(kThreads) gated_activation_kernel(GatedActivationArgs args) {
  join_kernels();
  const std::int64_t token = blockIdx.x;
  const bf16* gates = args.gate_up + token * 2 * args.dim;
  const bf16* ups = gates + args.dim;
  bf16* out = args.out + token * args.dim;
  const int num_vectors = args.dim / kVectorSize;
  const int first = static_cast<int>(blockIdx.y * kVectors * kThreads + threadIdx.x);
  uint4 gate_vectors[kVectors] = {};
  uint4 up_vectors[kVectors] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * kThreads;
    if (i < num_vectors) gate_vectors[v] = load_vector(gates, i);
    if (i < num_vectors) up_vectors[v] = load_vector(ups, i);
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int i = first + v * kThreads;
    Float8 values = unpack(gate_vectors[v]);
    const Float8 up = unpack(up_vectors[v]);
#pragma unroll
    for (int j = 0; j < kVectorSize; ++j) values.x[j] = gate<kIsGelu>(values.x[j]) * up.x[j];
    if (i < num_vectors) store_vector(out, i, pack(values));
  }
}

}  // namespace

void launch_gated_activation(const GatedActivationArgs& args, cudaStream_t stream) {
  constexpr std::int32_t kElements = kThreads * kVectors * kVectorSize;
  const dim3 grid(static_cast<unsigned>(args.num_tokens),
                  static_cast<unsigned>((args.dim + kElements - 1) / kElements));
  launch(args.is_gelu ? gated_activation_kernel<true> : gated_activation_kernel<false>,
         {grid, dim3(kThreads)}, stream, args);
}

}  // namespace metronome
