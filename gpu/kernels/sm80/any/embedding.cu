// SPDX-License-Identifier: Apache-2.0
// Copies rows of the embedding table by token.
#include <algorithm>

#include "gpu/kernels/common/ptx.h"
#include "gpu/kernels/common/vector.cuh"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 2;  // per thread, in flight together

// One block per token.
__global__ void __launch_bounds__(kThreads) embed_kernel(EmbedArgs args) {
  join_kernels();
  const std::int64_t token = blockIdx.x;
  const int num_threads = static_cast<int>(blockDim.x);
  const int num_vectors = args.hidden_dim / kVectorSize;
  std::int32_t id = args.token_ids[token];
  if (id < 0) id = args.sampled[-1 - id];
  if (id < 0 || id >= args.vocab_size) id = 0;
  const bf16* source = args.table + static_cast<std::int64_t>(id) * args.hidden_dim;
  bf16* out = args.out + token * args.hidden_dim;
  for (int first = static_cast<int>(threadIdx.x); first < num_vectors;
       first += kVectors * num_threads) {
    uint4 vectors[kVectors] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = first + v * num_threads;
      if (i < num_vectors) vectors[v] = load_vector(source, i);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int i = first + v * num_threads;
      Float8 row = unpack(vectors[v]);
#pragma unroll
      for (float& x : row.x) x *= args.scale;
      if (i < num_vectors) store_vector(out, i, pack(row));
    }
  }
}

}  // namespace

void launch_embed(const EmbedArgs& args, cudaStream_t stream) {
  const std::int32_t threads =
      std::min((args.hidden_dim / kVectorSize + kVectors - 1) / kVectors, kThreads);
  launch(embed_kernel, {dim3(static_cast<unsigned>(args.num_tokens)), dim3(whole_warps(threads))},
         stream, args);
}

}  // namespace metronome
