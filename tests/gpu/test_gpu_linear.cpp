// SPDX-License-Identifier: Apache-2.0
// Linear layers: which kernel multiplies them in which pass, and that both ways of the residual
// stream, with norms of their own and inside of products, leave the same rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/base/rng.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/engine/linear.h"
#include "gpu/engine/residual_stream.h"
#include "tests/catch.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/gpu/gpu_test.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Kind = ProductKernel::Kind;
using Products = std::array<LayerProduct, kNumProducts>;

constexpr PassKernels kAll = {.fuses_decodes = true, .multiplies_by_wgmma = true};

LinearDemand decodes(std::int32_t num_tokens, PassKernels allowed = kAll) {
  return {.num_tokens = num_tokens,
          .num_rows = num_tokens,
          .mode = GemmMode::Fastest,
          .allowed = allowed,
          .num_processors = 4};
}

LinearDemand prompts(std::int32_t num_tokens, GemmMode mode, PassKernels allowed = kAll) {
  LinearDemand demand = decodes(num_tokens, allowed);
  demand.has_prefill = true;
  demand.mode = mode;
  return demand;
}

LinearKernels all_of(Kind kind) {
  LinearKernels kernels;
  for (LinearKernel& kernel : kernels) kernel.product.kind = kind;
  return kernels;
}

Products llama() { return model_products(small_gpu_model(Family::Llama)); }

}  // namespace

TEST_CASE("passes without kernels of our own go through cuBLASLt", "[gpu_linear]") {
  const PassKernels none = {};
  CHECK(choose_linear_kernels(llama(), decodes(3, none)) == all_of(Kind::CublasLt));
  for (const PassKernels allowed : {none, PassKernels{.fuses_decodes = true}}) {
    CHECK(choose_linear_kernels(llama(), prompts(3, GemmMode::Fastest, allowed)) ==
          all_of(Kind::CublasLt));
    CHECK(choose_linear_kernels(llama(), prompts(3, GemmMode::Invariant, allowed)) ==
          all_of(Kind::CublasLtInvariant));
  }
  LinearDemand invariant = decodes(3, {.fuses_decodes = true});
  invariant.mode = GemmMode::Invariant;
  CHECK(choose_linear_kernels(llama(), invariant) == all_of(Kind::CublasLtInvariant));
  // More decodes than the kernel takes; and wgmma, which is for prompts.
  CHECK(choose_linear_kernels(llama(), decodes(17)) == all_of(Kind::CublasLt));
  CHECK(choose_linear_kernels(llama(), decodes(3, {.multiplies_by_wgmma = true})) ==
        all_of(Kind::CublasLt));
}

TEST_CASE("few decodes have norms and the activation inside of products", "[gpu_linear]") {
  for (const Family family : kFamilies) {
    INFO(name_of(family));
    const Products products = model_products(small_gpu_model(family));
    LinearKernels expected = all_of(Kind::DecodeGemm);
    for (const ProductPlace place : {kQkvProduct, kGateUpProduct, kHeadProduct}) {
      expected[place].fuses_norm = true;
    }
    expected[kGateUpProduct].fuses_activation = true;
    CHECK(choose_linear_kernels(products, decodes(3)) == expected);
  }
}

TEST_CASE("where norms do not fit, products are alone", "[gpu_linear]") {
  // The most inputs of 16 tokens that fit: they leave no room for what a norm adds to them.
  Products products = model_products(small_gpu_model(Family::Gemma3));
  const auto takes = [](std::int64_t k) {
    return decode_gemm_takes({.num_tokens = 16, .k = static_cast<std::int32_t>(k)});
  };
  std::int64_t most = 8;
  while (takes(2 * most)) most *= 2;
  for (std::int64_t step = most / 2; step >= 8; step /= 2) most += takes(most + step) ? step : 0;
  for (const ProductPlace place : {kQkvProduct, kGateUpProduct, kHeadProduct}) {
    products[place].k = most;
  }
  LinearKernels expected = all_of(Kind::DecodeGemm);
  expected[kHeadProduct].product.kind = Kind::CublasLt;
  CHECK(choose_linear_kernels(products, decodes(16)) == expected);
  products[kDownProduct].k = most + 8;
  expected[kDownProduct].product.kind = Kind::CublasLt;
  CHECK(choose_linear_kernels(products, decodes(16)) == expected);

  // More logits than tokens.
  LinearDemand demand = decodes(3);
  demand.num_rows = 4;
  expected = all_of(Kind::DecodeGemm);
  expected[kHeadProduct].product.kind = Kind::CublasLt;
  CHECK(choose_linear_kernels(llama(), demand) == expected);
}

TEST_CASE("layers of prompts have the tile of their shape, the head cuBLASLt", "[gpu_linear]") {
  const Products products = llama();
  for (const auto& [mode, head] : {std::pair(GemmMode::Fastest, Kind::CublasLt),
                                   std::pair(GemmMode::Invariant, Kind::CublasLtInvariant)}) {
    const LinearKernels kernels = choose_linear_kernels(products, prompts(300, mode));
    for (const LayerProduct& product : layer_products(small_gpu_model(Family::Llama))) {
      INFO(product.name);
      const LinearKernel& kernel = kernels[product.place];
      CHECK(kernel.product.kind == Kind::PrefillGemm);
      CHECK(kernel.product.tile ==
            choose_prefill_gemm_tile({300, product.n, product.k, product.has_gates}, 4));
      CHECK_FALSE(kernel.fuses_norm);
      CHECK(kernel.fuses_activation == (product.place == kGateUpProduct));
    }
    CHECK(kernels[kHeadProduct] == LinearKernel{.product = {.kind = head}});
  }
}

