// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/operator_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/real.h"
#include "sim/cost/device_share.h"

namespace metronome {
namespace {

constexpr double kElementwiseLeastUs = 1.9;
constexpr double kElementwiseStartUs = 1;
constexpr double kElementwiseBandwidthShare = 0.88;
constexpr double kKernelsPerLayer = 9;
constexpr double kKernelLaunchUs = 1.3;
constexpr double kPassUs = 200;
constexpr double kSamplerUs = 30;
constexpr double kSamplerBytesPerLogit = 10;

void require_parts(const OperatorTimes& times, const ModelConfig& model) {
  const auto fail = [&](const std::string& missing) {
    throw UnplacedConfigError(
        "cost_model.file", "has no times of " + missing + "; allowed: operators of " + model.name);
  };
  if (model.n_moe_layers() < model.n_layers && times.mlp.empty()) fail("dense MLPs");
  if (model.n_moe_layers() > 0 && times.experts.empty()) fail("experts");
  if (model.shared_expert_ffn_dim > 0 && times.shared_experts.empty()) fail("shared experts");
  if (model.n_linear_layers() > 0 && !times.states) fail("linear attention");
  if (!model.latent_attention.is_empty() && !times.latent) fail("latent attention");
}

// Of so many sequences that are as long as their mean; 0 of none.
double us_of_means(const Grid& times, std::int64_t count, double sum, bool& is_outside) {
  return count > 0 ? times.at(real(count), sum / real(count), is_outside) : 0;
}

}  // namespace

OperatorCostModel::OperatorCostModel(OperatorTimes times, const ModelConfig& model,
                                     const HardwareSpec& hardware, const CostModelConfig& config)
    : KernelCostModel(model, hardware, config),
      times_(std::move(times)),
      link_(make_link(config, hardware, times_.collectives)) {
  const std::int64_t tp = config.tensor_parallel_size;
  require_parts(times_, model);
  const double layers = real(model.n_layers);
  const double moe_layers = real(model.n_moe_layers());
  std::vector<WeightedCurve> terms = {{&times_.projections, real(model.n_attention_layers())}};
  if (times_.states) {
    terms.push_back({&times_.linear_projections, real(model.n_linear_layers())});
  }
  if (model.shared_expert_ffn_dim > 0) terms.push_back({&times_.shared_experts, moe_layers});
  if (moe_layers < layers) terms.push_back({&times_.mlp, layers - moe_layers});
  if (moe_layers > 0) terms.push_back({&times_.experts, moe_layers});
  layers_ = sum_of_measured(terms);
  us_per_byte_ = kMicrosPerSec / (kElementwiseBandwidthShare * times_.memory_bandwidth);
  qkv_elements_ = real((model.n_heads / tp + 2 * device_kv_heads(model, tp)) * model.head_dim);
  if (times_.latent) {
    qkv_elements_ = real(model.n_heads / tp * model.head_dim + model.latent_attention.cached_dim());
  }
  qk_elements_ = real((model.n_heads / tp + device_kv_heads(model, tp)) * model.head_dim);
  exchange_bytes_ = tp > 1 ? qk_norm_exchange_bytes(model) : 0;
  ffn_elements_ = real(model.ffn_dim / tp);
  gate_elements_ = model.has_gated_attention ? real(model.n_heads / tp * model.head_dim) : 0;
  state_elements_ = real(model.linear_attention.value_dim() / tp);
  shared_elements_ = real(model.shared_expert_ffn_dim / tp);
  launch_us_ = layers * kKernelsPerLayer * kKernelLaunchUs + kPassUs;
  if (model.n_window_layers() > 0 && !times_.windowed) cut_window_ = model.sliding_window;
}

double OperatorCostModel::attention_us(const PassSums& sums, bool& is_outside) const {
  const LayerAttention& times = times_.attention;
  double us = us_of_means(times.prompts, sums.num_prompts, real(sums.twice_pairs) / 2, is_outside);
  if (sums.num_prompts > 0) us = std::max(us, least_prompts_us(sums));
  return us + us_of_means(times.decodes, sums.num_decodes, real(sums.context), is_outside);
}

double OperatorCostModel::states_us(const PassSums& sums, bool& is_outside) const {
  double us =
      us_of_means(times_.states->prompts, sums.num_prompts, real(sums.prompt_tokens), is_outside);
  if (sums.num_decodes > 0) us += times_.states->decodes.at(real(sums.num_decoded()), is_outside);
  return us;
}

double OperatorCostModel::windowed_attention_us(const PassSums& sums, bool& is_outside) const {
  if (cut_window_ > 0) {
    PassSums cut = sums;
    cut.context = sums.cut_context;
    cut.prompt_context = sums.cut_prompt_context;
    cut.twice_pairs = sums.twice_cut_pairs;
    return attention_us(cut, is_outside);
  }
  const LayerAttention& times = *times_.windowed;
  return us_of_means(times.prompts, sums.num_prompts, real(sums.prompt_tokens), is_outside) +
         us_of_means(times.decodes, sums.num_decodes, real(sums.context), is_outside);
}

// Prompts read their keys, which takes at least as long as in decodes with the same keys. Latent
// attention reads expanded keys and values.
double OperatorCostModel::least_prompts_us(const PassSums& sums) const {
  if (times_.latent) {
    const LatentAttention& latent = model_.latent_attention;
    const double heads = real(model_.n_heads / config_.tensor_parallel_size);
    return elementwise_bytes_us(real(sums.prompt_context) * heads * kBytesPerActivation *
                                real(model_.head_dim + latent.value_dim));
  }
  const double n = real(sums.num_prompts);
  bool ignored = false;  // a bound from below need not be measured
  return times_.attention.decodes.at(n, real(sums.prompt_context) / n, ignored);
}

// Products between the projections of latent attention and its kernels.
double OperatorCostModel::latent_us(const PassSums& sums, bool& is_outside) const {
  double us = 0;
  if (sums.num_prompts > 0) {
    const double positions = real(sums.prompt_context);
    const double keys = real(model_.n_heads / config_.tensor_parallel_size * model_.head_dim);
    us += times_.latent->expansion.at(positions, is_outside) +
          elementwise_bytes_us(4 * positions * keys);
  }
  if (sums.num_decodes > 0) {
    us += times_.latent->absorption.at(real(sums.num_decoded()), is_outside);
  }
  return us;
}

double OperatorCostModel::elementwise_bytes_us(double bytes) const {
  return std::max(kElementwiseLeastUs, kElementwiseStartUs + bytes * us_per_byte_);
}

double OperatorCostModel::elementwise_us(double tokens) const {
  const auto us = [&](double bytes_per_token) {
    return elementwise_bytes_us(tokens * bytes_per_token);
  };
  const double hidden = real(model_.hidden_dim);
  const bool is_fused =
      times_.fuses_norms &&
      (!times_.max_fused_bytes || tokens * hidden * kBytesPerActivation <= *times_.max_fused_bytes);
  const double num_norms = is_fused ? 0 : real(model_.n_layer_norms());
  const double num_rotary = model_.has_qk_norm ? 2 : 1;
  double all = real(model_.n_layers) * num_norms * us(8 * hidden) + us(4 * hidden) +
               real(model_.n_attention_layers()) * num_rotary * us(4 * qkv_elements_);
  if (gate_elements_ > 0) all += real(model_.n_attention_layers()) * us(6 * gate_elements_);
  if (times_.latent) {
    const LatentAttention& latent = model_.latent_attention;
    const double query_us = latent.q_rank > 0 ? us(4 * real(latent.q_rank)) : 0;
    all += real(model_.n_attention_layers()) * (query_us + us(4 * real(latent.kv_rank)));
  }
  if (state_elements_ > 0) all += real(model_.n_linear_layers()) * us(6 * state_elements_);
  if (shared_elements_ > 0) all += real(model_.n_moe_layers()) * us(6 * shared_elements_);
  // Squares are summed before the norm, as other devices' sums must come between.
  if (exchange_bytes_ > 0) all += real(model_.n_layers) * us(2 * qk_elements_);
  const std::int64_t dense_layers = model_.n_layers - model_.n_moe_layers();
  if (dense_layers > 0)
    all += real(dense_layers) * us(2 * real(model_.n_mlp_matrices()) * ffn_elements_);
  return all;
}

double OperatorCostModel::comm_us(double tokens, double num_rows, bool& is_outside) const {
  if (config_.tensor_parallel_size == 1) return 0;
  const double activations = tokens * real(model_.hidden_dim) * kBytesPerActivation;
  const double logits = num_rows * real(model_.vocab_size) * kBytesPerActivation;
  // Launches of eager passes: sim/cost/eager_passes.h.
  constexpr bool kIsGraph = true;
  double us = real(2 * model_.n_layers + 1) *
                  link_.us(Collective::AllReduce, activations, kIsGraph, is_outside) +
              link_.us(Collective::AllGather, logits, kIsGraph, is_outside);
  if (exchange_bytes_ > 0) {
    us += real(model_.n_layers) *
          link_.us(Collective::AllReduce, tokens * exchange_bytes_, kIsGraph, is_outside);
  }
  return us;
}

PassCost OperatorCostModel::pass_cost(const PassChunks& pass, PassPart part, bool& is_outside) {
  const PassSums sums = sum_pass(pass, part, cut_window_);
  const double tokens = graph_tokens(sums.num_tokens(), sums);
  const double num_rows = real(sums.num_rows);
  constexpr std::int64_t kKnownQueries = 128;  // of a KV head
  // All heads of a device share the latent vector.
  const std::int64_t heads_per_kv = times_.latent ? model_.n_heads / config_.tensor_parallel_size
                                                  : model_.n_heads / model_.n_kv_heads;
  if (sums.max_decode_tokens > 1 && sums.max_decode_tokens * heads_per_kv > kKnownQueries) {
    is_outside = true;
  }
  const double linear_us = layers_.at(tokens, is_outside) +
                           times_.head.at(graph_tokens(sums.num_rows, sums), is_outside) +
                           elementwise_us(tokens);
  double attention = 0;
  const double window_layers = real(model_.n_window_layers());
  const double global_layers = real(model_.n_global_layers());
  if (global_layers > 0) attention += global_layers * attention_us(sums, is_outside);
  if (window_layers > 0) attention += window_layers * windowed_attention_us(sums, is_outside);
  if (times_.latent) attention += real(model_.n_attention_layers()) * latent_us(sums, is_outside);
  if (times_.states) attention += real(model_.n_linear_layers()) * states_us(sums, is_outside);
  PassCost cost;
  cost.linear_ns = linear_us * kNsPerMicro;
  cost.attention_ns = attention * kNsPerMicro;
  cost.comm_ns = comm_us(tokens, num_rows, is_outside) * kNsPerMicro;
  const double logit_bytes = num_rows * real(model_.vocab_size) * kSamplerBytesPerLogit;
  cost.overhead_ns = (launch_us_ + kSamplerUs + logit_bytes * us_per_byte_) * kNsPerMicro;
  return cost;
}

}  // namespace metronome
