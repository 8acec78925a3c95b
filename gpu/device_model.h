// A transformer on a GPU: one forward pass over a ragged batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "gpu/device_kv_cache.h"
#include "gpu/device_weights.h"
#include "gpu/gemm.h"
#include "gpu/kernels/kernels.h"
#include "gpu/plan/layer_products.h"
#include "gpu/plan/memory_plan.h"
#include "gpu/plan/step_arrays.h"

namespace metronome {

// Of cuBLASLt: what NVIDIA recommends for Hopper, and enough for split sums elsewhere.
constexpr std::int64_t kGemmWorkspaceBytes = 32 << 20;

// The largest pass a model has memory for.
struct PassLimits {
  std::int32_t max_tokens = 0;
  std::int32_t max_rows = 0;  // of logits
  std::int32_t max_items = 0;
  std::int32_t max_model_len = 0;
  std::int32_t max_parts =
      0;  // of launch_wgmma_attention, at least the tiles of any pass; 0: unused
  bool operator==(const PassLimits&) const = default;
};

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

AttentionShape attention_shape_of(const ModelConfig& model, bool is_window);

// What beside the weights a run takes of the GPU's memory; for plan_memory().
MemoryDemand memory_demand(const ModelConfig& model, const PassLimits& limits);

class DeviceModel {
 public:
  // Loads the weights and chooses algorithms for the linear layers (see Gemm). Throws ConfigError
  // and CudaError. `store` outlives this.
  DeviceModel(const ModelSource& source, const PassLimits& limits, GemmStore& store,
              const std::function<void()>& poll);

  const ModelConfig& config() const { return model_; }
  const PassLimits& limits() const { return limits_; }

  // Enqueues a pass: keys and values go to `kv`, logits to logits(), and the token of row i to
  // sampled[sample_rows[i].out], where also token ids < 0 are looked up. `block` is arrays.bytes in
  // device memory. Every pointer a kernel gets follows from arrays' offsets and from `block`, `kv`
  // and `sampled`, so that a pass which was captured can be replayed with other contents.
  // Passes of a model are on one stream.
  void forward(const StepArrays& arrays, const std::byte* block, const DeviceKvCache& kv,
               GemmMode mode, const PassKernels& kernels, std::int32_t* sampled,
               cudaStream_t stream);

  // Why no pass can be computed in mode Invariant; empty where all can.
  std::string invariant_fault() const { return gemm_.invariant_fault(); }
  // Gemm::describe_invariant() of the linear layers.
  std::string describe_invariant_gemms(const std::function<void()>& poll) const {
    return gemm_.describe_invariant(poll);
  }

  // Runs every product once for every choice of an algorithm, on what the activations hold: the
  // driver loads a kernel when it is first launched, which takes milliseconds. Waits.
  void warm_up(const std::function<void()>& poll);
  // The same of launch_prefill_gemm, for every tile. Enqueues.
  void warm_up_wgmma(cudaStream_t stream);

  // [num_rows, vocab_size] of the latest pass.
  const float* logits() const { return logits_.data(); }

 private:
  struct Pass;       // the arguments of forward()
  struct InputNorm;  // what stands before a product

  GemmShape qkv_shape() const;
  GemmShape output_shape() const;
  GemmShape gate_up_shape() const;
  GemmShape down_shape() const;
  GemmShape head_shape() const;
  void prepare_gemms(const std::function<void()>& poll);
  void embed(const Pass& pass);
  void run_attention(Pass& pass, std::int64_t layer);
  void project_heads(Pass& pass, std::int64_t layer);
  void attend(const Pass& pass, std::int64_t layer);
  void run_mlp(Pass& pass, std::int64_t layer);
  void project_gates(Pass& pass, std::int64_t layer);
  void project_logits(Pass& pass);
  void sample(const Pass& pass);
  InputNorm norm_before(std::int64_t layer) const;  // n_layers: before the head
  // normed = norm(residual), after update went into residual if there is one.
  void normalise(const Pass& pass, const InputNorm& norm);
  void multiply(const Pass& pass, const GemmShape& shape, const DeviceArray<__nv_bfloat16>& weights,
                const __nv_bfloat16* x, __nv_bfloat16* y) const;
  PrefillGemmArgs wgmma_args(const GemmShape& shape, const PrefillGemmTile& tile,
                             GemmEpilogue epilogue, const DeviceArray<__nv_bfloat16>& weights,
                             const __nv_bfloat16* x, __nv_bfloat16* y,
                             std::int32_t num_tokens) const;
  // Of a pass: whether products of hidden_dim inputs normalise them.
  bool can_fuse_norms(const Pass& pass) const;
  DecodeGemmArgs fused_args(const Pass& pass, const GemmShape& shape, const __nv_bfloat16* weights,
                            const __nv_bfloat16* x, void* y) const;
  // A product of norm(residual), where the pass fuses norms. `args` lack it.
  void multiply_normed(Pass& pass, const InputNorm& norm, DecodeGemmArgs args) const;

  ModelConfig model_;
  std::array<LayerProduct, 4> products_;
  PassLimits limits_;
  DeviceWeights weights_;
  Gemm gemm_;
  std::int32_t decode_ctas_ = 0;
  std::int32_t num_processors_ = 0;
  // max_tokens and max_rows are here multiples of kGemmRows.
  DeviceArray<__nv_bfloat16> residual_;    // [max_tokens, hidden_dim]
  DeviceArray<__nv_bfloat16> normed_;      // [max_tokens, hidden_dim]
  DeviceArray<__nv_bfloat16> update_;      // [max_tokens, hidden_dim], for post norms; else empty
  DeviceArray<__nv_bfloat16> qkv_;         // [max_tokens, (n_heads + 2 * n_kv_heads) * head_dim]
  DeviceArray<__nv_bfloat16> queries_;     // [max_tokens, n_heads * head_dim]
  DeviceArray<__nv_bfloat16> attended_;    // [max_tokens, n_heads * head_dim]
  DeviceArray<__nv_bfloat16> gate_up_;     // [max_tokens, 2 * ffn_dim]
  DeviceArray<__nv_bfloat16> activated_;   // [max_tokens, ffn_dim]
  DeviceArray<float> logits_;              // [max_rows, vocab_size]
  DeviceArray<float> partials_;            // [max_items, decode_partial_floats()]
  DeviceArray<float> parts_;               // [max_parts, prefill_part_floats()]
  DeviceArray<std::byte> sample_scratch_;  // [sample_scratch_bytes(max_rows, vocab_size)]
};

}  // namespace metronome
