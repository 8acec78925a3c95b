// SPDX-License-Identifier: Apache-2.0
#include "cpu/mixture.h"

#include <algorithm>
#include <numeric>

#include "cpu/kernels.h"

namespace metronome {

void Mixture::choose(const ModelConfig& model, const PackedMatrix& router, const float* x,
                     std::int64_t num_rows, ThreadPool& pool) {
  const std::int64_t num_experts = model.n_experts;
  scores_.resize(static_cast<std::size_t>(num_rows * num_experts));
  router.multiply(x, model.hidden_dim, num_rows, scores_.data(), num_experts, pool);
  rows_.resize(static_cast<std::size_t>(num_experts));
  for (std::vector<ExpertRow>& rows : rows_) rows.clear();
  order_.resize(static_cast<std::size_t>(num_experts));
  for (std::int64_t row = 0; row < num_rows; ++row) {
    float* const scores = scores_.data() + row * num_experts;
    kernels().softmax(scores, num_experts);
    std::iota(order_.begin(), order_.end(), 0);
    const auto chosen_end = order_.begin() + model.n_experts_per_token;
    std::partial_sort(order_.begin(), chosen_end, order_.end(),
                      [scores](std::int64_t a, std::int64_t b) {
                        return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
                      });
    float sum = 0;
    for (auto expert = order_.begin(); expert != chosen_end; ++expert) sum += scores[*expert];
    const float divisor = model.has_normalised_expert_weights ? sum : 1.0f;
    for (auto expert = order_.begin(); expert != chosen_end; ++expert) {
      rows_[static_cast<std::size_t>(*expert)].push_back({row, scores[*expert] / divisor});
    }
  }
}

const float* Mixture::gather(std::int64_t expert, const float* x, std::int64_t width) {
  const std::vector<ExpertRow>& rows = rows_of(expert);
  input_.resize(rows.size() * static_cast<std::size_t>(width));
  float* out = input_.data();
  for (const ExpertRow& row : rows) {
    std::copy_n(x + row.row * width, width, out);
    out += width;
  }
  return input_.data();
}

}  // namespace metronome
