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

// Fastest may split the sum over k and choose any kernel. Invariant: one float accumulator that
// runs over k in order, in every kernel chosen, so that a row of the result does not depend on how
// many rows are computed with it.
enum class GemmMode : std::uint8_t { Fastest, Invariant };

// y[m][n] = x[m][k] * w[n][k]^T, bfloat16 with float sums. y is bfloat16, or float32 with
// has_float_output. adds_output: y += ... instead, rounded once. All begin at multiples of 16
// bytes.
struct GemmShape {
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool adds_output = false;
  bool has_float_output = false;
  auto operator<=>(const GemmShape&) const = default;
};

GemmShape gemm_shape(const LayerProduct& product);

// Of cuBLASLt: what NVIDIA recommends for Hopper, and enough for split sums elsewhere.
constexpr std::int64_t kGemmWorkspaceBytes = 32 << 20;

// Rows of x and y are computed in multiples of this: their memory has room for them.
constexpr std::int64_t kGemmRows = 16;

class Gemm {
 public:
  // `store` has algorithms chosen before, and gets those chosen now; it outlives this.
  Gemm(GemmStore& store, std::int64_t workspace_bytes);
  ~Gemm();

  // Chooses the algorithms of a shape for up to max_rows rows in both modes: what the store has, or
  // else the fastest of cuBLASLt's proposals, timed on random data with a cold L2 cache. Choosing
  // needs device memory while it lasts: for w or three times the L2 cache, whichever is more, once
  // more the cache, and x and y. Not while a stream is captured or a run is under way. Throws
  // CudaError when nothing computes the shape.
  void prepare(const GemmShape& shape, std::int64_t max_rows);

  // Why a shape that was prepared cannot be computed in mode Invariant: no set of kernels adds up
  // in one order for all row counts. Empty where all can.
  std::string invariant_fault() const;

  // For people: of every shape that was prepared, why it cannot be computed in mode Invariant, and
  // describe_invariant_gemms() with what was chosen, now or in the store; or the error instead.
  // Needs as much memory as prepare(). Not while a stream is captured or a run is under way.
  std::string describe_invariant(const std::function<void()>& poll) const;

  // Requires prepare() for the shape, m <= max_rows, and for Invariant no fault. Runs of one Gemm
  // are on one stream. Allocates nothing; may be captured into a graph.
  void run(const GemmShape& shape, GemmMode mode, std::int64_t m, const __nv_bfloat16* w,
           const __nv_bfloat16* x, void* y, cudaStream_t stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a GemmStore calls the machine: the current device, driver, cuBLASLt and workspace.
std::string gemm_machine_key(std::int64_t workspace_bytes);

}  // namespace metronome
