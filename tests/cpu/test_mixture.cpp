// SPDX-License-Identifier: Apache-2.0
// Routers of mixtures of experts: which experts compute a token, and by which weights. Chosen
// against the rules written plainly in double precision, on random outputs and some by hand.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "cpu/mixture.h"
#include "models/weights/model_weights.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

using Choice = std::map<std::int64_t, double>;

// Matrices with the same values in every tensor.
class FixedWeights final : public WeightSource {
 public:
  explicit FixedWeights(std::vector<float> values) : values_(std::move(values)) {}
  TensorType type(const WeightSpec&) const override { return TensorType::Float32; }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    std::copy(values_.begin() + row_begin * spec.cols, values_.begin() + row_end * spec.cols, out);
  }

 private:
  std::vector<float> values_;
};

ModelConfig model_with(std::int64_t num_experts, std::int64_t per_token) {
  ModelConfig model;
  model.hidden_dim = 1;
  model.n_experts = num_experts;
  model.n_experts_per_token = per_token;
  return model;
}

// The choice for a token whose router has these outputs.
Choice chosen(const ModelConfig& model, const std::vector<float>& outputs,
              std::vector<float> choice_bias = {}) {
  ThreadPool pool(1);
  const FixedWeights weights(outputs);
  RouterWeights router;
  const WeightSpec spec = {"router", model.n_experts, 1, WeightRole::Linear};
  router.matrix = PackedMatrix(weights, {spec}, pool);
  router.choice_bias = std::move(choice_bias);
  Mixture mixture;
  const float x = 1;
  mixture.choose(model, router, &x, 1, pool);
  Choice choice;
  for (std::int64_t e = 0; e < model.n_experts; ++e) {
    for (const ExpertRow& row : mixture.rows_of(e)) {
      CHECK(row.row == 0);
      CHECK(choice.emplace(e, row.weight).second);
    }
  }
  return choice;
}

std::vector<std::int64_t> experts_of(const Choice& choice) {
  std::vector<std::int64_t> experts;
  for (const auto& [expert, weight] : choice) experts.push_back(expert);
  return experts;
}

using Experts = std::vector<std::int64_t>;

// The numbers of the largest, ascending.
Experts largest(const std::vector<double>& values, std::int64_t count) {
  Experts order;
  for (std::size_t i = 0; i < values.size(); ++i) order.push_back(static_cast<std::int64_t>(i));
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(count));
  std::sort(order.begin(), order.end());
  return order;
}

// transformers' rule of DeepSeek-V3's router, and of its likes.
Choice expected_choice(const ModelConfig& model, const std::vector<float>& outputs,
                       const std::vector<float>& choice_bias) {
  std::vector<double> scores;
  double total = 0;
  for (const float output : outputs) {
    const auto x = static_cast<double>(output);
    scores.push_back(model.has_sigmoid_router ? 1 / (1 + std::exp(-x)) : std::exp(x));
    total += scores.back();
  }
  if (!model.has_sigmoid_router) {
    for (double& score : scores) score /= total;
  }
  std::vector<double> ranks = scores;
  for (std::size_t i = 0; i < choice_bias.size(); ++i) ranks[i] += choice_bias[i];
  const auto size = static_cast<std::size_t>(model.n_experts / model.n_expert_groups);
  std::vector<double> groups;
  for (std::size_t begin = 0; begin < ranks.size(); begin += size) {
    std::vector<double> of_group(ranks.begin() + static_cast<std::ptrdiff_t>(begin),
                                 ranks.begin() + static_cast<std::ptrdiff_t>(begin + size));
    std::sort(of_group.rbegin(), of_group.rend());
    groups.push_back(model.has_paired_groups && size > 1 ? of_group[0] + of_group[1] : of_group[0]);
  }
  const Experts kept = largest(groups, model.n_groups_per_token);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto group = static_cast<std::int64_t>(i / size);
    if (std::find(kept.begin(), kept.end(), group) == kept.end()) ranks[i] = -1e9;
  }
  Choice choice;
  double sum = 0;
  for (const std::int64_t expert : largest(ranks, model.n_experts_per_token)) {
    choice[expert] = scores[static_cast<std::size_t>(expert)];
    sum += choice[expert];
  }
  for (auto& [expert, weight] : choice) {
    weight = weight / (model.has_normalised_expert_weights ? sum : 1) * model.expert_scale;
  }
  return choice;
}

