// SPDX-License-Identifier: Apache-2.0
// One linear layer with random data, and every kernel that computes it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/engine/device_memory.h"
#include "gpu/engine/gemm.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/engine/linear.h"
#include "gpu/plan/layer_products.h"

namespace metronome {

struct ProductSetup {
  LayerProduct product;
  std::int64_t num_copies = 1;  // copies of the weights, each with its own values
  std::int64_t max_tokens = 0;
  std::int64_t max_gemm_rows = 0;  // cuBLASLt's algorithms are chosen for these; >= max_tokens
};

class ProductKernels {
 public:
  // Runs on `gpu`, which must be current for this thread. Chooses algorithms (Gemm::prepare) and
  // draws weights, inputs and outputs. `store` must outlive this. Throws CudaError.
  ProductKernels(const ProductSetup& setup, const GpuInfo& gpu, GemmStore& store);

  // Maximum device memory of this object, during the choice of algorithms or afterwards.
  static std::int64_t bytes(const ProductSetup& setup, std::int64_t l2_bytes);

  // Whether this kind can compute the product on this GPU.
  bool takes(ProductKernel::Kind kind, std::int32_t num_tokens) const;
  // Why CublasLtInvariant cannot compute the product; empty if it can.
  std::string invariant_fault() const { return gemm_.invariant_fault(); }

  // Enqueues the product of num_tokens with copy `copy` of the weights, counted from 0. Requires
  // takes(). May be captured into a graph.
  void launch(const ProductKernel& kernel, std::int32_t num_tokens, std::int64_t copy,
              cudaStream_t stream) const;

  // Enqueues the product with every copy of the weights in turn, `num_rounds` times.
  void launch_rounds(const ProductKernel& kernel, std::int32_t num_tokens, std::int64_t num_rounds,
                     cudaStream_t stream) const;

  // [max_tokens, num_outputs()]. Here max_tokens is rounded up to a multiple of kGemmRows.
  const DeviceArray<__nv_bfloat16>& outputs() const { return y_; }

 private:
  ProductSetup setup_;
  Gemm gemm_;
  GpuInfo gpu_;
  DeviceArray<__nv_bfloat16> w_;        // [num_copies, n, k]
  std::vector<Linear> linears_;         // [num_copies]
  DeviceArray<__nv_bfloat16> x_;        // [max_tokens, k]
  DeviceArray<__nv_bfloat16> y_;        // [max_tokens, num_outputs()]
  DeviceArray<__nv_bfloat16> gate_up_;  // [max_tokens, n]; empty without gates
};

}  // namespace metronome
