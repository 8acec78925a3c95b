// SPDX-License-Identifier: Apache-2.0
// A transformer on a GPU: one forward pass over a ragged batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "gpu/engine/attention.h"
#include "gpu/engine/device_kv_cache.h"
#include "gpu/engine/device_weights.h"
#include "gpu/engine/gemm.h"
#include "gpu/engine/linear.h"
#include "gpu/plan/layer_products.h"
#include "gpu/plan/memory_plan.h"
#include "gpu/plan/step_arrays.h"

namespace metronome {

// The largest pass a model has memory for.
struct PassLimits {
  std::int32_t max_tokens = 0;
  std::int32_t max_rows = 0;  // of logits
  std::int32_t max_items = 0;
  std::int32_t max_model_len = 0;
  // Parts of launch_wgmma_attention, at least as many as any pass has tiles; 0: unused.
  std::int32_t max_parts = 0;
  bool operator==(const PassLimits&) const = default;
};

// The GPU memory of a run beside its weights, for plan_memory().
MemoryDemand memory_demand(const ModelConfig& model, const PassLimits& limits);

class DeviceModel {
 public:
  // Loads the weights and chooses algorithms for the linear layers (see Gemm). `store` must outlive
  // this. Throws ConfigError and CudaError.
  DeviceModel(const ModelSource& source, const PassLimits& limits, GemmStore& store,
              const std::function<void()>& poll);

  const ModelConfig& config() const { return model_; }
  const PassLimits& limits() const { return limits_; }

  // Enqueues a pass. Keys and values go to `kv`, logits to logits(). The token of row i goes to
  // sampled[sample_rows[i].out]; token ids < 0 are looked up in `sampled`, too. `block` is
  // arrays.bytes in device memory. All kernel pointers depend only on the offsets in `arrays` and
  // on `block`, `kv` and `sampled`. So a captured pass can be replayed with other contents. All
  // passes of a model must be on one stream.
  void forward(const StepArrays& arrays, const std::byte* block, const DeviceKvCache& kv,
               GemmMode mode, const PassKernels& kernels, std::int32_t* sampled,
               cudaStream_t stream);

  // Why mode Invariant cannot compute a pass; empty if it can.
  std::string invariant_fault() const { return gemm_.invariant_fault(); }
  // Gemm::describe_invariant() of the linear layers.
  std::string describe_invariant_gemms(const std::function<void()>& poll) const {
    return gemm_.describe_invariant(poll);
  }

  // Runs every product once with each chosen algorithm, on the current activations. The driver
  // loads a kernel at its first launch, which takes milliseconds. Waits.
  void warm_up(const std::function<void()>& poll);
  // Runs every tile of launch_prefill_gemm once. Enqueues, does not wait.
  void warm_up_wgmma(cudaStream_t stream);

  // [num_rows, vocab_size] of the latest pass.
  const float* logits() const { return logits_.data(); }

 private:
  struct Pass;

  void prepare_gemms(const std::function<void()>& poll);
  LinearResources linear_resources() const;
  Pass begin_pass(const StepArrays& arrays, const std::byte* block, GemmMode mode,
                  const PassKernels& kernels, cudaStream_t stream) const;
  void embed(const Pass& pass, const std::int32_t* sampled) const;
  void run_layer(Pass& pass, const DeviceKvCache& kv, std::int64_t index) const;
  void place_heads(const Pass& pass, const DeviceKvCache& kv, std::int64_t index) const;
  void project_logits(Pass& pass) const;
  void sample(const Pass& pass, std::int32_t* sampled) const;

  ModelConfig model_;
  std::array<LayerProduct, kNumProducts> products_;  // [ProductPlace]
  PassLimits limits_;
  DeviceWeights weights_;
  Gemm gemm_;
  Attention attention_;
  std::int32_t num_processors_ = 0;
  // Here max_tokens and max_rows are rounded up to multiples of kGemmRows.
  DeviceArray<__nv_bfloat16> residual_;    // [max_tokens, hidden_dim]
  DeviceArray<__nv_bfloat16> normed_;      // [max_tokens, hidden_dim]
  DeviceArray<__nv_bfloat16> update_;      // [max_tokens, hidden_dim], for post norms; else empty
  DeviceArray<__nv_bfloat16> qkv_;         // [max_tokens, (n_heads + 2 * n_kv_heads) * head_dim]
  DeviceArray<__nv_bfloat16> queries_;     // [max_tokens, n_heads * head_dim]
  DeviceArray<__nv_bfloat16> attended_;    // [max_tokens, n_heads * head_dim]
  DeviceArray<__nv_bfloat16> gate_up_;     // [max_tokens, 2 * ffn_dim]
  DeviceArray<__nv_bfloat16> activated_;   // [max_tokens, ffn_dim]
  DeviceArray<float> logits_;              // [max_rows, vocab_size]
  DeviceArray<std::byte> sample_scratch_;  // [sample_scratch_bytes(max_rows, vocab_size)]
};

}  // namespace metronome
