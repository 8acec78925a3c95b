// SPDX-License-Identifier: Apache-2.0
// The linear layers of a transformer as products: their shapes, their kernels, and the least that
// each must move and compute.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/model/model_config.h"
#include "gpu/plan/prefill_gemm_tile.h"
#include "gpu/plan/step_floor.h"

namespace metronome {

// The products of a model: those of a layer in order, then the output head.
enum ProductPlace : std::size_t {
  kQkvProduct,
  kOutputProduct,
  kGateUpProduct,
  kDownProduct,
  kHeadProduct
};
constexpr std::size_t kNumProducts = 5;

// y[t] = x[t] w^T for each token t, in bfloat16. x is [num_tokens, k], w [n, k], y [num_tokens,
// num_outputs()].
struct LayerProduct {
  std::string name;  // "qkv", "output", "gate_up", "down", "head"
  ProductPlace place = kQkvProduct;
  std::int64_t n = 0;             // rows of weights; with gates, half are gates, half ups
  std::int64_t k = 0;             // inputs of a token
  bool has_gates = false;         // an output is the activation of a gate, times its up
  bool is_gelu = false;           // that activation is GELU; else SiLU
  bool adds_output = false;       // y[t] += ..., for the residual stream
  bool has_float_output = false;  // y is float32
  std::int64_t num_outputs() const { return has_gates ? n / 2 : n; }  // of a token
};

std::array<LayerProduct, kNumProducts> model_products(const ModelConfig& model);
// The products of a layer, without the head.
std::array<LayerProduct, kHeadProduct> layer_products(const ModelConfig& model);

// Weights and inputs are read once, outputs are written once. With adds_output, outputs are also
// read. A multiply-add counts as two.
FloorWork product_work(const LayerProduct& product, std::int64_t num_tokens);

// The kernel that computes a product.
struct ProductKernel {
  enum class Kind : std::uint8_t {
    CublasLt,           // GemmMode::Fastest
    CublasLtInvariant,  // GemmMode::Invariant
    DecodeGemm,         // launch_decode_gemm
    PrefillGemm,        // launch_prefill_gemm
  };
  Kind kind = Kind::CublasLt;
  PrefillGemmTile tile = {};  // of PrefillGemm
  bool operator==(const ProductKernel&) const = default;
};

// "cublaslt", "cublaslt invariant", "decode_gemm", or "prefill_gemm".
std::string kernel_name(ProductKernel::Kind kind);
// "128 x 256 x 2": rows, columns, and CTAs of a cluster.
std::string tile_name(const PrefillGemmTile& tile);

}  // namespace metronome
