// SPDX-License-Identifier: Apache-2.0
// Wraps cuBLASLt for gemm.h: descriptors of a product, proposals for it, and traits of an
// algorithm.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpu/engine/cublas_check.h"
#include "gpu/engine/device_memory.h"
#include "gpu/engine/gemm.h"

namespace metronome {

// The library's handle and its workspace.
struct GemmLibrary {
  explicit GemmLibrary(std::int64_t workspace_bytes);
  CudaHandle<cublasLtHandle_t, cublasLtDestroy> handle;
  DeviceArray<std::byte> workspace;  // [workspace_bytes]
};

// The values of cublasLtMatmulAlgoConfigAttributes_t that tell algorithms apart.
struct GemmTraits {
  std::int32_t id = 0;
  std::uint32_t tile = 0;
  std::uint32_t stages = 0;
  std::int32_t split_k = 0;
  std::uint32_t reduction = 0;  // cublasLtReductionScheme_t
  std::uint32_t option = 0;
  std::uint16_t cluster = 0;
};

// Hopper's kernels (nvjet), except those for thin matrices.
constexpr std::int32_t kHopperAlgorithm = 66;

// nullopt if the library does not know the algorithm.
std::optional<GemmTraits> gemm_traits(const GemmAlgorithm& algorithm);
std::string gemm_name(const GemmTraits& traits);
// Whether a mode may use such algorithms, judged by the traits alone.
bool is_allowed(GemmMode mode, const GemmTraits& traits);

// The products of one shape, for all row counts that are multiples of kGemmRows.
class GemmProblem {
 public:
  // Requires max_rows % kGemmRows == 0.
  GemmProblem(const GemmShape& shape, std::int64_t max_rows);
  GemmProblem(const GemmProblem&) = delete;  // cuBLASLt holds pointers to the descriptors
  GemmProblem& operator=(const GemmProblem&) = delete;

  const GemmShape& shape() const { return shape_; }
  std::int64_t max_rows() const { return static_cast<std::int64_t>(layouts_.size()) * kGemmRows; }

  // The library's proposals for this many rows that the mode allows, best estimate first. `id`
  // limits them to one algorithm id.
  std::vector<GemmAlgorithm> propose(const GemmLibrary& library, GemmMode mode, std::int64_t rows,
                                     std::optional<std::int32_t> id = std::nullopt);
  // Whether the mode allows the algorithm and the library can run it.
  bool can_run(const GemmLibrary& library, GemmMode mode, std::int64_t rows,
               const GemmAlgorithm& algorithm);
  void run(const GemmLibrary& library, GemmMode mode, std::int64_t rows,
           const GemmAlgorithm& algorithm, const __nv_bfloat16* w, const __nv_bfloat16* x, void* y,
           cudaStream_t stream);

 private:
  struct RowLayouts {
    cublasLtMatrixLayoutOpaque_t x;
    cublasLtMatrixLayoutOpaque_t y;
  };
  RowLayouts& layouts(std::int64_t rows);
  cudaDataType_t output_type() const;

  GemmShape shape_;
  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t w_layout_{};
  std::vector<RowLayouts> layouts_;  // [rows / kGemmRows - 1]
};

}  // namespace metronome
