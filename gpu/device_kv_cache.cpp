#include "gpu/device_kv_cache.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include "core/error.h"
#include "gpu/cuda_check.h"

namespace metronome {
namespace {

// The driver's function, without linking the driver's library: a program that is built here starts
// where there is no driver, too.
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

CUtensorMap tensor_map(const __nv_bfloat16* rows, std::int64_t num_rows, std::int64_t head_dim,
                       std::int32_t box_rows) {
  const cuuint64_t dimensions[2] = {static_cast<cuuint64_t>(head_dim),
                                    static_cast<cuuint64_t>(num_rows)};
  const cuuint64_t row_bytes[1] = {static_cast<cuuint64_t>(head_dim) * sizeof(__nv_bfloat16)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  const cuuint32_t every[2] = {1, 1};
  CUtensorMap map = {};
  const CUresult result = tensor_map_encoder()(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(rows), dimensions,
      row_bytes, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) check_cuda(cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace

KvTensors make_kv_tensors(const __nv_bfloat16* keys, const __nv_bfloat16* values,
                          const DeviceKvShape& shape) {
  const auto head_dim = static_cast<std::int32_t>(shape.head_dim);
  const auto block_size = static_cast<std::int32_t>(shape.block_size);
  METRONOME_CHECK(can_attend_by_wgmma(head_dim, block_size), "boxes of eight rows at least");
  const std::int64_t num_rows = shape.num_blocks * shape.n_kv_heads * shape.block_size;
  METRONOME_CHECK(num_rows < std::int64_t{INT32_MAX}, "rows of tensors are 32-bit numbers");
  const std::int32_t box_rows = kv_box_rows(head_dim, block_size);
  return {.keys = tensor_map(keys, num_rows, shape.head_dim, box_rows),
          .values = tensor_map(values, num_rows, shape.head_dim, box_rows),
          .num_rows = static_cast<std::int32_t>(num_rows),
          .box_rows = box_rows};
}

DeviceKvCache::DeviceKvCache(const DeviceKvShape& shape, bool has_tensors)
    : shape_(shape),
      memory_(static_cast<std::size_t>(2 * shape.n_layers * shape.layer_elements())) {
  for (std::int64_t layer = 0; has_tensors && layer < shape.n_layers; ++layer) {
    tensors_.push_back(make_kv_tensors(keys(layer), values(layer), shape));
  }
}

}  // namespace metronome