void check_same(const Choice& actual, const Choice& expected) {
  REQUIRE(experts_of(actual) == experts_of(expected));
  for (const auto& [expert, weight] : expected) {
    CHECK(std::abs(actual.at(expert) - weight) <= 1e-5 * std::abs(weight) + 1e-9);
  }
}

TEST_CASE("routers choose by scores, biases and groups", "[cpu][mixture]") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "mixture");
    const std::int64_t num_groups = rng.uniform_int(1, 4);
    const std::int64_t size = rng.uniform_int(2, 5);
    const std::int64_t kept = rng.uniform_int(1, num_groups);
    ModelConfig model = model_with(num_groups * size, rng.uniform_int(1, kept * size));
    model.n_expert_groups = num_groups;
    model.n_groups_per_token = kept;
    model.has_sigmoid_router = rng.uniform_int(0, 1) == 1;
    model.has_paired_groups = rng.uniform_int(0, 1) == 1;
    model.has_normalised_expert_weights = rng.uniform_int(0, 1) == 1;
    model.expert_scale = 0.5 + rng.uniform();
    std::vector<float> outputs;
    std::vector<float> bias;
    for (std::int64_t i = 0; i < model.n_experts; ++i) {
      outputs.push_back(static_cast<float>(4 * rng.uniform() - 2));
      bias.push_back(static_cast<float>(rng.uniform() - 0.5));
    }
    if (rng.uniform_int(0, 1) == 0) bias.clear();
    check_same(chosen(model, outputs, bias), expected_choice(model, outputs, bias));
  }
}

TEST_CASE("a bias of the choice changes who computes, not by how much", "[cpu][mixture]") {
  ModelConfig model = model_with(3, 1);
  model.has_sigmoid_router = true;
  model.has_normalised_expert_weights = false;
  const std::vector<float> outputs = {2, 0, -1};
  CHECK(experts_of(chosen(model, outputs)) == Experts{0});
  const Choice moved = chosen(model, outputs, {0, 0.5f, 0});
  CHECK(experts_of(moved) == Experts{1});
  CHECK(moved.at(1) == 0.5);
}

TEST_CASE("a group ranks by its best, or by its two best", "[cpu][mixture]") {
  ModelConfig model = model_with(4, 2);
  model.n_expert_groups = 2;
  const std::vector<float> outputs = {2, -2, 1, 0.5f};
  CHECK(experts_of(chosen(model, outputs)) == Experts{0, 1});
  model.has_paired_groups = true;
  model.has_sigmoid_router = true;
  CHECK(experts_of(chosen(model, outputs)) == Experts{2, 3});
}

TEST_CASE("equal scores go to the lower numbers", "[cpu][mixture]") {
  CHECK(experts_of(chosen(model_with(5, 2), {0, 1, 1, 1, 0})) == Experts{1, 2});
}

TEST_CASE("SparseMixer weighs each of two experts among outputs close to it", "[cpu][mixture]") {
  ModelConfig model = model_with(5, 2);
  model.has_sparse_mixer = true;
  // Nothing is close to the first; 2.97 is within two hundredths of 3.
  const Choice apart = chosen(model, {1, 3, -2, 2.97f, 5});
  CHECK(experts_of(apart) == Experts{1, 4});
  CHECK(apart.at(4) == 1);
  CHECK(std::abs(apart.at(1) - 1 / (1 + std::exp(-0.03))) < 1e-5);
  // Of negative outputs, the share is of the other's size.
  const Choice negative = chosen(model, {-4, -1, -1.01f, -3, -2});
  CHECK(experts_of(negative) == Experts{1, 2});
  CHECK(std::abs(negative.at(1) - 1 / (1 + std::exp(-0.01))) < 1e-5);
  CHECK(negative.at(2) == 1);
  // The first expert is the lower of two equals, and never the second, too.
  CHECK(experts_of(chosen(model, {2, 2, 2, 0, 0})) == Experts{0, 1});
}

}  // namespace
}  // namespace metronome::TEST_FILE
