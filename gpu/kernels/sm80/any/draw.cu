// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/base/rng.h"
#include "gpu/kernels/draw.h"
#include "gpu/kernels/launch.h"

namespace metronome {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxCtas = 4096;

__global__ void draw_weights(std::uint64_t key, std::uint64_t first, std::int64_t count,
                             float scale, __nv_bfloat16* out) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    // As in random_weight(): exact except for the last product.
    const std::uint64_t bits = mix64(key + first + static_cast<std::uint64_t>(i));
    const auto drawn = static_cast<std::int32_t>(bits >> 40);
    out[i] = __float2bfloat16_rn(static_cast<float>(drawn - (1 << 23)) * 0x1p-23f * scale);
  }
}

}  // namespace

void launch_draw_weights(std::uint64_t key, std::uint64_t first, std::int64_t count, float scale,
                         __nv_bfloat16* out, cudaStream_t stream) {
  const std::int64_t num_ctas = std::min((count + kThreads - 1) / kThreads, kMaxCtas);
  launch(draw_weights, {dim3(static_cast<unsigned>(num_ctas)), dim3(kThreads)}, stream, key, first,
         count, scale, out);
}

}  // namespace metronome
