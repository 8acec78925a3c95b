// SPDX-License-Identifier: Apache-2.0
// The part of the driver API that gpu/ uses: tensor maps. Numbers as in CUDA 13 (cuda.h).
#pragma once

#include <cstdint>

using cuuint32_t = std::uint32_t;
using cuuint64_t = std::uint64_t;

enum CUresult : int { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType : int { CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9 };
enum CUtensorMapInterleave : int { CU_TENSOR_MAP_INTERLEAVE_NONE = 0 };
enum CUtensorMapSwizzle : int { CU_TENSOR_MAP_SWIZZLE_NONE = 0, CU_TENSOR_MAP_SWIZZLE_128B = 3 };
enum CUtensorMapL2promotion : int {
  CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
  CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
  CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3
};
enum CUtensorMapFloatOOBfill : int { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0 };

// The emulator defines the contents.
struct alignas(64) CUtensorMap {
  cuuint64_t opaque[16];
};

// Supports what the kernels use: two dimensions of bfloat16, boxes of 64 columns with the 128-byte
// swizzle. Returns CUDA_ERROR_INVALID_VALUE for anything else, and for what the driver refuses.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dimensions,
                                const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill);
