// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/layer_products.h"

#include <algorithm>

namespace metronome {

std::array<LayerProduct, kHeadProduct> layer_products(const ModelConfig& model) {
  const std::int64_t query_dim = model.n_heads * model.head_dim;
  const std::int64_t kv_dim = model.n_kv_heads * model.head_dim;
  // With post norms, the result is normalised before it is added.
  const bool adds_output = !model.has_post_norms;
  return {
      LayerProduct{
          .name = "qkv", .place = kQkvProduct, .n = query_dim + 2 * kv_dim, .k = model.hidden_dim},
      LayerProduct{.name = "output",
                   .place = kOutputProduct,
                   .n = model.hidden_dim,
                   .k = query_dim,
                   .adds_output = adds_output},
      LayerProduct{.name = "gate_up",
                   .place = kGateUpProduct,
                   .n = 2 * model.ffn_dim,
                   .k = model.hidden_dim,
                   .has_gates = true,
                   .is_gelu = model.activation == Activation::GeluTanh},
      LayerProduct{.name = "down",
                   .place = kDownProduct,
                   .n = model.hidden_dim,
                   .k = model.ffn_dim,
                   .adds_output = adds_output}};
}

std::array<LayerProduct, kNumProducts> model_products(const ModelConfig& model) {
  std::array<LayerProduct, kNumProducts> products;
  const auto of_layer = layer_products(model);
  std::copy(of_layer.begin(), of_layer.end(), products.begin());
  products[kHeadProduct] = {.name = "head",
                            .place = kHeadProduct,
                            .n = model.vocab_size,
                            .k = model.hidden_dim,
                            .has_float_output = true};
  return products;
}

FloorWork product_work(const LayerProduct& product, std::int64_t num_tokens) {
  constexpr double kBytes = 2;  // of a bfloat16
  const auto tokens = static_cast<double>(num_tokens);
  const auto weights = static_cast<double>(product.n * product.k);
  const auto inputs = static_cast<double>(product.k);
  const double outputs = static_cast<double>(product.num_outputs()) * (product.adds_output ? 2 : 1);
  return {.bytes = kBytes * (weights + tokens * (inputs + outputs)), .flops = 2 * weights * tokens};
}

std::string kernel_name(ProductKernel::Kind kind) {
  switch (kind) {
    case ProductKernel::Kind::CublasLt: return "cublaslt";
    case ProductKernel::Kind::CublasLtInvariant: return "cublaslt invariant";
    case ProductKernel::Kind::DecodeGemm: return "decode_gemm";
    case ProductKernel::Kind::PrefillGemm: return "prefill_gemm";
  }
  return {};
}

std::string tile_name(const PrefillGemmTile& tile) {
  return std::to_string(tile.rows) + " x " + std::to_string(tile.columns) + " x " +
         std::to_string(tile.cluster);
}

}  // namespace metronome
