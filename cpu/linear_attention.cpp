// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"
#include "core/base/math.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxConvWidth = 64;  // ModelConfig::shape_error()
// The l2 norm of queries and keys adds it to the sum of squares.
constexpr float kL2Eps = 1e-6f;

// exp(-rate * softplus(x)).
float decay_of(double rate, double x) {
  const double softplus = std::max(x, 0.0) + log_of(1.0 + exp_of(-std::fabs(x)));
  return static_cast<float>(exp_of(-rate * softplus));
}

}  // namespace

// An l2 norm is an RMS norm with other constants: x / sqrt(sum + e) = x / sqrt(mean + e / n) /
// sqrt(n). Queries are also divided by sqrt(n).
LinearAttentionLayer::LinearAttentionLayer(const ModelConfig& model, ThreadPool& pool)
    : linear_(model.linear_attention),
      pool_(pool),
      kernels_(kernels()),
      norm_eps_(static_cast<float>(model.norm_eps)),
      query_scale_(static_cast<std::size_t>(linear_.key_head_dim),
                   1.0f / static_cast<float>(std::max<std::int64_t>(linear_.key_head_dim, 1))),
      key_scale_(
          static_cast<std::size_t>(linear_.key_head_dim),
          1.0f / std::sqrt(static_cast<float>(std::max<std::int64_t>(linear_.key_head_dim, 1)))) {}

void LinearAttentionLayer::run(const LinearAttentionWeights& weights, std::int64_t state_layer,
                               const ForwardBatch& batch, Tokens tokens, const float* projected,
                               const KvStore& kv, float* out) {
  const std::int64_t num_rows = tokens.end - tokens.begin;
  mixed_.resize(static_cast<std::size_t>(num_rows * linear_.conv_channels()));
  gates_.resize(static_cast<std::size_t>(num_rows * 2 * linear_.n_value_heads));
  find_parts(state_layer, batch, tokens, kv);
  pool_.for_range(num_rows, [&](std::int64_t begin, std::int64_t end) {
    auto part = parts_.begin();
    for (std::int64_t row = begin; row < end; ++row) {
      const auto token = static_cast<std::int32_t>(tokens.begin + row);
      while (part->end <= token) ++part;
      mix_row(weights, *part, token, tokens.begin, projected);
    }
  });
  for (const Part& part : parts_) keep_inputs(part, tokens.begin, projected);

  const auto num_items = static_cast<std::int64_t>(parts_.size()) * linear_.n_value_heads;
  const int num_threads = pool_.num_threads();
  pool_.for_each_part([&](int thread) {
    for (std::int64_t i = thread; i < num_items; i += num_threads) {
      apply_rule(parts_[static_cast<std::size_t>(i / linear_.n_value_heads)], tokens.begin,
                 i % linear_.n_value_heads, out);
    }
  });
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    gate_row(weights, projected + row * projected_dim() + linear_.conv_channels(),
             out + row * linear_.value_dim());
  });
}

// Finds the sequences' states, and moves them to where they are written.
void LinearAttentionLayer::find_parts(std::int64_t state_layer, const ForwardBatch& batch,
                                      Tokens tokens, const KvStore& kv) {
  const std::int64_t num_floats = linear_.delta_floats() + linear_.conv_floats();
  const auto group = static_cast<std::size_t>(
      kv.shape().num_state_groups == 0 ? 0 : state_layer / kv.shape().layers_per_state_group());
  const auto num_groups = static_cast<std::size_t>(batch.num_state_groups);
  METRONOME_CHECK(group < num_groups, "a batch of this model says where its states are");
  parts_.clear();
  for (std::int32_t begin = tokens.begin; begin < tokens.end;) {
    const auto sequence = static_cast<std::size_t>(batch.sequence_of(begin));
    const std::int32_t end = std::min(tokens.end, batch.query_start[sequence + 1]);
    const std::size_t at = sequence * num_groups + group;
    float* const state = kv.state(state_layer, batch.state_targets[at]);
    if (begin == batch.query_start[sequence]) {
      const BlockId source = batch.state_sources[at];
      if (source == kNoBlock) {
        std::fill_n(state, num_floats, 0.0f);
      } else if (source != batch.state_targets[at]) {
        std::copy_n(kv.state(state_layer, source), num_floats, state);
      }
    }
    parts_.push_back({begin, end, state, state + linear_.delta_floats()});
    begin = end;
  }
}

