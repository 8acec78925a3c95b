// SPDX-License-Identifier: Apache-2.0
// RMSNorm and the residual stream. A block has one row, which it reads once, keeps in registers and
// writes once.
#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/common/vector.cuh"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

constexpr int kMaxThreads = 512;

// A thread's share of a row: vectors threadIdx.x + v * blockDim.x, zeros past the end.
template <int kVectors>
struct RowShare {
  uint4 vectors[kVectors];

  __device__ __forceinline__ void load(const bf16* row, int num_vectors) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = index(v);
      vectors[v] = i < num_vectors ? load_vector(row, i) : make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void store(bf16* row, int num_vectors) const {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = index(v);
      if (i < num_vectors) store_vector(row, i, vectors[v]);
    }
  }

  // rsqrt(mean(x^2) + eps) of the row. All threads of the block call it.
  __device__ __forceinline__ float norm_scale(float inverse_dim, float eps, float* partials) const {
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) squares = sum_of_squares(unpack(vectors[v]), squares);
    return rsqrtf(block_sum(squares, partials) * inverse_dim + eps);
  }
  __device__ __forceinline__ void normalise(float scale, const RowShare& weight, bool unit_offset) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      vectors[v] = normalised(unpack(vectors[v]), scale, weight.vectors[v], unit_offset);
    }
  }
  __device__ __forceinline__ void add(const RowShare& other) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) vectors[v] = added(vectors[v], other.vectors[v]);
  }

 private:
  __device__ __forceinline__ static int index(int v) {
    return static_cast<int>(threadIdx.x) + v * static_cast<int>(blockDim.x);
  }
};

// The number of blocks per SM limits the registers of a thread.
template <int kVectors>
__global__ void __launch_bounds__(kMaxThreads, kVectors <= 2 ? 2 : 1)
    norm_kernel(NormArgs args, float inverse_dim) {
  join_kernels();
  __shared__ float partials[2][kMaxThreads / kWarpSize];
  const std::int64_t row = blockIdx.x;
  const int num_vectors = args.hidden_dim / kVectorSize;
  bf16* residual = args.residual + (args.rows != nullptr ? args.rows[row] : row) * args.hidden_dim;

  // Starts all loads before the first sum waits.
  RowShare<kVectors> x;
  RowShare<kVectors> update;
  RowShare<kVectors> post_weight;
  RowShare<kVectors> weight;
  x.load(residual, num_vectors);
  if (args.update != nullptr) update.load(args.update + row * args.hidden_dim, num_vectors);
  if (args.post_weight != nullptr) post_weight.load(args.post_weight, num_vectors);
  if (args.weight != nullptr) weight.load(args.weight, num_vectors);

  if (args.update != nullptr) {
    if (args.post_weight != nullptr) {
      const float scale = update.norm_scale(inverse_dim, args.eps, partials[0]);
      update.normalise(scale, post_weight, args.unit_offset);
    }
    x.add(update);
    x.store(residual, num_vectors);
  }
  if (args.weight == nullptr) return;
  const float scale = x.norm_scale(inverse_dim, args.eps, partials[1]);
  x.normalise(scale, weight, args.unit_offset);
  x.store(args.out + row * args.hidden_dim, num_vectors);
}

template <int kVectors>
void launch_with(const NormArgs& args, cudaStream_t stream) {
  const std::int32_t threads = (args.hidden_dim / kVectorSize + kVectors - 1) / kVectors;
  launch(norm_kernel<kVectors>,
         {dim3(static_cast<unsigned>(args.num_rows)), dim3(whole_warps(threads))}, stream, args,
         1.0f / static_cast<float>(args.hidden_dim));
}

}  // namespace

void launch_norm(const NormArgs& args, cudaStream_t stream) {
  // The row length alone decides the number of threads, and so the order of the sums.
  if (args.hidden_dim <= 2 * kMaxThreads * kVectorSize) {
    launch_with<2>(args, stream);
  } else {
    launch_with<4>(args, stream);
  }
}

}  // namespace metronome
