// SPDX-License-Identifier: Apache-2.0
// Matrix products of the emulated cuBLASLt: D = alpha * A^T * B + beta * C. All are column-major; A
// and B are bfloat16, C and D bfloat16 or float32. Sums are floats, rounded once at the end.
#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>
#include <vector>

#include "gpu/emulator/api_call.h"
#include "gpu/emulator/cublasLt.h"
#include "gpu/emulator/emulated_gemm.h"

struct cublasLtContext {
  int unused = 0;
};

namespace {

// Marks in descriptors detect uninitialised and overwritten ones.
constexpr std::uint64_t kLayoutMark = 0x6c61796f75740001;
constexpr std::uint64_t kDescMark = 0x6465736300000001;
constexpr std::uint64_t kPreferenceMark = 0x7072656600000001;
constexpr std::uint64_t kAlgorithmMark = 0x616c676f00000001;
constexpr std::size_t kMark = 7;  // index of the mark's word

// How an algorithm sums over k: each part separately, by ascending k, then the parts in order.
enum class Parts : std::uint8_t { Contiguous, Strided };

struct Algorithm {
  std::uint32_t bit;  // metronome::emulator::GemmAlgorithmBit
  std::int32_t id;
  std::uint32_t tile;
  std::int32_t split_k;
  std::uint32_t reduction;
  Parts parts;
  std::int64_t num_parts;
  std::int64_t max_columns;  // of D; 0: any
};

using namespace metronome::emulator;
constexpr std::uint32_t kNoReduction = CUBLASLT_REDUCTION_SCHEME_NONE;
constexpr Algorithm kAlgorithms[] = {
    {kSplitInOutputType, 66, 18, 4, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, Parts::Contiguous, 4, 0},
    {kSplitInFloat, 66, 18, 4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, Parts::Contiguous, 4, 0},
    {kThin, 13, 0, 1, kNoReduction, Parts::Strided, 8, 16},
    {kInterleaved, 24, 18, 1, kNoReduction, Parts::Strided, 2, 0},
    {kSliced, 66, 13, 1, kNoReduction, Parts::Contiguous, 2, 64},
    {kSmallTile, 66, 15, 1, kNoReduction, Parts::Contiguous, 1, 112},
    {kLargeTile, 66, 20, 1, kNoReduction, Parts::Contiguous, 1, 0},
    {kUneven, 24, 19, 1, kNoReduction, Parts::Contiguous, 1, 0},
};
std::uint32_t available = kAllGemmAlgorithms;

struct Layout {
  std::uint64_t type = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t ld = 0;
  bool operator==(const Layout&) const = default;
};

struct Product {
  std::int64_t n = 0;  // rows of D
  std::int64_t m = 0;  // columns of D
  std::int64_t k = 0;
  bool has_float_output = false;
  Layout a, b, d;
};

Layout layout_of(const cublasLtMatrixLayoutOpaque_t& words) {
  return {words.data[0], static_cast<std::int64_t>(words.data[1]),
          static_cast<std::int64_t>(words.data[2]), static_cast<std::int64_t>(words.data[3])};
}

cublasStatus_t describe(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                        cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, Product& product) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (desc == nullptr || desc->data[kMark] != kDescMark) return CUBLAS_STATUS_INVALID_VALUE;
  for (const cublasLtMatrixLayoutOpaque_t* layout : {a, b, c, d}) {
    if (layout == nullptr || layout->data[kMark] != kLayoutMark) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (desc->data[0] != CUBLAS_COMPUTE_32F || desc->data[1] != CUDA_R_32F ||
      desc->data[2] != CUBLAS_OP_T || desc->data[3] != CUBLAS_OP_N) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  product.a = layout_of(*a);
  product.b = layout_of(*b);
  product.d = layout_of(*d);
  if (!(layout_of(*c) == product.d)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (product.a.type != CUDA_R_16BF || product.b.type != CUDA_R_16BF) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  product.n = product.d.rows;
  product.m = product.d.columns;
  product.k = product.a.rows;
  product.has_float_output = product.d.type == CUDA_R_32F;
  const bool fits = product.a.columns == product.n && product.b.rows == product.k &&
                    product.b.columns == product.m;
  return fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

std::uint64_t mark_of(const cublasLtMatmulAlgo_t& algo) {
  std::uint64_t mark = kAlgorithmMark;
  for (std::size_t i = 0; i < kMark; ++i) mark = (mark ^ algo.data[i]) * 0x9e3779b97f4a7c15;
  return mark;
}

cublasLtMatmulAlgo_t to_words(const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t algo = {};
  algo.data[0] = static_cast<std::uint64_t>(algorithm.id);
  algo.data[1] = algorithm.tile;
  algo.data[2] = static_cast<std::uint64_t>(algorithm.split_k);
  algo.data[3] = algorithm.reduction;
  algo.data[kMark] = mark_of(algo);
  return algo;
}

const Algorithm* find_algorithm(const cublasLtMatmulAlgo_t& algo) {
  for (const Algorithm& algorithm : kAlgorithms) {
    const cublasLtMatmulAlgo_t words = to_words(algorithm);
    if (std::equal(std::begin(words.data), std::end(words.data), std::begin(algo.data))) {
      return &algorithm;
    }
  }
  return nullptr;
}

bool can_compute(const Algorithm& algorithm, const Product& product) {
  return (algorithm.bit & available) != 0 &&
         (algorithm.max_columns == 0 || product.m <= algorithm.max_columns);
}

bool is_proposed(const Algorithm& algorithm, const Product& product, bool is_asked_for) {
  const bool is_in_order = (algorithm.bit & (kSmallTile | kLargeTile)) != 0;
  return !is_in_order || product.m > 32 || (product.m <= 16 && is_asked_for);
}

std::size_t workspace_of(const Algorithm& algorithm, const Product& product) {
  if (algorithm.split_k <= 1) return 0;
  return static_cast<std::size_t>(algorithm.split_k * product.m * product.n) * sizeof(float);
}

float to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// To the nearest, ties to even.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN, as CUDA writes it
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr std::int64_t kBlock = 32;  // outputs computed at once

// sums[j] = x * w[j] over the part's share of k, for the kBlock columns of `packed` [k][kBlock].
void sum_part(const float* x, const float* packed, std::int64_t begin, std::int64_t end,
              std::int64_t step, float* sums) {
  float local[kBlock] = {};
  for (std::int64_t i = begin; i < end; i += step) {
    const float* weights = packed + i * kBlock;
    for (std::int64_t j = 0; j < kBlock; ++j) local[j] += x[i] * weights[j];
  }
  std::copy_n(local, kBlock, sums);
}

struct Operands {
  const std::uint16_t* a = nullptr;
  const std::uint16_t* b = nullptr;
  void* d = nullptr;
  float* workspace = nullptr;
  float alpha = 0;
  float beta = 0;
};

// Sums of one row of B with kBlock rows of A: [kBlock] floats.
void sum_row(const Algorithm& algorithm, std::int64_t row, std::int64_t k, const float* x,
             const float* packed, bool rounds_parts, float* sums) {
  const bool is_uneven = algorithm.bit == kUneven && row >= 16;
  const std::int64_t num_parts = is_uneven ? 2 : algorithm.num_parts;
  for (std::int64_t part = 0; part < num_parts; ++part) {
    float partial[kBlock];
    if (algorithm.parts == Parts::Strided) {
      sum_part(x, packed, part, k, num_parts, partial);
    } else {
      sum_part(x, packed, k * part / num_parts, k * (part + 1) / num_parts, 1, partial);
    }
    for (std::int64_t j = 0; j < kBlock; ++j) {
      if (rounds_parts || is_uneven) partial[j] = to_float(to_bf16(partial[j]));
      sums[j] = part == 0 ? partial[j] : sums[j] + partial[j];
    }
  }
}

void write_outputs(const Product& product, const Operands& operands, std::int64_t row,
                   std::int64_t first, std::int64_t num_outputs, const float* sums) {
  for (std::int64_t j = 0; j < num_outputs; ++j) {
    const std::int64_t at = row * product.d.ld + first + j;
    float value = operands.alpha * sums[j];
    if (product.has_float_output) {
      float* out = static_cast<float*>(operands.d) + at;
      if (operands.beta != 0) value += operands.beta * *out;
      *out = value;
    } else {
      std::uint16_t* out = static_cast<std::uint16_t*>(operands.d) + at;
      if (operands.beta != 0) value += operands.beta * to_float(*out);
      *out = to_bf16(value);
    }
  }
}

void multiply(const Algorithm& algorithm, const Product& product, const Operands& operands) {
  const std::int64_t k = product.k;
  std::vector<float> x(static_cast<std::size_t>(product.m * k));
  for (std::int64_t row = 0; row < product.m; ++row) {
    const std::uint16_t* from = operands.b + row * product.b.ld;
    std::transform(from, from + k, x.data() + row * k, to_float);
  }
  const bool rounds_parts =
      algorithm.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE && !product.has_float_output;
  std::vector<float> packed(static_cast<std::size_t>(k * kBlock));
  for (std::int64_t first = 0; first < product.n; first += kBlock) {
    const std::int64_t num_outputs = std::min(kBlock, product.n - first);
    for (std::int64_t j = 0; j < num_outputs; ++j) {
      const std::uint16_t* from = operands.a + (first + j) * product.a.ld;
      for (std::int64_t i = 0; i < k; ++i) {
        packed[static_cast<std::size_t>(i * kBlock + j)] = to_float(from[i]);
      }
    }
    for (std::int64_t row = 0; row < product.m; ++row) {
      float sums[kBlock];
      sum_row(algorithm, row, k, x.data() + row * k, packed.data(), rounds_parts, sums);
      write_outputs(product, operands, row, first, num_outputs, sums);
    }
  }
  // A split sum writes its parts to the workspace. This write detects a workspace that is too
  // small.
  std::fill_n(operands.workspace, workspace_of(algorithm, product) / sizeof(float), -1.0f);
}

bool is_aligned(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

template <class T>
cublasStatus_t write_attribute(T from, void* value, std::size_t size, std::size_t* num_written) {
  if (value == nullptr || size != sizeof from) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &from, size);
  if (num_written != nullptr) *num_written = size;
  return CUBLAS_STATUS_SUCCESS;
}

// Reads a 4- or 8-byte integer from memory.
cublasStatus_t read_attribute(const void* value, std::size_t size, std::size_t expected,
                              std::uint64_t& to) {
  if (value == nullptr || size != expected) return CUBLAS_STATUS_INVALID_VALUE;
  to = 0;
  std::memcpy(&to, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

void metronome::emulator::set_gemm_algorithms(std::uint32_t bits) { available = bits; }

std::array<std::uint64_t, 8> metronome::emulator::gemm_algorithm_words(GemmAlgorithmBit bit) {
  const auto* const algorithm =
      std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                   [bit](const Algorithm& candidate) { return candidate.bit == bit; });
  return std::bit_cast<std::array<std::uint64_t, 8>>(to_words(*algorithm));
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED: return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE: return "an invalid value was given";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "the GPU program failed to execute";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "the functionality is not supported";
  }
  return "unknown status";
}

std::size_t cublasLtGetVersion() { return 1; }

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute_type,
                                      cudaDataType_t scale_type) {
  *desc = {};
  desc->data[0] = static_cast<std::uint64_t>(compute_type);
  desc->data[1] = static_cast<std::uint64_t>(scale_type);
  desc->data[kMark] = kDescMark;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t size) {
  if (desc->data[kMark] != kDescMark) return CUBLAS_STATUS_INVALID_VALUE;
  const std::size_t word = attribute == CUBLASLT_MATMUL_DESC_TRANSA ? 2 : 3;
  return read_attribute(value, size, sizeof(std::int32_t), desc->data[word]);
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type,
                                        std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  *layout = {};
  if (ld < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  layout->data[0] = static_cast<std::uint64_t>(type);
  layout->data[1] = rows;
  layout->data[2] = cols;
  layout->data[3] = static_cast<std::uint64_t>(ld);
  layout->data[kMark] = kLayoutMark;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  *preference = {};
  preference->data[2] = CUBLASLT_REDUCTION_SCHEME_MASK;
  preference->data[kMark] = kPreferenceMark;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, std::size_t size) {
  if (preference->data[kMark] != kPreferenceMark) return CUBLAS_STATUS_INVALID_VALUE;
  std::uint64_t ignored = 0;  // the alignments: 16 bytes are enough for every algorithm
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return read_attribute(value, size, sizeof(std::uint32_t), preference->data[0]);
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return read_attribute(value, size, sizeof(std::uint64_t), preference->data[1]);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return read_attribute(value, size, sizeof(std::uint32_t), preference->data[2]);
    default: return read_attribute(value, size, sizeof(std::uint32_t), ignored);
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a_layout,
    cublasLtMatrixLayout_t b_layout, cublasLtMatrixLayout_t c_layout,
    cublasLtMatrixLayout_t d_layout, cublasLtMatmulPreference_t preference, int num_requested,
    cublasLtMatmulHeuristicResult_t results[], int* num_returned) {
  Product product;
  const cublasStatus_t status =
      describe(handle, desc, a_layout, b_layout, c_layout, d_layout, product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (preference->data[kMark] != kPreferenceMark || num_requested <= 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool is_limited = preference->data[0] == CUBLASLT_SEARCH_LIMITED_BY_ALGO_ID;
  int num = 0;
  for (const Algorithm& algorithm : kAlgorithms) {
    if (num == num_requested) break;
    const auto id = static_cast<std::uint64_t>(algorithm.id);
    if (is_limited && results[num].algo.data[0] != id) continue;
    if (!is_proposed(algorithm, product, is_limited)) continue;
    const std::size_t workspace_bytes = workspace_of(algorithm, product);
    if (workspace_bytes > preference->data[1] || !can_compute(algorithm, product) ||
        (algorithm.reduction & ~preference->data[2]) != 0) {
      continue;
    }
    results[num] = {};
    results[num].algo = to_words(algorithm);
    results[num].workspaceSize = workspace_bytes;
    results[num++].state = CUBLAS_STATUS_SUCCESS;
  }
  *num_returned = num;
  return num == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t /*compute_type*/,
                                      cudaDataType_t /*scale_type*/, cudaDataType_t /*a_type*/,
                                      cudaDataType_t /*b_type*/, cudaDataType_t /*c_type*/,
                                      cudaDataType_t /*d_type*/, int id,
                                      cublasLtMatmulAlgo_t* algo) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool exists = std::any_of(std::begin(kAlgorithms), std::end(kAlgorithms),
                                  [id](const Algorithm& algorithm) { return algorithm.id == id; });
  if (!exists) return CUBLAS_STATUS_INVALID_VALUE;
  *algo = {};
  algo->data[0] = static_cast<std::uint64_t>(id);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a_layout,
                                       cublasLtMatrixLayout_t b_layout,
                                       cublasLtMatrixLayout_t c_layout,
                                       cublasLtMatrixLayout_t d_layout,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  Product product;
  const cublasStatus_t status =
      describe(handle, desc, a_layout, b_layout, c_layout, d_layout, product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Algorithm* algorithm = find_algorithm(*algo);
  if (algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (!can_compute(*algorithm, product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->workspaceSize = workspace_of(*algorithm, product);
  result->state = CUBLAS_STATUS_SUCCESS;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t size,
                                                    std::size_t* num_written) {
  const Algorithm* algorithm = find_algorithm(*algo);
  if (algorithm == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID: return write_attribute(algorithm->id, value, size, num_written);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return write_attribute(algorithm->tile, value, size, num_written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return write_attribute(algorithm->split_k, value, size, num_written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return write_attribute(algorithm->reduction, value, size, num_written);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return write_attribute(std::uint16_t{0}, value, size, num_written);
    default: return write_attribute(std::uint32_t{0}, value, size, num_written);
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  Product product;
  const cublasStatus_t status =
      describe(handle, desc, a_layout, b_layout, c_layout, d_layout, product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const Algorithm* algorithm = algo == nullptr ? nullptr : find_algorithm(*algo);
  if (algorithm == nullptr || alpha == nullptr || beta == nullptr || !is_aligned(a) ||
      !is_aligned(b) || !is_aligned(d) || c != d) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const std::size_t needed_bytes = workspace_of(*algorithm, product);
  if (needed_bytes > workspace_bytes || (needed_bytes > 0 && !is_aligned(workspace))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!can_compute(*algorithm, product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  Operands operands;
  operands.a = static_cast<const std::uint16_t*>(a);
  operands.b = static_cast<const std::uint16_t*>(b);
  operands.d = d;
  operands.workspace = static_cast<float*>(workspace);
  operands.alpha = *static_cast<const float*>(alpha);
  operands.beta = *static_cast<const float*>(beta);
  const auto num_bytes = [](const Layout& layout, std::size_t element_bytes) {
    return static_cast<std::size_t>(layout.ld * layout.columns) * element_bytes;
  };
  const cudaError_t error = stream_call(stream, [&](Device& gpu, CUstream_st& target) {
    const bool is_in_memory =
        gpu.is_device_memory(a, num_bytes(product.a, 2)) &&
        gpu.is_device_memory(b, num_bytes(product.b, 2)) &&
        gpu.is_device_memory(d, num_bytes(product.d, product.has_float_output ? 4 : 2)) &&
        (needed_bytes == 0 || gpu.is_device_memory(workspace, needed_bytes));
    if (!is_in_memory) return cudaErrorIllegalAddress;
    return gpu.issue(target,
                     [algorithm, product, operands] { multiply(*algorithm, product, operands); });
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
