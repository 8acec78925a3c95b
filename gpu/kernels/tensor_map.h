// SPDX-License-Identifier: Apache-2.0
// Tensor maps of matrices, for Hopper's bulk copy engine.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace metronome {

// A map of [num_rows, columns] bfloat16 in device memory. It is read and written in boxes of
// box_rows rows and 64 columns, which lie in shared memory with the 128-byte swizzle
// (gpu/kernels/common/hopper_ptx.h). Elements outside read as zeros. `rows` is 16-byte aligned,
// columns a multiple of 8, box_rows at most 256. Throws CudaError if the driver has no tensor maps
// or refuses one.
CUtensorMap row_tensor(const __nv_bfloat16* rows, std::int64_t num_rows, std::int64_t columns,
                       std::int32_t box_rows);

}  // namespace metronome