// The convolution of a token, the norms of its queries and keys, its decays and write strengths.
void LinearAttentionLayer::mix_row(const LinearAttentionWeights& weights, const Part& part,
                                   std::int32_t token, std::int32_t first_token,
                                   const float* projected) {
  const std::int64_t num_channels = linear_.conv_channels();
  const std::int64_t width = linear_.conv_width;
  const std::int64_t row = token - first_token;
  std::array<const float*, kMaxConvWidth> inputs{};
  for (std::int64_t j = 0; j < width; ++j) {
    const std::int64_t from = token - (width - 1) + j;
    inputs[static_cast<std::size_t>(j)] =
        from >= part.begin ? projected + (from - first_token) * projected_dim()
                           : part.conv_inputs + (from - part.begin + width - 1) * num_channels;
  }
  float* const mixed = mixed_.data() + row * num_channels;
  kernels_.convolve(inputs.data(), weights.taps.data(), width, num_channels, mixed);

  const std::int64_t dim = linear_.key_head_dim;
  const float eps = kL2Eps / static_cast<float>(dim);
  for (std::int64_t head = 0; head < linear_.n_key_heads; ++head) {
    float* const query = mixed + head * dim;
    float* const key = query + linear_.key_dim();
    kernels_.rms_norm(query, query_scale_.data(), dim, eps, query);
    kernels_.rms_norm(key, key_scale_.data(), dim, eps, key);
  }

  const std::int64_t num_heads = linear_.n_value_heads;
  const float* const strengths =
      projected + row * projected_dim() + num_channels + linear_.value_dim();
  const float* const steps = strengths + num_heads;
  float* const gates = gates_.data() + row * 2 * num_heads;
  for (std::int64_t head = 0; head < num_heads; ++head) {
    const auto h = static_cast<std::size_t>(head);
    gates[head] =
        decay_of(weights.decay_rates[h],
                 static_cast<double>(steps[head]) + static_cast<double>(weights.decay_biases[h]));
    gates[num_heads + head] =
        static_cast<float>(1.0 / (1.0 + exp_of(-static_cast<double>(strengths[head]))));
  }
}

// The convolution's last inputs, for the sequence's next tokens.
void LinearAttentionLayer::keep_inputs(const Part& part, std::int32_t first_token,
                                       const float* projected) {
  const std::int64_t num_channels = linear_.conv_channels();
  const std::int64_t num_kept = linear_.conv_width - 1;
  const std::int64_t num_new = std::min<std::int64_t>(part.end - part.begin, num_kept);
  float* const kept = part.conv_inputs;
  std::copy(kept + num_new * num_channels, kept + num_kept * num_channels, kept);
  for (std::int64_t i = 0; i < num_new; ++i) {
    const std::int64_t token = part.end - num_new + i;
    std::copy_n(projected + (token - first_token) * projected_dim(), num_channels,
                kept + (num_kept - num_new + i) * num_channels);
  }
}

void LinearAttentionLayer::apply_rule(const Part& part, std::int32_t first_token, std::int64_t head,
                                      float* out) {
  const std::int64_t row = part.begin - first_token;
  const std::int64_t key_head = head / (linear_.n_value_heads / linear_.n_key_heads);
  const float* const mixed = mixed_.data() + row * linear_.conv_channels();
  const float* const gates = gates_.data() + row * 2 * linear_.n_value_heads + head;
  kernels_.delta_rule({
      .queries = mixed + key_head * linear_.key_head_dim,
      .keys = mixed + linear_.key_dim() + key_head * linear_.key_head_dim,
      .values = mixed + 2 * linear_.key_dim() + head * linear_.value_head_dim,
      .stride = linear_.conv_channels(),
      .decays = gates,
      .betas = gates + linear_.n_value_heads,
      .gate_stride = 2 * linear_.n_value_heads,
      .outputs = out + row * linear_.value_dim() + head * linear_.value_head_dim,
      .output_stride = linear_.value_dim(),
      .state = part.state + head * linear_.key_head_dim * linear_.value_head_dim,
      .num_tokens = part.end - part.begin,
      .key_dim = linear_.key_head_dim,
      .value_dim = linear_.value_head_dim,
  });
}

// out = norm(out) * silu(gate), head by head.
void LinearAttentionLayer::gate_row(const LinearAttentionWeights& weights, const float* gate,
                                    float* out) const {
  const std::int64_t dim = linear_.value_head_dim;
  for (std::int64_t head = 0; head < linear_.n_value_heads; ++head) {
    kernels_.rms_norm(out + head * dim, weights.norm.data(), dim, norm_eps_, out + head * dim);
  }
  kernels_.silu_multiply(gate, out, linear_.value_dim(), out);
}

}  // namespace metronome
