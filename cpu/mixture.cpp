// SPDX-License-Identifier: Apache-2.0
#include "cpu/mixture.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cpu/kernels.h"

namespace metronome {

namespace {

// Phi MoE's router_jitter_noise: scores within twice this share of the largest are close to it.
constexpr float kMixerShare = 0.02f;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Puts the numbers of the `count` largest in front, at a tie the lower number.
void rank_largest(const std::vector<float>& values, std::int64_t count,
                  std::vector<std::int64_t>& order) {
  order.resize(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&values](std::int64_t a, std::int64_t b) {
                      const float first = values[static_cast<std::size_t>(a)];
                      const float second = values[static_cast<std::size_t>(b)];
                      return first > second || (first == second && a < b);
                    });
}

}  // namespace

// The router's outputs become scores, and ranks_ what the choice goes by.
void Mixture::score(const ModelConfig& model, const RouterWeights& router, float* scores) {
  const std::int64_t num_experts = model.n_experts;
  if (model.has_sigmoid_router) {
    ranks_.assign(static_cast<std::size_t>(num_experts), 1.0f);
    kernels().sigmoid_multiply(scores, ranks_.data(), num_experts, scores);
  } else {
    kernels().softmax(scores, num_experts);
  }
  ranks_.assign(scores, scores + num_experts);
  if (!router.choice_bias.empty()) {
    kernels().add(ranks_.data(), router.choice_bias.data(), num_experts);
  }
}

// Experts of other groups than the best come last. A group ranks by its best expert, or by the sum
// of its two best.
void Mixture::mask_groups(const ModelConfig& model) {
  const std::int64_t size = model.n_experts / model.n_expert_groups;
  group_ranks_.clear();
  for (std::int64_t group = 0; group < model.n_expert_groups; ++group) {
    float best = kLowest;
    float second = kLowest;
    for (std::int64_t i = group * size; i < (group + 1) * size; ++i) {
      const float rank = ranks_[static_cast<std::size_t>(i)];
      second = std::max(second, std::min(best, rank));
      best = std::max(best, rank);
    }
    group_ranks_.push_back(model.has_paired_groups ? best + second : best);
  }
  rank_largest(group_ranks_, model.n_groups_per_token, order_);
  for (std::int64_t i = model.n_groups_per_token; i < model.n_expert_groups; ++i) {
    const auto first = ranks_.begin() + order_[static_cast<std::size_t>(i)] * size;
    std::fill_n(first, size, kLowest);
  }
}

void Mixture::choose_by_scores(const ModelConfig& model, std::int64_t row, const float* scores) {
  rank_largest(ranks_, model.n_experts_per_token, order_);
  const auto chosen_end = order_.begin() + model.n_experts_per_token;
  float sum = 0;
  for (auto expert = order_.begin(); expert != chosen_end; ++expert) sum += scores[*expert];
  const float divisor = model.has_normalised_expert_weights ? sum : 1.0f;
  const auto scale = static_cast<float>(model.expert_scale);
  for (auto expert = order_.begin(); expert != chosen_end; ++expert) {
    const float weight = scores[*expert] / divisor * scale;
    rows_[static_cast<std::size_t>(*expert)].push_back({row, weight});
  }
}

// SparseMixer (arXiv 2409.12136): the largest output, and then the largest of the others. Each
// weighs its softmax among the outputs that are close to it.
void Mixture::choose_sparsely(std::int64_t row, const float* outputs, std::int64_t num_experts) {
  std::int64_t taken = num_experts;
  for (int choice = 0; choice < 2; ++choice) {
    std::int64_t best = taken == 0 ? 1 : 0;
    for (std::int64_t i = best; i < num_experts; ++i) {
      if (i != taken && outputs[i] > outputs[best]) best = i;
    }
    const float largest = outputs[best];
    ranks_.assign(outputs, outputs + num_experts);
    for (std::int64_t i = 0; i < num_experts; ++i) {
      const float span = std::max(std::abs(outputs[i]), largest);
      const bool is_far = (largest - outputs[i]) / span > kMixerShare;
      if (is_far || i == taken) ranks_[static_cast<std::size_t>(i)] = kLowest;
    }
    kernels().softmax(ranks_.data(), num_experts);
    rows_[static_cast<std::size_t>(best)].push_back({row, ranks_[static_cast<std::size_t>(best)]});
    taken = best;
  }
}

void Mixture::choose(const ModelConfig& model, const RouterWeights& router, const float* x,
                     std::int64_t num_rows, ThreadPool& pool) {
  const std::int64_t num_experts = model.n_experts;
  scores_.resize(static_cast<std::size_t>(num_rows * num_experts));
  router.matrix.multiply(x, model.hidden_dim, num_rows, scores_.data(), num_experts, pool);
  rows_.resize(static_cast<std::size_t>(num_experts));
  for (std::vector<ExpertRow>& rows : rows_) rows.clear();
  for (std::int64_t row = 0; row < num_rows; ++row) {
    float* const scores = scores_.data() + row * num_experts;
    if (!router.bias.empty()) kernels().add(scores, router.bias.data(), num_experts);
    if (model.has_sparse_mixer) {
      choose_sparsely(row, scores, num_experts);
      continue;
    }
    score(model, router, scores);
    if (model.n_expert_groups > 1) mask_groups(model);
    choose_by_scores(model, row, scores);
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
