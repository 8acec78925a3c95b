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

class Mixture {
 public:
  // Chooses n_experts_per_token experts for each row of x, [num_rows, hidden_dim]: those with the
  // largest softmax of the router's outputs, at a tie the lower number. Their weights are these
  // values, divided by their sum with has_normalised_expert_weights.
  void choose(const ModelConfig& model, const PackedMatrix& router, const float* x,
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
  std::vector<std::vector<ExpertRow>> rows_;  // [n_experts], rows ascending
  std::vector<float> scores_;                 // [num_rows, n_experts]
  std::vector<std::int64_t> order_;           // [n_experts]
  std::vector<float> input_;
  std::vector<float> output_;
};

}  // namespace metronome
