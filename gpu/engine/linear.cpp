// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/linear.h"

#include <utility>

#include "core/base/error.h"
#include "gpu/plan/prefill_gemm_tile.h"

namespace metronome {
namespace {

using Kind = ProductKernel::Kind;

GemmEpilogue epilogue_of(const LayerProduct& product) {
  if (product.has_gates) return product.is_gelu ? GemmEpilogue::Gelu : GemmEpilogue::Silu;
  if (product.has_float_output) return GemmEpilogue::StoreFloat;
  return product.adds_output ? GemmEpilogue::Add : GemmEpilogue::Store;
}

// Outputs of a token by a kernel with this epilogue.
std::int32_t num_outputs(const LayerProduct& product, GemmEpilogue epilogue) {
  return static_cast<std::int32_t>(has_gates(epilogue) ? product.n / 2 : product.n);
}

bool decode_gemm_takes_norm(const LayerProduct& product, bool has_update, std::int32_t num_tokens) {
  const __nv_bfloat16 any{};  // only whether norms are present matters
  return decode_gemm_takes({.norm_weight = &any,
                            .update = has_update ? &any : nullptr,
                            .num_tokens = num_tokens,
                            .k = static_cast<std::int32_t>(product.k)});
}

// For few decodes. Fuses all norms or none, because both ways use the stream's spare rows.
void choose_decode_gemms(const std::array<LayerProduct, kNumProducts>& products,
                         const LinearDemand& demand, LinearKernels& kernels) {
  // The first layer has no update yet, but uses the same kernels.
  const bool has_update = !products[kOutputProduct].adds_output;
  const bool fuses_norms =
      demand.num_rows <= demand.num_tokens &&
      decode_gemm_takes_norm(products[kQkvProduct], has_update, demand.num_tokens);
  if (fuses_norms) {
    for (const ProductPlace place : {kQkvProduct, kGateUpProduct, kHeadProduct}) {
      kernels[place] = {.product = {.kind = Kind::DecodeGemm},
                        .fuses_norm = true,
                        .fuses_activation = products[place].has_gates};
    }
  }
  for (const ProductPlace place : {kQkvProduct, kOutputProduct, kGateUpProduct, kDownProduct}) {
    if (kernels[place].fuses_norm) continue;
    const auto k = static_cast<std::int32_t>(products[place].k);
    if (!decode_gemm_takes({.num_tokens = demand.num_tokens, .k = k})) continue;
    kernels[place].product.kind = Kind::DecodeGemm;
  }
}

void choose_prefill_gemms(const std::array<LayerProduct, kNumProducts>& products,
                          const LinearDemand& demand, LinearKernels& kernels) {
  for (const ProductPlace place : {kQkvProduct, kOutputProduct, kGateUpProduct, kDownProduct}) {
    const LayerProduct& product = products[place];
    const PrefillGemmTile tile = choose_prefill_gemm_tile({.num_tokens = demand.num_tokens,
                                                           .n = product.n,
                                                           .k = product.k,
                                                           .has_gates = product.has_gates},
                                                          demand.num_processors);
    kernels[place] = {.product = {.kind = Kind::PrefillGemm, .tile = tile},
                      .fuses_activation = product.has_gates};
  }
}

}  // namespace

LinearKernels choose_linear_kernels(const std::array<LayerProduct, kNumProducts>& products,
                                    const LinearDemand& demand) {
  const bool is_invariant = demand.mode == GemmMode::Invariant;
  LinearKernels kernels;
  for (LinearKernel& kernel : kernels) {
    kernel.product.kind = is_invariant ? Kind::CublasLtInvariant : Kind::CublasLt;
  }
  if (demand.has_prefill || is_invariant) {
    if (demand.allowed.multiplies_by_wgmma) choose_prefill_gemms(products, demand, kernels);
  } else if (demand.allowed.fuses_decodes) {
    choose_decode_gemms(products, demand, kernels);
  }
  return kernels;
}

Linear::Linear(const LayerProduct& product, DeviceArray<__nv_bfloat16> weights)
    : product_(product), own_weights_(std::move(weights)), weights_(own_weights_.data()) {}

Linear::Linear(const LayerProduct& product, const __nv_bfloat16* weights)
    : product_(product), weights_(weights) {}

void Linear::multiply(const LinearPass& pass, const __nv_bfloat16* x, void* y) const {
  launch(pass.kernels[product_.place], pass.resources,
         {.x = x, .y = y, .num_tokens = pass.num_tokens}, pass.stream);
}

void Linear::multiply_normed(const LinearPass& pass, ResidualStream& residual,
                             const InputNorm& norm, void* y) const {
  const LinearKernel& kernel = pass.kernels[product_.place];
  LinearRows rows = {.y = y, .num_tokens = residual.num_rows(norm)};
  if (kernel.fuses_norm) {
    DecodeGemmArgs args = decode_args(epilogue_of(product_), rows, pass.resources.num_processors);
    residual.give_inputs(norm, args);
    launch_decode_gemm(args, pass.stream);
    residual.accept_rows();
  } else {
    residual.normalise(norm, pass.stream);
    rows.x = residual.spare;
    launch(kernel, pass.resources, rows, pass.stream);
  }
}

void Linear::add_to(const LinearPass& pass, ResidualStream& residual, const __nv_bfloat16* x,
                    const __nv_bfloat16* post_weight) const {
  METRONOME_CHECK(product_.adds_output == (post_weight == nullptr), "sums are added once");
  multiply(pass, x, residual.sums());
  residual.post_weight = post_weight;
}

void Linear::launch(const LinearKernel& kernel, const LinearResources& resources,
                    const LinearRows& rows, cudaStream_t stream) const {
  METRONOME_CHECK(!kernel.fuses_norm, "a norm inside of a product has its stream");
  if (!product_.has_gates || kernel.fuses_activation) {
    return launch_product(kernel.product, epilogue_of(product_), resources, rows, stream);
  }
  launch_product(kernel.product, GemmEpilogue::Store, resources,
                 {.x = rows.x, .y = resources.gate_up, .num_tokens = rows.num_tokens}, stream);
  launch_gated_activation({.gate_up = resources.gate_up,
                           .out = static_cast<__nv_bfloat16*>(rows.y),
                           .num_tokens = rows.num_tokens,
                           .dim = static_cast<std::int32_t>(product_.num_outputs()),
                           .is_gelu = product_.is_gelu},
                          stream);
}

void Linear::launch_product(const ProductKernel& kernel, GemmEpilogue epilogue,
                            const LinearResources& resources, const LinearRows& rows,
                            cudaStream_t stream) const {
  const auto run_library = [&](GemmMode mode) {
    resources.gemm->run(gemm_shape(product_), mode, rows.num_tokens, weights_, rows.x, rows.y,
                        stream);
  };
  switch (kernel.kind) {
    case Kind::CublasLt: return run_library(GemmMode::Fastest);
    case Kind::CublasLtInvariant: return run_library(GemmMode::Invariant);
    case Kind::DecodeGemm:
      return launch_decode_gemm(decode_args(epilogue, rows, resources.num_processors), stream);
    case Kind::PrefillGemm:
      return launch_prefill_gemm({.w = weights_,
                                  .x = rows.x,
                                  .epilogue = epilogue,
                                  .y = static_cast<__nv_bfloat16*>(rows.y),
                                  .num_tokens = rows.num_tokens,
                                  .n = num_outputs(product_, epilogue),
                                  .k = static_cast<std::int32_t>(product_.k),
                                  .tile = kernel.tile,
                                  .num_ctas = resources.num_processors},
                                 stream);
  }
}

DecodeGemmArgs Linear::decode_args(GemmEpilogue epilogue, const LinearRows& rows,
                                   std::int32_t num_processors) const {
  return {.w = weights_,
          .x = rows.x,
          .epilogue = epilogue,
          .y = rows.y,
          .num_tokens = rows.num_tokens,
          .n = num_outputs(product_, epilogue),
          .k = static_cast<std::int32_t>(product_.k),
          .num_ctas = num_processors};
}

void Linear::warm_up(const Gemm& gemm, const LinearRows& rows, cudaStream_t stream) const {
  for (const GemmMode mode : {GemmMode::Fastest, GemmMode::Invariant}) {
    if (mode == GemmMode::Invariant && !gemm.invariant_fault().empty()) return;
    gemm.run(gemm_shape(product_), mode, rows.num_tokens, weights_, rows.x, rows.y, stream);
  }
}

}  // namespace metronome
