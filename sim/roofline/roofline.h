// SPDX-License-Identifier: Apache-2.0
// Step times from first principles: the compute and memory traffic of a forward pass against the
// limits of the hardware. Measured are the hardware's efficiencies and overheads, and links.
//
// Per pass, on each of the `tensor_parallel_size` devices:
//   projections  FLOPs and weight bytes, joined: the longer, plus crossover_loss times the shorter
//                times shorter / longer. QKV, output, gate, up and down share one crossover.
//   experts      the same, for the experts that the pass reads. Each computes its tokens and a half
//                tile of padding. n tokens are each routed to k of E experts, independently but
//                unevenly: E (1 - (1 - k/E)^(1 + 0.6 (n - 1))) per layer. With 0.6 it follows the
//                times of aiconfigurator's power law of routing (exponent 1.2), which reads as few
//                experts. A layer of experts has an overhead.
//   head         the same for the sampled rows, of which a decode with d drafts has 1 + d; 0
//                without rows.
//   activations  bytes that norms, rotary embeddings and activation functions read and write, and
//                those of sorting tokens by expert and of adding up what experts return.
//   the rest     norm scales and embedding rows, bytes only; counted with the projections.
//   attention    prefill chunks and decodes each max(FLOPs, KV bytes). Every position a chunk may
//                attend to moves once: earlier positions are read, its own are written (and read
//                back from on-chip cache). A decode has an overhead in each layer. Its drafts are
//                further queries over the same context: arithmetic for each, the context once.
//                Attention kernels put all queries of a sequence that share a KV head into one tile
//                (FlashAttention 3's PackGQA; TensorRT-LLM's and FlashInfer's decode kernels), so
//                that a few drafts are free as long as the context's bytes take longer: up to about
//                190 queries a KV head on an H100.
//                Latent attention (arXiv 2405.04434, section 2.1) has two forms, as vLLM's MLA
//                backend. Decodes compute in latent space: 2 kv_rank + rope_dim products a pair and
//                head over the cached vector; the up-projections of queries and values count with
//                the projections. Chunks expand keys and values of all their positions: those of
//                earlier chunks are projected again by every chunk, and written and read back.
//                Sinks cost nothing.
//                Of several kinds of layers each counts by itself (layer_costs.h). Entries that an
//                index chose count as a window of as many tokens.
//   states       of linear attention (Gated DeltaNet, arXiv 2412.06464). A decode reads and writes
//                the state of its request, and computes 7 dk dv a value head and token: decay, what
//                the key recalls, the update and the output. A chunk moves the state once, too, and
//                computes in blocks of C = 64 tokens (section 3.3 there; arXiv 2406.06484, section
//                3). Of a block and value head, in multiply-adds: C C dk for K K', C^3 / 3 to
//                invert, C C (dk + dv) for W and U, 3 C dk dv with the state (W S, Q S, K' V),
//                C C (dk + dv) for Q K' and what it weighs. The blocks of a sequence follow each
//                other and a head has one multiprocessor, so the longest chunk is a bound of its
//                own. In aiconfigurator-core 0.12.0's tables of vLLM 0.24 on an H100 a decode's
//                state takes 1.42 us a layer of 32 heads (1.39 here), a token of one prompt 47 to
//                52 ns for 2 to 64 heads (42 here); on a B200 one prompt takes 39 ns (22 here).
//   overhead     copies of `gather_kv`, kernel launches, overheads of layers. A layer of
//                latent attention has 13 kernels, any other has nine. A layer of experts has nine,
//                too, with or without a shared expert. Even so, 1 to 8 decodes of MiniMax-M2 and
//                gpt-oss on one GPU take 7 to 76 us a layer less than their operators.
//   comm         two all-reduces of the activations a layer: as measured on the link (sim/link), or
//                a ring's 2 (n - 1) / n of the bytes, plus latency; one more a layer where norms
//                span the heads of all devices (qk_norm_exchange_bytes).
// A format of weights decides their bytes, and the units that compute: fp8 and fp4 where the GPU
// has such units; mxfp4 in fp8 where it has fp4 ones, as engines then quantise activations to 8
// bits; 8-bit integers at the rate of fp8; else bf16, also for int4. Modules of several formats
// each count in their own. Attention and head are computed in bf16.
//
// The gather of logits across devices and the sampler's arithmetic are not counted.
#pragma once

#include <array>
#include <cstdint>

#include "core/engine/step_plan.h"
#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "core/scenario/cost_model_config.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/pass_cost.h"
#include "sim/link/link.h"
#include "sim/roofline/layer_costs.h"

