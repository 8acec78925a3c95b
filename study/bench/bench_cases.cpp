// SPDX-License-Identifier: Apache-2.0
#include "study/bench/bench_cases.h"

#include <fmt/core.h>

#include "core/base/json.h"
#include "core/base/number_text.h"

namespace metronome {

std::vector<BenchCase> standard_cases() {
  std::vector<BenchCase> cases;
  for (const std::int32_t context : {128, 2048, 8192}) {
    for (const std::int32_t batch : {1, 8, 32, 64, 128}) {
      cases.push_back({.num_decodes = batch, .context = context});
    }
  }
  for (const std::int32_t prefix : {0, 2048, 8192}) {
    for (const std::int32_t chunk : {128, 256, 512, 1024, 2048}) {
      cases.push_back({.chunk_size = chunk, .prefix = prefix});
    }
  }
  for (const std::int32_t chunk : {128, 512, 2048}) {
    cases.push_back({.chunk_size = chunk, .prefix = 16384});
  }
  for (const std::int32_t chunk : {128, 512, 2048}) {
    cases.push_back({.num_decodes = 32, .context = 2048, .chunk_size = chunk, .prefix = 2048});
    cases.push_back({.num_decodes = 128, .context = 1024, .chunk_size = chunk, .prefix = 0});
  }
  return cases;
}

std::string case_text(const BenchCase& what) {
  std::string text;
  if (what.num_decodes > 0) {
    text = fmt::format("{}{} at {}", what.num_decodes,
                       what.num_decodes == 1 ? " decode" : " decodes", grouped_text(what.context));
  }
  if (what.chunk_size == 0) return text;
  return fmt::format("{}{}chunk {} after {}", text, text.empty() ? "" : ", ", what.chunk_size,
                     grouped_text(what.prefix));
}

StepPlan plan_of(const BenchCase& what) {
  StepPlan plan;
  plan.num_decode_tokens = what.num_decodes;
  plan.num_prefill_tokens = what.chunk_size;
  for (std::int32_t i = 0; i < what.num_decodes; ++i) {
    plan.chunks.push_back({.request = static_cast<RequestId>(i),
                           .first_position = what.context - 1,
                           .num_tokens = 1,
                           .kind = ChunkKind::Decode,
                           .samples_token = true});
  }
  if (what.chunk_size > 0) {
    plan.chunks.push_back({.request = static_cast<RequestId>(what.num_decodes),
                           .first_position = what.prefix,
                           .num_tokens = what.chunk_size,
                           .kind = ChunkKind::Prefill,
                           .samples_token = true});
  }
  plan.passes.push_back({0, static_cast<std::int32_t>(plan.chunks.size())});
  return plan;
}

std::string bench_head_text(const ModelConfig& model, const std::string& device,
                            const MachineRates& rates) {
  return "model       " + model.name + "\ndevice      " + device + "\ncopy        " +
         fixed_text(rates.copy_bytes_per_s / 1e12, 2) + " TB/s\nproduct     " +
         fixed_text(rates.matrix_flops_per_s / 1e12, 0) + " TFLOP/s, bfloat16\n\n";
}

std::string shape_json(const ModelConfig& model) {
  const Json shape = {{"n_layers", model.n_layers},
                      {"hidden_dim", model.hidden_dim},
                      {"n_heads", model.n_heads},
                      {"n_kv_heads", model.n_kv_heads},
                      {"head_dim", model.head_dim},
                      {"ffn_dim", model.ffn_dim},
                      {"vocab_size", model.vocab_size},
                      {"has_tied_embeddings", model.has_tied_embeddings},
                      {"has_qk_norm", model.has_qk_norm},
                      {"has_post_norms", model.has_post_norms},
                      {"has_unit_offset_norms", model.has_unit_offset_norms},
                      {"scales_embeddings", model.scales_embeddings},
                      {"sliding_window", model.sliding_window},
                      {"global_layer_interval", model.global_layer_interval},
                      {"is_gelu", model.activation == Activation::GeluTanh},
                      {"norm_eps", model.norm_eps},
                      {"rope_theta", model.rope_theta},
                      {"rope_local_theta", model.rope_local_theta},
                      {"query_pre_attn_scalar", model.query_pre_attn_scalar}};
  return shape.dump();
}

}  // namespace metronome
