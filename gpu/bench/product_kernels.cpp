// SPDX-License-Identifier: Apache-2.0
#include "gpu/bench/product_kernels.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/types.h"
#include "gpu/bench/bench_timing.h"
#include "gpu/engine/gemm_tuning.h"

namespace metronome {
namespace {

constexpr std::int64_t kBf16Bytes = 2;

std::int64_t padded(std::int64_t rows) { return ceil_div(rows, kGemmRows) * kGemmRows; }

DeviceArray<__nv_bfloat16> noise(std::int64_t count, std::uint64_t key, cudaStream_t stream) {
  DeviceArray<__nv_bfloat16> array(static_cast<std::size_t>(count));
  fill_with_noise(array, key, stream);
  return array;
}

}  // namespace

ProductKernels::ProductKernels(const ProductSetup& setup, const GpuInfo& gpu, GemmStore& store)
    : setup_(setup), gemm_(store, kGemmWorkspaceBytes), gpu_(gpu) {
  METRONOME_CHECK(setup.max_gemm_rows >= setup.max_tokens, "algorithms for all tokens");
  gemm_.prepare(gemm_shape(setup.product), setup.max_gemm_rows);
  const LayerProduct& product = setup_.product;
  const std::int64_t rows = padded(setup_.max_tokens);
  const Stream stream = make_stream();
  w_ = noise(setup_.num_copies * product.n * product.k, 1, stream.get());
  for (std::int64_t copy = 0; copy < setup_.num_copies; ++copy) {
    linears_.emplace_back(product, w_.data() + copy * product.n * product.k);
  }
  x_ = noise(rows * product.k, 2, stream.get());
  y_ = noise(rows * product.num_outputs(), 3, stream.get());
  if (product.has_gates) gate_up_ = noise(rows * product.n, 4, stream.get());
  check_cuda(cudaStreamSynchronize(stream.get()), "drawing a linear layer");
}

std::int64_t ProductKernels::bytes(const ProductSetup& setup, std::int64_t l2_bytes) {
  const LayerProduct& product = setup.product;
  const std::int64_t copy = product.n * product.k * kBf16Bytes;
  // Follows Gemm::prepare(). The last copy may exceed three times the cache size.
  const std::int64_t choosing =
      copy + 4 * l2_bytes +
      gemm_buckets(setup.max_gemm_rows).back() * (product.n + product.k) * kBf16Bytes;
  const std::int64_t activations =
      product.k + product.num_outputs() + (product.has_gates ? product.n : 0);  // of a token
  const std::int64_t drawn =
      setup.num_copies * copy + padded(setup.max_tokens) * activations * kBf16Bytes;
  return kGemmWorkspaceBytes + std::max(choosing, drawn);
}

bool ProductKernels::takes(ProductKernel::Kind kind, std::int32_t num_tokens) const {
  switch (kind) {
    case ProductKernel::Kind::CublasLt: return true;
    case ProductKernel::Kind::CublasLtInvariant: return invariant_fault().empty();
    case ProductKernel::Kind::DecodeGemm:
      return decode_gemm_takes(
          {.num_tokens = num_tokens, .k = static_cast<std::int32_t>(setup_.product.k)});
    case ProductKernel::Kind::PrefillGemm: return gpu_.compute_capability == 90;
  }
  return false;
}

void ProductKernels::launch(const ProductKernel& kernel, std::int32_t num_tokens, std::int64_t copy,
                            cudaStream_t stream) const {
  METRONOME_CHECK(num_tokens <= setup_.max_tokens, "tokens that there are inputs of");
  METRONOME_CHECK(0 <= copy && copy < setup_.num_copies, "weights that were drawn");
  const bool is_own = kernel.kind == ProductKernel::Kind::DecodeGemm ||
                      kernel.kind == ProductKernel::Kind::PrefillGemm;
  linears_[static_cast<std::size_t>(copy)].launch(
      {.product = kernel, .fuses_activation = is_own},
      {.gemm = &gemm_, .gate_up = gate_up_.data(), .num_processors = gpu_.num_processors},
      {.x = x_.data(), .y = y_.data(), .num_tokens = num_tokens}, stream);
}

void ProductKernels::launch_rounds(const ProductKernel& kernel, std::int32_t num_tokens,
                                   std::int64_t num_rounds, cudaStream_t stream) const {
  for (std::int64_t i = 0; i < num_rounds * setup_.num_copies; ++i) {
    launch(kernel, num_tokens, i % setup_.num_copies, stream);
  }
}

}  // namespace metronome
