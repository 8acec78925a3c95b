// The linear layers of a transformer as products: their shapes, the kernels that compute them, and
// what each must move and compute at least.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/model/model_config.h"
#include "gpu/plan/prefill_gemm_tile.h"
#include "gpu/plan/step_floor.h"

namespace metronome {

// The products of a model: those of a layer in its order, then the output head behind all layers.
enum ProductPlace : std::size_t {
  kQkvProduct,
  kOutputProduct,
  kGateUpProduct,
  kDownProduct,
  kHeadProduct
};
constexpr std::size_t kNumProducts = 5;

// y[t] = x[t] w^T for each token t, in bfloat16: x is [num_tokens, k], w [n, k], y
// [num_tokens, num_outputs()].
struct LayerProduct {
  std::string name;  // "qkv", "output", "gate_up", "down", "head"
  ProductPlace place = kQkvProduct;
  std::int64_t n = 0;             // rows of weights; with gates as many gates as ups
  std::int64_t k = 0;             // inputs of a token
  bool has_gates = false;         // an output is the activation of a gate, times its up
  bool is_gelu = false;           // that activation is; else SiLU
  bool adds_output = false;       // y[t] += ..., as the residual stream has it
  bool has_float_output = false;  // y is float32
  std::int64_t num_outputs() const { return has_gates ? n / 2 : n; }  // of a token
};

std::array<LayerProduct, kNumProducts> model_products(const ModelConfig& model);
// Those of a layer.
std::array<LayerProduct, kHeadProduct> layer_products(const ModelConfig& model);

// Weights and inputs read once, outputs written once, and read before where they are added to; a
// multiply-add counts as two.
FloorWork product_work(const LayerProduct& product, std::int64_t num_tokens);

// What computes a product.
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
// "128 x 256 x 2": rows, columns and CTAs of a cluster.
std::string tile_name(const PrefillGemmTile& tile);

}  // namespace metronome