namespace {

constexpr std::int32_t kTokens = 3;
constexpr std::int32_t kHidden = 64;
constexpr std::int32_t kFfn = 72;

// As a share of the largest magnitude: sums have other orders, and round a few steps apart.
double largest_difference(const Bf16s& a, const Bf16s& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0;
  double magnitude = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE_FALSE(std::isnan(to_double(a[i]) + to_double(b[i])));
    difference = std::max(difference, std::abs(to_double(a[i]) - to_double(b[i])));
    magnitude = std::max(magnitude, std::abs(to_double(a[i])));
  }
  return difference / magnitude;
}

struct Rows {
  Bf16s residual;   // [kTokens, kHidden], behind the last norm
  Bf16s activated;  // [kTokens, kFfn]
};

// norm, gates and ups, down, and the norm in front of the next layer, by kernels of cuBLASLt or all
// of the decode GEMM.
Rows run_mlp(bool has_post_norms, bool is_fused, Kind down_kind) {
  ModelConfig model = small_gpu_model(has_post_norms ? Family::Gemma3 : Family::Llama);
  model.hidden_dim = kHidden;
  model.ffn_dim = kFfn;
  const Products products = model_products(model);
  Rng rng(5, "gpu_linear");
  const auto drawn = [&](std::int64_t count) { return on_device(random_bf16(rng, count)); };
  const Linear gate_up(products[kGateUpProduct], drawn(2 * kFfn * kHidden));
  const Linear down(products[kDownProduct], drawn(kHidden * kFfn));
  const Linear next(products[kQkvProduct], drawn(products[kQkvProduct].n * kHidden));
  const DeviceArray<bf16> norm = drawn(kHidden);
  const DeviceArray<bf16> post_norm = drawn(kHidden);
  const DeviceArray<bf16> residual = drawn(kGemmRows * kHidden);
  const DeviceArray<bf16> spare = drawn(kGemmRows * kHidden);
  const DeviceArray<bf16> update = drawn(kGemmRows * kHidden);
  const DeviceArray<bf16> gates = drawn(kGemmRows * 2 * kFfn);
  const DeviceArray<bf16> activated = drawn(kGemmRows * kFfn);
  const DeviceArray<bf16> qkv = drawn(kGemmRows * products[kQkvProduct].n);

  GemmStore store(gemm_machine_key(kGemmWorkspaceBytes));
  Gemm gemm(store, kGemmWorkspaceBytes);
  for (const LayerProduct& product : products) gemm.prepare(gemm_shape(product), kGemmRows);
  const PassKernels allowed = {.fuses_decodes = is_fused};
  LinearPass pass = {.resources = {.gemm = &gemm, .gate_up = gates.data(), .num_processors = 3},
                     .kernels = choose_linear_kernels(products, decodes(kTokens, allowed)),
                     .num_tokens = kTokens};
  pass.kernels[kDownProduct].product.kind = down_kind;
  ResidualStream stream = {.rows = residual.data(),
                           .spare = spare.data(),
                           .update = has_post_norms ? update.data() : nullptr,
                           .num_tokens = kTokens,
                           .hidden_dim = kHidden,
                           .eps = 1e-6f,
                           .unit_offset = has_post_norms};
  gate_up.multiply_normed(pass, stream, {.weight = norm.data()}, activated.data());
  down.add_to(pass, stream, activated.data(), has_post_norms ? post_norm.data() : nullptr);
  CHECK((stream.post_weight != nullptr) == has_post_norms);
  next.multiply_normed(pass, stream, {.weight = norm.data()}, qkv.data());
  CHECK(stream.post_weight == nullptr);
  // In place, or from one place to the other where a product has added what waited.
  CHECK((stream.rows == spare.data()) == (is_fused && has_post_norms));
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  const auto rows_of = [](const DeviceArray<bf16>& array, std::int64_t columns) {
    Bf16s rows = array.download();
    rows.resize(static_cast<std::size_t>(kTokens * columns));
    return rows;
  };
  return {rows_of(stream.rows == spare.data() ? spare : residual, kHidden),
          rows_of(activated, kFfn)};
}

}  // namespace

TEST_CASE("the residual stream is the same with norms inside of products", "[gpu_linear]") {
  for (const bool has_post_norms : {false, true}) {
    INFO("post norms: " << has_post_norms);
    const Rows apart = run_mlp(has_post_norms, false, Kind::CublasLt);
    const Rows fused = run_mlp(has_post_norms, true, Kind::DecodeGemm);
    CHECK(largest_difference(apart.activated, fused.activated) < 0.01);
    CHECK(largest_difference(apart.residual, fused.residual) < 0.01);
  }
}

}  // namespace metronome::testing::TEST_FILE
