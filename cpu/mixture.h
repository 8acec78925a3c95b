// SPDX-License-Identifier: Apache-2.0
// Which experts compute which tokens, in a layer with a mixture of experts.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model_config.h"
#include "cpu/packed_matrix.h"
#include "cpu/thread_pool.h"

namespace metronome {

// A token that an expert computes, and the share of its output.
struct ExpertRow {
  std::int64_t row = 0;
  float weight = 0;
};

// Of a layer with a mixture of experts.
struct RouterWeights {
  PackedMatrix matrix;             // [n_experts, hidden_dim]; empty in a dense layer
  std::vector<float> bias;         // [n_experts], of the outputs; empty = none
  std::vector<float> choice_bias;  // [n_experts], of scores, for the choice alone; empty = none
};

class Mixture {
 public:
  // Chooses n_experts_per_token experts for each row of x, [num_rows, hidden_dim]. An expert's
  // score is the softmax of the router's outputs, or their sigmoid with has_sigmoid_router. The
  // largest scores are chosen, each with its choice bias, at a tie the lower number. With groups,
  // only experts of the n_groups_per_token groups with the largest scores are. Their weights are
  // the scores, divided by their sum with has_normalised_expert_weights, times expert_scale.
  void choose(const ModelConfig& model, const RouterWeights& router, const float* x,
              std::int64_t num_rows, ThreadPool& pool);

  const std::vector<ExpertRow>& rows_of(std::int64_t expert) const {
    return rows_[static_cast<std::size_t>(expert)];
  }
  // The rows of x that an expert computes, [rows_of(expert).size(), width]; valid until the next
  // call.
  const float* gather(std::int64_t expert, const float* x, std::int64_t width);
  // Room for what an expert computes.
  std::vector<float>& output() { return output_; }

 private:
  void score(const ModelConfig& model, const RouterWeights& router, float* scores);
  void mask_groups(const ModelConfig& model);
  void choose_by_scores(const ModelConfig& model, std::int64_t row, const float* scores);
  void choose_sparsely(std::int64_t row, const float* outputs, std::int64_t num_experts);

  std::vector<std::vector<ExpertRow>> rows_;  // [n_experts], rows ascending
  std::vector<float> scores_;                 // [num_rows, n_experts]
  std::vector<float> ranks_;                  // [n_experts] of a row: what the choice goes by
  std::vector<float> group_ranks_;            // [n_expert_groups] of a row
  std::vector<std::int64_t> order_;           // [n_experts]
  std::vector<float> input_;
  std::vector<float> output_;
};

}  // namespace metronome
