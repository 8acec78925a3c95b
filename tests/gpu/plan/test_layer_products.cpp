// SPDX-License-Identifier: Apache-2.0
// The linear layers of a layer as products: by hand for two models, against core's count of
// parameters for all.
#include "core/model/model_catalogue.h"
#include "gpu/plan/layer_products.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

ModelConfig model(const std::string& name) { return find_model(name, {}); }

void check_product(const LayerProduct& product, const std::string& name, std::int64_t n,
                   std::int64_t k, bool has_gates, bool adds_output) {
  INFO(name);
  CHECK(product.name == name);
  CHECK(product.n == n);
  CHECK(product.k == k);
  CHECK(product.has_gates == has_gates);
  CHECK(product.adds_output == adds_output);
  CHECK(product.num_outputs() == (has_gates ? n / 2 : n));
}

TEST_CASE("the products of a layer have the model's shapes", "[bench]") {
  // 24 heads of 128 beside 8 KV heads, in 3072; an MLP of 8192.
  const auto llama = layer_products(model("llama-3.2-3b"));
  check_product(llama[0], "qkv", 5120, 3072, false, false);
  check_product(llama[1], "output", 3072, 3072, false, true);
  check_product(llama[2], "gate_up", 16384, 3072, true, false);
  check_product(llama[3], "down", 3072, 8192, false, true);
  // 4 heads of 256 beside one KV head, in 1152; an MLP of 6912; norms behind the projections.
  const auto gemma = layer_products(model("gemma-3-1b"));
  check_product(gemma[0], "qkv", 1536, 1152, false, false);
  check_product(gemma[1], "output", 1152, 1024, false, false);
  check_product(gemma[2], "gate_up", 13824, 1152, true, false);
  check_product(gemma[3], "down", 1152, 6912, false, false);
  CHECK_FALSE(llama[2].is_gelu);
  CHECK(gemma[2].is_gelu);
}

TEST_CASE("the products of all layers are the linear parameters of a model", "[bench]") {
  std::size_t num_models = 0;
  for (const ModelConfig& known : all_models()) {
    if (known.n_experts > 0 || !known.has_gated_mlp) continue;
    if (!known.linear_attention.is_empty() || !known.given_kinds.empty()) continue;
    INFO(known.name);
    std::int64_t weights = 0;
    for (const LayerProduct& product : layer_products(known)) weights += product.n * product.k;
    CHECK(known.n_layers * weights == known.n_linear_params());
    ++num_models;
  }
  CHECK(num_models > 5);
}

TEST_CASE("what a product moves and computes, by hand", "[bench]") {
  const LayerProduct stored = {.name = "qkv", .n = 10, .k = 3};
  CHECK(product_work(stored, 7).bytes == 2 * (10 * 3 + 7 * 3 + 7 * 10));
  CHECK(product_work(stored, 7).flops == 2 * 10 * 3 * 7);
  const LayerProduct added = {.name = "down", .n = 10, .k = 3, .adds_output = true};
  CHECK(product_work(added, 7).bytes == 2 * (10 * 3 + 7 * 3 + 2 * 7 * 10));
  const LayerProduct gated = {.name = "gate_up", .n = 10, .k = 3, .has_gates = true};
  CHECK(product_work(gated, 7).bytes == 2 * (10 * 3 + 7 * 3 + 7 * 5));
  CHECK(product_work(gated, 7).flops == 2 * 10 * 3 * 7);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
