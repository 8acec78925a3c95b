// A linear layer of a model: its weights, and which kernel multiplies them.
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

// Which kernels of our own a pass has in the place of cuBLASLt's.
struct PassKernels {
  // Few decodes alone, in mode Fastest: products that compute norms and the activation, too, where
  // they fit (decode_gemm_takes). The same arithmetic with the same roundings, sums in another
  // order.
  bool fuses_decodes = false;
  // Passes with a prompt, and all in mode Invariant: launch_prefill_gemm for the linear layers but
  // the head, whose sums run over k in order. Needs compute capability 9.0.
  bool multiplies_by_wgmma = false;
  bool operator==(const PassKernels&) const = default;
};

// What multiplies a linear layer, and what else it computes.
struct LinearKernel {
  ProductKernel product = {};
  bool fuses_norm = false;        // of DecodeGemm: the norm in front
  bool fuses_activation = false;  // of DecodeGemm and PrefillGemm: the activation behind gates
  bool operator==(const LinearKernel&) const = default;
};

// What of a pass decides how its linear layers are multiplied.
struct LinearDemand {
  std::int32_t num_tokens = 0;
  std::int32_t num_rows = 0;  // of logits
  bool has_prefill = false;
  GemmMode mode = GemmMode::Fastest;
  PassKernels allowed = {};
  std::int32_t num_processors = 0;
};

// One choice for each product of the model; all layers of a pass have the same.
using LinearKernels = std::array<LinearKernel, kNumProducts>;  // [ProductPlace]
LinearKernels choose_linear_kernels(const std::array<LayerProduct, kNumProducts>& products,
                                    const LinearDemand& demand);

// What the linear layers of a model share.
struct LinearResources {
  const Gemm* gemm = nullptr;  // prepared for every product
  // [num_tokens, 2 * ffn_dim]: gates and ups, where the activation is a kernel of its own.
  __nv_bfloat16* gate_up = nullptr;
  std::int32_t num_processors = 0;
};

// One pass through the linear layers.
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
  // `weights` are [n, k]; with gates, the gates first.
  Linear(const LayerProduct& product, DeviceArray<__nv_bfloat16> weights);
  // The same, of weights that somebody else owns, who outlives this.
  Linear(const LayerProduct& product, const __nv_bfloat16* weights);

  // y = x w^T, or y += x w^T where the product adds; with gates, the activation of that.
  // x is [num_tokens, k], y [num_tokens, num_outputs()].
  void multiply(const LinearPass& pass, const __nv_bfloat16* x, void* y) const;
  // The same of the stream's rows behind a norm: y is [num_rows(norm), num_outputs()].
  void multiply_normed(const LinearPass& pass, ResidualStream& residual, const InputNorm& norm,
                       void* y) const;
  // The stream gets x w^T: at once, or behind the norm of post_weight, which is null where the
  // model has none. x is [num_tokens, k].
  void add_to(const LinearPass& pass, ResidualStream& residual, const __nv_bfloat16* x,
              const __nv_bfloat16* post_weight) const;

  // multiply() by a kernel that the caller names. Its norm must not be fused.
  void launch(const LinearKernel& kernel, const LinearResources& resources, const LinearRows& rows,
              cudaStream_t stream) const;
  // Only the product: outputs are [num_tokens, n], by cuBLASLt in every mode that it can.
  void warm_up(const Gemm& gemm, const LinearRows& rows, cudaStream_t stream) const;

 private:
  void launch_product(const ProductKernel& kernel, GemmEpilogue epilogue,
                      const LinearResources& resources, const LinearRows& rows,
                      cudaStream_t stream) const;
  // Without the rows' norm, if there is one.
  DecodeGemmArgs decode_args(GemmEpilogue epilogue, const LinearRows& rows,
                             std::int32_t num_processors) const;

  LayerProduct product_;
  DeviceArray<__nv_bfloat16> own_weights_;  // [n, k], or empty
  const __nv_bfloat16* weights_ = nullptr;  // [n, k]
};

}  // namespace metronome
