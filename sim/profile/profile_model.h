// Step times composed from measured kernel times.
//
// A pass over t tokens of r sequences takes
//   dense layers   every layer's own number of calls at t tokens, plus embedding and final norm. Up
//                  to `max_graph_tokens` a pass runs as a captured CUDA graph, padded to the next
//                  captured size: 1, 2, 4, multiples of 8 up to 256 and of 16 above.
//   experts        of t tokens and E (1 - (1 - k/E)^t) activated experts, where the model has some.
//   head           output projection and sampler at r sequences: vLLM computes logits for every
//                  sequence of a step, those in the middle of their prompt included.
//   attention      decodes alone: the table at their number and mean context. With prompts: one
//                  launch for all, the table at one chunk of as many tokens and of equal attention
//                  area, beside that many decodes. Several prompts fill the device worse or better
//                  than one: times the ratio of profile_blocks.h, where the kernel is known to be
//                  FlashAttention 2. How blocks fill the device is also what decodes of unequal
//                  contexts take, at the level of the table's rows around their number, if the
//                  profile's own switch (`skew_fit.enabled`) says so. Below 1.6 blocks per
//                  multiprocessor that kernel splits contexts over blocks; the number of sequences
//                  in the graph decides, and look-ups do not cross from one side to the other.
//   all-reduces    two per layer and one for the embedding, and half of one for the logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/model/model_config.h"
#include "core/scenario/scenario.h"
#include "sim/cost/cost_model.h"
#include "sim/cost/hardware.h"
#include "sim/cost/pass_cost.h"
#include "sim/profile/profile_blocks.h"
#include "sim/profile/profile_tables.h"

namespace metronome {

// Of the attention kernel that was measured, fitted to its table.
struct BlockFilling {
  std::int64_t num_multiprocessors = 0;
  // Of decodes alone: all query heads of a KV head share a block; a block per query head beside
  // prompts.
  BlockTimes decode;
  BlockTimes mixed;

  bool operator==(const BlockFilling&) const = default;
};

// What step times are composed from. The model's layers may be more or fewer than were measured.
struct Profile {
  ProfileTables tables;
  std::optional<BlockFilling> filling;  // absent: another kernel, or an unknown device
  bool corrects_lengths = false;        // decodes of unequal contexts
};

class ProfileCostModel final : public CostModel {
 public:
  // Throws UnplacedConfigError when the profile lacks what the model has, or devices have no link.
  ProfileCostModel(Profile profile, const ModelConfig& model, const HardwareSpec& hardware,
                   const CostModelConfig& config);

  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override;
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override;

 private:
  struct Prompt {
    double tokens;
    double history;
  };
  // What of a pass is priced.
  enum class Part { All, Decodes };

  PassCost pass_cost(std::span<const ScheduledChunk> chunks, Part part, bool& is_outside);
  // Fills prompts_ and contexts_.
  void sort_chunks(std::span<const ScheduledChunk> chunks, Part part);
  double graph_tokens(double num_tokens) const;
  double activated_experts(std::int64_t num_tokens) const;
  double decode_attention_us(double graph_sequences, bool& is_outside);
  double unsplit_attention_us(std::size_t begin, std::size_t end);
  double mixed_attention_us(bool& is_outside);
  double filling_ratio(const Prompt& merged);
  double allreduce_us(double bytes, bool& is_outside) const;
  double comm_us(double num_tokens, double num_rows, bool& is_outside) const;

  Profile profile_;
  ModelConfig model_;
  HardwareSpec hardware_;
  CostModelConfig config_;

  // Derived once.
  Curve dense_;  // all dense layers of a pass, by tokens
  Curve head_;   // by sequences
  double layers_ = 0;
  std::int64_t query_heads_ = 0;  // of one device
  std::int64_t kv_heads_ = 0;
  std::size_t num_split_rows_ = 0;  // of the decode table: contexts split over blocks
  double max_split_blocks_ = 0;     // exclusive; 0: no such boundary

  // Of the pass at hand.
  std::vector<Prompt> prompts_;
  std::vector<double> contexts_;
  double mean_context_ = 0;
  bool has_equal_contexts_ = true;
  std::optional<BlockLaunch> launch_;
};

}  // namespace metronome
