// SPDX-License-Identifier: Apache-2.0
// A linear layer of a model: its weights and the choice of its kernel.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "gpu/engine/device_memory.h"
#include "gpu/engine/gemm.h"
#include "gpu/engine/residual_stream.h"
#include "gpu/kernels/kernels.h"
#include "gpu/plan/layer_products.h"

namespace metronome {

// Which of the project's own kernels a pass may use instead of cuBLASLt.
struct PassKernels {
  // For passes of few decodes alone, in mode Fastest: products also compute norms and the
  // activation if decode_gemm_takes() allows it. Arithmetic and roundings stay the same; the order
  // of sums differs.
  bool fuses_decodes = false;
  // For passes with a prompt, and all passes in mode Invariant: launch_prefill_gemm computes the
  // linear layers except the head. Its sums run over k in order. Needs compute capability 9.0.
  bool multiplies_by_wgmma = false;
  bool operator==(const PassKernels&) const = default;
};

// The kernel of a linear layer, and which other work it includes.
struct LinearKernel {
  ProductKernel product = {};
  bool fuses_norm = false;        // DecodeGemm only: the norm before the product
  bool fuses_activation = false;  // DecodeGemm and PrefillGemm: the activation of the gates
  bool operator==(const LinearKernel&) const = default;
};

// The properties of a pass that decide the kernels of its linear layers.
struct LinearDemand {
  std::int32_t num_tokens = 0;
  std::int32_t num_rows = 0;  // of logits
  bool has_prefill = false;
  GemmMode mode = GemmMode::Fastest;
  PassKernels allowed = {};
  std::int32_t num_processors = 0;
};

// One choice for each product of the model; all layers of a pass share it.
using LinearKernels = std::array<LinearKernel, kNumProducts>;  // [ProductPlace]
LinearKernels choose_linear_kernels(const std::array<LayerProduct, kNumProducts>& products,
                                    const LinearDemand& demand);

// Shared by the linear layers of a model.
struct LinearResources {
  const Gemm* gemm = nullptr;  // prepared for every product
  // [num_tokens, 2 * ffn_dim]: gates and ups, if a separate kernel computes the activation.
  __nv_bfloat16* gate_up = nullptr;
  std::int32_t num_processors = 0;
};

// The arguments that all linear layers of one pass share.
struct LinearPass {
  LinearResources resources;
  LinearKernels kernels;
  std::int32_t num_tokens = 0;
  cudaStream_t stream = nullptr;
};

// Inputs and outputs of a product. Their memory has room for multiples of kGemmRows rows.
struct LinearRows {
  const __nv_bfloat16* x = nullptr;  // [num_tokens, k]
  void* y = nullptr;                 // [num_tokens, num_outputs()], bfloat16 or float32
  std::int32_t num_tokens = 0;
};

class Linear {
 public:
  Linear() = default;
  // `weights` are [n, k]; with gates, the gates come first.
  Linear(const LayerProduct& product, DeviceArray<__nv_bfloat16> weights);
  // Borrows its weights, which must outlive this.
  Linear(const LayerProduct& product, const __nv_bfloat16* weights);

  // y = x w^T, or y += x w^T if the product adds. With gates, y is the activation of that product.
  // x is [num_tokens, k], y [num_tokens, num_outputs()].
  void multiply(const LinearPass& pass, const __nv_bfloat16* x, void* y) const;
  // Multiplies the normalised rows of the stream: y is [num_rows(norm), num_outputs()].
  void multiply_normed(const LinearPass& pass, ResidualStream& residual, const InputNorm& norm,
                       void* y) const;
  // Adds x w^T to the stream. With post norms, the norm of post_weight is applied before the sum;
  // post_weight is null if the model has none. x is [num_tokens, k].
  void add_to(const LinearPass& pass, ResidualStream& residual, const __nv_bfloat16* x,
              const __nv_bfloat16* post_weight) const;

  // multiply() with a kernel that the caller chooses. It must not fuse the norm.
  void launch(const LinearKernel& kernel, const LinearResources& resources, const LinearRows& rows,
              cudaStream_t stream) const;
  // Runs the product alone, by cuBLASLt in every mode that works. Outputs are [num_tokens, n].
  void warm_up(const Gemm& gemm, const LinearRows& rows, cudaStream_t stream) const;

 private:
  void launch_product(const ProductKernel& kernel, GemmEpilogue epilogue,
                      const LinearResources& resources, const LinearRows& rows,
                      cudaStream_t stream) const;
  // Leaves out the norm of the rows.
  DecodeGemmArgs decode_args(GemmEpilogue epilogue, const LinearRows& rows,
                             std::int32_t num_processors) const;

  LayerProduct product_;
  DeviceArray<__nv_bfloat16> own_weights_;  // [n, k], or empty
  const __nv_bfloat16* weights_ = nullptr;  // [n, k]
};

}  // namespace metronome
