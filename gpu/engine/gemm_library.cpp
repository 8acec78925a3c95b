// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/gemm_library.h"

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>

#include "core/base/error.h"
#include "gpu/kernels/cuda_check.h"

namespace metronome {
namespace {

constexpr int kMaxProposals = 16;  // per query

// Kernels for thin matrices (gemmSN, gemv, dot product, SIMT). Each has its own order of summation.
constexpr std::int32_t kThinAlgorithms[] = {11, 13, 14, 16};

// Split sums stay in float. Other schemes round the parts to the type of y, or add in that type.
constexpr std::uint32_t reduction_mask(GemmMode mode) {
  return mode == GemmMode::Fastest
             ? static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
             : static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE);
}

// Kernels without split sums need no workspace.
std::size_t workspace_bytes(const GemmLibrary& library, GemmMode mode) {
  return mode == GemmMode::Fastest ? library.workspace.num_bytes() : 0;
}

template <class T>
bool read_trait(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t which,
                T& value) {
  std::size_t num_written = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&algorithm, which, &value, sizeof value,
                                              &num_written) == CUBLAS_STATUS_SUCCESS &&
         num_written == sizeof value;
}

template <class T>
void set_preference(cublasLtMatmulPreferenceOpaque_t& preference,
                    cublasLtMatmulPreferenceAttributes_t which, T value) {
  check_cublas(cublasLtMatmulPreferenceSetAttribute(&preference, which, &value, sizeof value),
               "cublasLtMatmulPreferenceSetAttribute");
}

cublasLtMatmulPreferenceOpaque_t make_preference(const GemmLibrary& library, GemmMode mode,
                                                 bool is_limited_by_id) {
  cublasLtMatmulPreferenceOpaque_t preference = {};
  check_cublas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set_preference(preference, CUBLASLT_MATMUL_PREF_SEARCH_MODE,
                 static_cast<std::uint32_t>(is_limited_by_id ? CUBLASLT_SEARCH_LIMITED_BY_ALGO_ID
                                                             : CUBLASLT_SEARCH_BEST_FIT));
  set_preference(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                 std::uint64_t{workspace_bytes(library, mode)});
  set_preference(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reduction_mask(mode));
  // cuBLASLt assumes 256 bytes otherwise.
  constexpr std::uint32_t kAlignmentBytes = 16;
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set_preference(preference, which, kAlignmentBytes);
  }
  return preference;
}

// A column-major matrix without gaps.
void init_layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, std::int64_t rows,
                 std::int64_t columns) {
  check_cublas(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                                        static_cast<std::uint64_t>(columns), rows),
               "cublasLtMatrixLayoutInit");
}

}  // namespace

GemmLibrary::GemmLibrary(std::int64_t workspace_bytes)
    : workspace(static_cast<std::size_t>(workspace_bytes)) {
  cublasLtHandle_t created = nullptr;
  check_cublas(cublasLtCreate(&created), "cublasLtCreate");
  handle = CudaHandle<cublasLtHandle_t, cublasLtDestroy>(created);
}

std::optional<GemmTraits> gemm_traits(const GemmAlgorithm& algorithm) {
  const auto words = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  GemmTraits traits;
  const bool is_complete =
      read_trait(words, CUBLASLT_ALGO_CONFIG_ID, traits.id) &&
      read_trait(words, CUBLASLT_ALGO_CONFIG_TILE_ID, traits.tile) &&
      read_trait(words, CUBLASLT_ALGO_CONFIG_STAGES_ID, traits.stages) &&
      read_trait(words, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, traits.split_k) &&
      read_trait(words, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, traits.reduction);
  if (!is_complete) return std::nullopt;
  // Used in names only. Not every family of kernels has these two.
  read_trait(words, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, traits.option);
  read_trait(words, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, traits.cluster);
  return traits;
}

std::string gemm_name(const GemmTraits& traits) {
  std::string name = "algo " + std::to_string(traits.id) + ", tile " + std::to_string(traits.tile) +
                     ", stages " + std::to_string(traits.stages) + ", split-k " +
                     std::to_string(traits.split_k);
  if (traits.reduction != 0) name += ", reduction " + std::to_string(traits.reduction);
  if (traits.option != 0) name += ", option " + std::to_string(traits.option);
  if (traits.cluster != 0) name += ", cluster " + std::to_string(traits.cluster);
  return name;
}

bool is_allowed(GemmMode mode, const GemmTraits& traits) {
  if ((traits.reduction & ~reduction_mask(mode)) != 0) return false;
  if (mode == GemmMode::Fastest) return true;
  const bool is_thin = std::find(std::begin(kThinAlgorithms), std::end(kThinAlgorithms),
                                 traits.id) != std::end(kThinAlgorithms);
  return !is_thin && (traits.split_k == 0 || traits.split_k == 1);
}

