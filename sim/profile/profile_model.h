// SPDX-License-Identifier: Apache-2.0
// Step times composed from measured kernel times.
//
// A pass over t tokens of r sequences takes
//   dense layers   every layer's own number of calls at t tokens, plus embedding and final norm. Up
//                  to `max_graph_tokens` a pass runs as a captured CUDA graph, padded to the next
//                  captured size: 1, 2, 4, multiples of 8 up to 256 and of 16 above.
//   experts        of t tokens and E (1 - (1 - k/E)^t) activated experts, if the model has experts.
//   head           output projection and sampler at r sequences. vLLM computes logits for every
//                  sequence of a step, including those in the middle of their prompt, and for
//                  every draft.
//   attention      decodes only: the table at their number and mean context. With prompts: one
//                  launch for all, read from the table at that many decodes beside one chunk with
//                  as many tokens and the same attention area. Several prompts fill the device
//                  differently from one: times the ratio of profile_blocks.h, if the kernel is
//                  known to be FlashAttention 2. The same block model covers decodes of unequal
//                  contexts, scaled to the table's nearby rows, if the profile enables it
//                  (`skew_fit.enabled`). Below 1.6 blocks per multiprocessor that kernel splits
//                  contexts over blocks. The number of sequences in the graph decides, and
//                  look-ups do not cross this boundary. Decodes with drafts: that kernel computes
//                  them as short chunks, each query head by itself (it swaps query heads for
//                  queries only where every sequence has one; mha_varlen_fwd in flash_api.cpp), but
//                  no faster than decodes at the end of their tokens. Other kernels take such
//                  decodes' time (sim/roofline/roofline.h).
//   all-reduces    two per layer and one for the embedding, and half of one for the logits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/measured_steps.h"
#include "sim/cost/pass_cost.h"
#include "sim/link/link.h"
#include "sim/profile/profile_blocks.h"
#include "sim/profile/profile_tables.h"

namespace metronome {

// Parameters of the measured attention kernel, fitted to its table.
struct BlockFilling {
  std::int64_t num_multiprocessors = 0;
  // `decode`: decodes only; all query heads of a KV head share a block. `mixed`: with prompts; one
  // block per query head.
  BlockTimes decode;
  BlockTimes mixed;

  bool operator==(const BlockFilling&) const = default;
};

// The measurements that step times are composed from. The scenario's model may have another number
// of layers.
struct Profile {
  ProfileTables tables;
  std::optional<BlockFilling> filling;  // absent: another kernel or an unknown device
  bool corrects_lengths = false;        // decodes of unequal contexts
};

class ProfileCostModel final : public KernelCostModel {
 public:
  // Throws UnplacedConfigError if the profile lacks a part of the model, or if several devices have
  // no link.
  ProfileCostModel(Profile profile, const ModelConfig& model, const HardwareSpec& hardware,
                   const CostModelConfig& config);

 private:
  struct Prompt {
    double tokens;
    double history;
  };
  PassCost pass_cost(const PassChunks& pass, PassPart part, bool& is_outside) override;
  // Fills prompts_ and contexts_. Decodes with drafts are decodes, or chunks as prompts are.
  void sort_chunks(const PassChunks& pass, PassPart part, bool drafts_are_chunks);
  double activated_experts(std::int64_t num_tokens) const;
  double decode_attention_us(double graph_sequences, bool& is_outside);
  double unsplit_attention_us(std::size_t begin, std::size_t end);
  double mixed_attention_us(bool& is_outside);
  double attention_us(const PassChunks& pass, PassPart part, double graph_sequences,
                      bool has_drafts, bool& is_outside);
  double filling_ratio(const Prompt& merged);
  double comm_us(double num_tokens, double num_rows, bool& is_outside) const;

  Profile profile_;
  Link link_;

  // Derived once by the constructor.
  Curve dense_;  // all dense layers of a pass, by tokens
  Curve head_;   // by sequences
  double layers_ = 0;
  std::int64_t query_heads_ = 0;  // of one device
  std::int64_t kv_heads_ = 0;
  std::size_t num_split_rows_ = 0;  // of the decode table: contexts split over blocks
  double max_split_blocks_ = 0;     // exclusive; 0: no boundary

  // State of the current pass.
  std::vector<Prompt> prompts_;
  std::vector<double> contexts_;
  double mean_context_ = 0;
  bool has_equal_contexts_ = true;
  std::optional<BlockLaunch> launch_;
};

}  // namespace metronome
