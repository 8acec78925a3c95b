// SPDX-License-Identifier: Apache-2.0
// Draws random weights on the device.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace metronome {

// out[i] = bf16(random_weight(key, first + i, scale)) of models/weights/model_weights.h, to the
// bit.
void launch_draw_weights(std::uint64_t key, std::uint64_t first, std::int64_t count, float scale,
                         __nv_bfloat16* out, cudaStream_t stream);

}  // namespace metronome
