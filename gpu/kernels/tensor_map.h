// Matrices as Hopper's bulk copy engine sees them.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace metronome {

// Of [num_rows, columns] bfloat16 in device memory, read and written in boxes of box_rows rows and
// 64 columns, which land in shared memory with the 128-byte swizzle
// (gpu/kernels/common/hopper_ptx.h); zeros for what is outside. Begins at a multiple of 16 bytes;
// columns is a multiple of 8, box_rows is at most 256. Throws CudaError where the driver has no
// tensor maps or refuses one.
CUtensorMap row_tensor(const __nv_bfloat16* rows, std::int64_t num_rows, std::int64_t columns,
                       std::int32_t box_rows);

}  // namespace metronome