namespace metronome {

// Causal (query, key) pairs of `num_tokens` queries starting at `first_position`. The query at
// position p attends to p + 1 keys, at most `window` of them if window > 0.
std::int64_t attention_pairs(std::int64_t first_position, std::int64_t num_tokens,
                             std::int64_t window);

// Positions that at least one of those queries attends to, including the chunk's own.
std::int64_t attended_positions(std::int64_t first_position, std::int64_t num_tokens,
                                std::int64_t window);

struct OperationWork {
  double flops = 0;
  double bytes = 0;
};

// The work of one device: what it computes and moves.
struct StepWork {
  OperationWork projections;
  OperationWork experts;
  double padding_flops = 0;  // of experts' tiles that are not full; no part of total_flops()
  OperationWork head;
  OperationWork prefill_attention;
  OperationWork decode_attention;
  OperationWork prefill_states;  // of linear attention
  OperationWork decode_states;
  double other_bytes = 0;      // norm scales, biases, convolutions, embedding rows
  double gather_bytes = 0;     // copies of gather_kv, read and write
  double allreduce_bytes = 0;  // sent over the link by all all-reduces

  double total_flops() const;
  double total_bytes() const;
};

class RooflineCostModel final : public CostModel {
 public:
  // `input_params` are the weights of a projection in front of the layers, which each device has
  // whole. Throws UnplacedConfigError if the model cannot be split over the tensor parallel size,
  // or if several devices have no link.
  RooflineCostModel(const ModelConfig& model, const HardwareSpec& hardware,
                    const CostModelConfig& config, std::int64_t input_params = 0);

  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override;
  // Throws UnplacedConfigError if the weights leave no room for a single block.
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override;

  // The sum over the plan's passes.
  StepWork step_work(const StepPlan& plan) const;
  // A lower bound: the larger of all FLOPs at the peaks of their formats and all bytes at
  // peak_bandwidth. Launches, all-reduces, activations and efficiencies do not count.
  TimeNs floor_ns(const StepWork& work) const;

 private:
  struct PassGroup;
  struct PassSums;
  template <std::size_t kNumWindows, bool kIsPadded>
  void add_chunks(const PassChunks& pass, PassSums& sums) const;
  PassSums sum_pass(const PassChunks& pass) const;
  void pad(PassSums& sums) const;
  OperationWork attention_work(const PassGroup& group, bool is_decode) const;
  OperationWork state_work(const PassGroup& group, bool is_decode) const;
  StepWork product_work(std::int64_t num_tokens, std::int64_t num_rows) const;
  double gather_bytes(const PassSums& sums) const;
  StepWork pass_work(const PassSums& sums) const;
  const PassCost& product_cost(std::int64_t num_tokens, std::int64_t num_rows);
  // Adds the cost of a pass with this time of attention.
  void add_pass(const PassSums& sums, double attention_ns, PassCost& cost);
  StepCost run_cost(const RunMembers& run);
  StepCost listed_cost(const StepPlan& plan);
  void set_overheads(double converted);
  void add_experts(double num_tokens, StepWork& work) const;
  double product_ns(double flop_ns, double bytes) const;
  double decode_attention_ns(const PassGroup& decodes) const;
  double attention_ns(const OperationWork& work) const;
  double prefill_attention_ns(const PassGroup& prefill) const;
  double allreduce_ns(double num_tokens, bool& is_outside) const;

  ModelConfig model_;
  HardwareSpec hardware_;
  CostModelConfig config_;
  Link link_;

  // Constants per device, derived once by the constructor.
  LayerCosts layers_;
  double num_layers_ = 0;    // ModelConfig::n_whole_layers()
  double small_params_ = 0;  // ModelConfig::n_small_params()
  double projection_params_ = 0;
  double projection_bytes_ = 0;
  double expert_params_ = 0;  // one expert in every layer with experts
  double head_params_ = 0;
  double expert_bias_params_ = 0;    // one expert in every layer with experts
  double ns_per_scanned_token_ = 0;  // of one sequence
  double linear_peak_flops_ = 0;     // of projections, a mean where they have several formats
  double expert_peak_flops_ = 0;
  double bytes_per_expert_weight_ = 0;
  double bytes_per_head_weight_ = 0;
  double ns_per_linear_flop_ = 0;
  double ns_per_expert_flop_ = 0;
  double ns_per_head_flop_ = 0;
  double ns_per_attention_flop_ = 0;
  double ns_per_byte_ = 0;  // of weights
  double ns_per_kv_byte_ = 0;
  double ns_per_activation_byte_ = 0;
  double ns_per_decode_ = 0;
  double launch_ns_ = 0;  // per pass

  // A result of product_cost(), kept at a place that depends on its arguments until another result
  // replaces it there.
  struct ProductCost {
    std::int64_t num_tokens = -1;
    std::int64_t num_rows = -1;
    PassCost cost;
  };
  std::array<ProductCost, 512> product_costs_;
};

}  // namespace metronome