// Row-major y = x * w^T is column-major y^T = w * x^T. Memory holds w as a column-major [k, n]
// matrix, so the library's A is w transposed, and its B is x.
GemmProblem::GemmProblem(const GemmShape& shape, std::int64_t max_rows) : shape_(shape) {
  METRONOME_CHECK(shape.n > 0 && shape.k > 0 && max_rows > 0 && max_rows % kGemmRows == 0,
                  "an empty product, or rows that are not padded");
  check_cublas(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescInit");
  const auto set_operation = [this](cublasLtMatmulDescAttributes_t which, std::int32_t value) {
    check_cublas(cublasLtMatmulDescSetAttribute(&operation_, which, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  };
  set_operation(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set_operation(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  init_layout(w_layout_, CUDA_R_16BF, shape.k, shape.n);
  layouts_.resize(static_cast<std::size_t>(max_rows / kGemmRows));
  for (std::int64_t rows = kGemmRows; rows <= max_rows; rows += kGemmRows) {
    init_layout(layouts(rows).x, CUDA_R_16BF, shape.k, rows);
    init_layout(layouts(rows).y, output_type(), shape.n, rows);
  }
}

cudaDataType_t GemmProblem::output_type() const {
  return shape_.has_float_output ? CUDA_R_32F : CUDA_R_16BF;
}

GemmProblem::RowLayouts& GemmProblem::layouts(std::int64_t rows) {
  return layouts_[static_cast<std::size_t>(rows / kGemmRows - 1)];
}

std::vector<GemmAlgorithm> GemmProblem::propose(const GemmLibrary& library, GemmMode mode,
                                                std::int64_t rows, std::optional<std::int32_t> id) {
  cublasLtMatmulPreferenceOpaque_t preference = make_preference(library, mode, id.has_value());
  std::array<cublasLtMatmulHeuristicResult_t, kMaxProposals> results = {};
  for (cublasLtMatmulHeuristicResult_t& result : results) {
    if (!id) break;
    const cublasStatus_t status =
        cublasLtMatmulAlgoInit(library.handle.get(), CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF,
                               CUDA_R_16BF, output_type(), output_type(), *id, &result.algo);
    if (status != CUBLAS_STATUS_SUCCESS) return {};  // not on this device
  }
  int num_results = 0;
  RowLayouts& of_rows = layouts(rows);
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library.handle.get(), &operation_, &w_layout_, &of_rows.x, &of_rows.y, &of_rows.y,
      &preference, kMaxProposals, results.data(), &num_results);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  // Not an error: the library may know an id but not offer it for this shape.
  if (id && status != CUBLAS_STATUS_SUCCESS) return {};
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<GemmAlgorithm> proposals;
  for (int i = 0; i < num_results; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    const auto algorithm = std::bit_cast<GemmAlgorithm>(result.algo);
    if (result.state != CUBLAS_STATUS_SUCCESS || !can_run(library, mode, rows, algorithm)) continue;
    proposals.push_back(algorithm);
  }
  return proposals;
}

bool GemmProblem::can_run(const GemmLibrary& library, GemmMode mode, std::int64_t rows,
                          const GemmAlgorithm& algorithm) {
  const std::optional<GemmTraits> traits = gemm_traits(algorithm);
  if (!traits || !is_allowed(mode, *traits)) return false;
  // Split sums omitted the terms after the last whole tile of k on H100 and later GPUs
  // (facebookexperimental/triton, pull request 2767).
  constexpr std::int64_t kLargestTile = 128;
  if (traits->split_k > 1 && shape_.k % kLargestTile != 0) return false;
  const auto words = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  cublasLtMatmulHeuristicResult_t result = {};
  RowLayouts& of_rows = layouts(rows);
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(library.handle.get(), &operation_, &w_layout_, &of_rows.x, &of_rows.y,
                              &of_rows.y, &words, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes(library, mode);
}

void GemmProblem::run(const GemmLibrary& library, GemmMode mode, std::int64_t rows,
                      const GemmAlgorithm& algorithm, const __nv_bfloat16* w,
                      const __nv_bfloat16* x, void* y, cudaStream_t stream) {
  const float alpha = 1;
  const float beta = shape_.adds_output ? 1 : 0;
  const auto words = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  RowLayouts& of_rows = layouts(rows);
  const std::size_t num_bytes = workspace_bytes(library, mode);
  check_cublas(
      cublasLtMatmul(library.handle.get(), &operation_, &alpha, w, &w_layout_, x, &of_rows.x, &beta,
                     y, &of_rows.y, y, &of_rows.y, &words,
                     num_bytes == 0 ? nullptr : library.workspace.data(), num_bytes, stream),
      "cublasLtMatmul");
}

}  // namespace metronome
