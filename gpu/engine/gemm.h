// SPDX-License-Identifier: Apache-2.0
// Linear layers through cuBLASLt.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "gpu/plan/gemm_store.h"
#include "gpu/plan/layer_products.h"

namespace metronome {

// Fastest may split the sum over k and use any kernel. Invariant uses only kernels with one float
// accumulator that runs over k in order. So a row's result does not depend on the number of rows
// computed with it.
enum class GemmMode : std::uint8_t { Fastest, Invariant };

// y[m][n] = x[m][k] * w[n][k]^T, in bfloat16 with float sums. y is bfloat16, or float32 with
// has_float_output. adds_output: y += ... instead, rounded once. w, x and y are 16-byte aligned.
struct GemmShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool adds_output = false;
  bool has_float_output = false;
  auto operator<=>(const GemmShape&) const = default;
};

GemmShape gemm_shape(const LayerProduct& product);

// NVIDIA recommends this for Hopper; on other GPUs it is enough for split sums.
constexpr std::int64_t kGemmWorkspaceBytes = 32 << 20;

// Rows of x and y are computed in multiples of this. Their memory must have room for them.
constexpr std::int64_t kGemmRows = 16;

class Gemm {
 public:
  // `store` supplies earlier choices and receives new ones. It must outlive this.
  Gemm(GemmStore& store, std::int64_t workspace_bytes);
  ~Gemm();

  // Chooses the algorithms of a shape in both modes, for up to max_rows rows. Takes the store's
  // choice, else the fastest of cuBLASLt's proposals, timed on random data with a cold L2 cache.
  // Timing needs temporary device memory: the larger of w and three times the L2 cache, the size of
  // the L2 cache once more, and x and y. Do not call it during a capture or a run. Throws CudaError
  // if no algorithm computes the shape.
  void prepare(const GemmShape& shape, std::int64_t max_rows);

  // Why mode Invariant cannot compute a prepared shape: no set of kernels adds in one order for all
  // row counts. Empty if all shapes can be computed.
  std::string invariant_fault() const;

  // Human-readable text on every prepared shape: why mode Invariant cannot compute it, and
  // describe_invariant_gemms() with the algorithms chosen now or found in the store. An error
  // replaces the text. Needs as much memory as prepare(). Do not call it during a capture or a run.
  std::string describe_invariant(const std::function<void()>& poll) const;

  // Requires prepare() for the shape, m <= max_rows, and no fault in mode Invariant. All runs of
  // one Gemm must be on one stream. Allocates nothing; may be captured into a graph.
  void run(const GemmShape& shape, GemmMode mode, std::int64_t m, const __nv_bfloat16* w,
           const __nv_bfloat16* x, void* y, cudaStream_t stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The machine's key in a GemmStore: current device, driver, cuBLASLt version and workspace.
std::string gemm_machine_key(std::int64_t workspace_bytes);

}  // namespace metronome
