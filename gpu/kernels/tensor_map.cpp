// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/tensor_map.h"

#include <cuda_runtime.h>

#include "gpu/kernels/cuda_check.h"

namespace metronome {
namespace {

// Looks the driver's function up at run time. The program does not link the driver's library, so it
// starts without a driver, too.
decltype(&cuTensorMapEncodeTiled) tensor_map_encoder() {
  constexpr unsigned kSinceCuda12 = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSinceCuda12,
                                              cudaEnableDefault, &result),
             "cudaGetDriverEntryPointByVersion");
  if (result != cudaDriverEntryPointSuccess || function == nullptr) {
    check_cuda(cudaErrorNotSupported, "looking up cuTensorMapEncodeTiled");
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

CUtensorMap row_tensor(const __nv_bfloat16* rows, std::int64_t num_rows, std::int64_t columns,
                       std::int32_t box_rows) {
  const cuuint64_t dimensions[2] = {static_cast<cuuint64_t>(columns),
                                    static_cast<cuuint64_t>(num_rows)};
  const cuuint64_t row_bytes[1] = {static_cast<cuuint64_t>(columns) * sizeof(__nv_bfloat16)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t every[2] = {1, 1};
  CUtensorMap map = {};
  static const auto encode = tensor_map_encoder();
  const CUresult result = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(rows), dimensions,
      row_bytes, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) check_cuda(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace metronome
