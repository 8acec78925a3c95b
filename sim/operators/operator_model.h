// SPDX-License-Identifier: Apache-2.0
// Step times composed from measured operators.
//
// On each device a pass over t tokens takes the times below. t is padded to a captured graph size
// (sim/cost/graph_size.h), L is the number of layers.
//   products     projections, MLP or experts of every layer at t tokens; the head at as many rows
//                of logits as there are sequences, and drafts, padded too.
//   attention    of n prompts: the table at n, and at their mean of (query, key) pairs; a chunk of
//                c tokens behind h has c (h + c / 2). No less than as many decodes with the same
//                keys, since short chunks read these, too; with latent attention, no less than
//                reading expanded keys and values. Of decodes: the table at their number
//                and mean context. Both are added, as no table has them in one launch. A decode
//                with drafts counts as one decode at the end of its tokens: kernels read the
//                context once for all queries that share a KV head (see sim/roofline/roofline.h).
//                No table has such decodes; above 128 queries a KV head, two tiles of
//                FlashAttention, arithmetic may take longer, and the step counts as extrapolated.
//                In layers with a window: the window's own table, at the prompts' mean tokens, or
//                else the table without one, at lengths cut to the window.
//   latent       Chunks take the expanded form: keys and values of each chunk's whole context are
//                computed from the cache, a product at the sum of those positions. Decodes take the
//                absorbed form: products of each head into the latent space and out of it, at the
//                decoded tokens. The heads of a device share a latent vector, as those of a KV head
//                do above. SGLang takes the absorbed form for chunks behind fewer than 8,192 cached
//                tokens, too; this is not counted.
//   states       of linear attention: the table of convolution and delta rule at n prompts of their
//                mean tokens, and at as many decodes as there are decoded tokens, drafts included.
//                vLLM's, SGLang's and TensorRT-LLM's kernels were timed without a history, on which
//                they do not depend.
//   collectives  2 L + 1 all-reduces of t x hidden_dim, and a gather of the logits; L more where
//                norms span the heads of all devices (qk_norm_exchange_bytes).
// Tables lack the rest:
//   elementwise  An operation on b bytes takes 1 us + b / (0.88 bandwidth), at least 1.9 us: the
//                table of quantisations on an H100 has 1.9 us for one row, and 0.88 of 3.35 TB/s
//                for 201 MB. The 1 us is an assumption. Per layer: two norms of 8 t hidden_dim
//                bytes, unless the engine fuses them with all-reduces of that size; rotary
//                embedding and KV write, 4 t bytes for each element of QKV, and once more with QK
//                norms; 2 t more of Q and K where those span all devices; in dense layers the
//                activation, 6 t ffn_dim bytes; the same for shared experts, for gates of attention
//                and for the gated norm of linear attention, by their widths. In layers of latent
//                attention: norms of both latent vectors, 4 bytes an element; and the keys of
//                expanded contexts, whose two parts are joined: 2 bytes read and written for each
//                element. Once: the embedding, 4 t hidden_dim.
//   launches     9 kernels a layer at 1.3 us ("No Bubbles", Hazy Research: launches inside a CUDA
//                graph on an H100), and 200 us a pass between the last kernel and the next
//                pass's first. These two were fitted to the time between tokens of Qwen3-8B on an
//                H100 under vLLM 0.30 (github.com/tgarg01/silybench-data).
//   sampler      30 us, and 10 bytes for each logit: an assumption.
#pragma once

#include <cstdint>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/measured_steps.h"
#include "sim/cost/pass_cost.h"
#include "sim/link/link.h"
#include "sim/operators/operator_times.h"

namespace metronome {

class OperatorCostModel final : public KernelCostModel {
 public:
  // `times` are those of a model like `model` on `config.tensor_parallel_size` devices; the number
  // of layers may differ. Throws UnplacedConfigError if `times` lacks a part of the model, or if a
  // link that the scenario names does not join the devices.
  OperatorCostModel(OperatorTimes times, const ModelConfig& model, const HardwareSpec& hardware,
                    const CostModelConfig& config);

 private:
  PassCost pass_cost(const PassChunks& pass, PassPart part, bool& is_outside) override;
  double attention_us(const PassSums& sums, bool& is_outside) const;
  double least_prompts_us(const PassSums& sums) const;
  double states_us(const PassSums& sums, bool& is_outside) const;
  double windowed_attention_us(const PassSums& sums, bool& is_outside) const;
  double latent_us(const PassSums& sums, bool& is_outside) const;
  double elementwise_us(double tokens) const;
  // Of an operation that moves so many bytes.
  double elementwise_bytes_us(double bytes) const;
  double comm_us(double tokens, double num_rows, bool& is_outside) const;

  OperatorTimes times_;
  Link link_;

  // Derived once by the constructor.
  Curve layers_;             // projections, MLPs and experts of all layers, by tokens
  double us_per_byte_ = 0;   // of elementwise operations
  double qkv_elements_ = 0;  // of one device and token
  double qk_elements_ = 0;
  double exchange_bytes_ = 0;  // of norms over the heads of all devices, a token and layer
  double ffn_elements_ = 0;
  double gate_elements_ = 0;     // of attention's output gates
  double state_elements_ = 0;    // of linear attention's outputs
  double shared_elements_ = 0;   // of shared experts
  double launch_us_ = 0;         // per pass
  std::int64_t cut_window_ = 0;  // of windows without a table of their own; 0: none
};

}  // namespace metronome
