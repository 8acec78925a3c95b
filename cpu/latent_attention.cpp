// SPDX-License-Identifier: Apache-2.0
#include "cpu/latent_attention.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/base/math.h"
#include "cpu/layer_weights.h"

namespace metronome {
namespace {

// transformers' classes leave these norms at their default, whatever rms_norm_eps says.
constexpr float kLatentNormEps = 1e-6f;

// Tensors in memory, under one name after the other.
class MemoryWeights final : public WeightSource {
 public:
  MemoryWeights(TensorType type, const std::vector<float>& values) : type_(type), values_(values) {}

  TensorType type(const WeightSpec&) const override { return type_; }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    std::copy(values_.begin() + row_begin * spec.cols, values_.begin() + row_end * spec.cols, out);
  }

 private:
  TensorType type_;
  const std::vector<float>& values_;
};

}  // namespace

std::int64_t LatentWeights::num_bytes() const {
  std::int64_t bytes = input.num_bytes() + queries.num_bytes();
  for (const PackedMatrix& matrix : keys) bytes += matrix.num_bytes();
  for (const PackedMatrix& matrix : values) bytes += matrix.num_bytes();
  return bytes;
}

LatentWeights load_latent_weights(const ModelConfig& model, const WeightSource& source,
                                  std::int64_t layer, ThreadPool& pool) {
  const LatentAttention& latent = model.latent_attention;
  const auto spec_of = [&](const char* name) {
    return weight_spec(model, layer, std::string("self_attn.") + name);
  };
  LatentWeights weights;
  const bool has_rank = latent.q_rank > 0;
  weights.input = PackedMatrix(
      source, {spec_of(has_rank ? "q_a_proj" : "q_proj"), spec_of("kv_a_proj_with_mqa")}, pool);
  if (has_rank) {
    weights.query_norm = read_row(source, spec_of("q_a_layernorm"));
    weights.queries = PackedMatrix(source, {spec_of("q_b_proj")}, pool);
  }
  weights.latent_norm = read_row(source, spec_of("kv_a_layernorm"));

  const WeightSpec both = spec_of("kv_b_proj");
  const bool is_bf16 = source.type(both) == TensorType::BFloat16;
  const TensorType type = is_bf16 ? TensorType::BFloat16 : TensorType::Float32;
  const std::int64_t head_rows = latent.nope_dim + latent.value_dim;
  std::vector<float> rows(num_elements(head_rows, latent.kv_rank));
  std::vector<float> part;
  for (std::int64_t head = 0; head < model.n_heads; ++head) {
    source.read(both, head * head_rows, (head + 1) * head_rows, rows.data());
    part.clear();
    for (std::int64_t i = 0; i < latent.kv_rank; ++i) {
      for (std::int64_t k = 0; k < latent.nope_dim; ++k) {
        part.push_back(rows[static_cast<std::size_t>(k * latent.kv_rank + i)]);
      }
    }
    weights.keys.emplace_back(
        MemoryWeights(type, part),
        std::vector<WeightSpec>{{both.name, latent.kv_rank, latent.nope_dim, both.role}}, pool);
    part.assign(rows.begin() + latent.nope_dim * latent.kv_rank, rows.end());
    weights.values.emplace_back(
        MemoryWeights(type, part),
        std::vector<WeightSpec>{{both.name, latent.value_dim, latent.kv_rank, both.role}}, pool);
  }
  return weights;
}

LatentAttentionLayer::LatentAttentionLayer(const ModelConfig& model, ThreadPool& pool)
    : model_(model), pool_(pool), kernels_(kernels()) {}

std::int64_t LatentAttentionLayer::input_dim() const {
  const LatentAttention& latent = model_.latent_attention;
  return (latent.q_rank > 0 ? latent.q_rank : model_.query_dim()) + latent.cached_dim();
}

const float* LatentAttentionLayer::cached(std::int64_t row) const {
  return input_.data() + (row + 1) * input_dim() - model_.latent_attention.cached_dim();
}

void LatentAttentionLayer::prepare(const LatentWeights& weights, const float* x,
                                   std::int64_t num_rows, const RopeTable& rope,
                                   const std::function<std::int32_t(std::int64_t)>& position_of,
                                   float query_scale) {
  const LatentAttention& latent = model_.latent_attention;
  input_.resize(num_elements(num_rows, input_dim()));
  weights.input.multiply(x, model_.hidden_dim, num_rows, input_.data(), input_dim(), pool_);
  if (latent.q_rank > 0) {
    pool_.for_rows(num_rows, [&](std::int64_t row) {
      float* const query = input_.data() + row * input_dim();
      kernels_.rms_norm(query, weights.query_norm.data(), latent.q_rank, kLatentNormEps, query);
    });
    full_.resize(num_elements(num_rows, model_.query_dim()));
    weights.queries.multiply(input_.data(), input_dim(), num_rows, full_.data(), model_.query_dim(),
                             pool_);
  }
  const auto rotate = model_.has_interleaved_rope ? kernels_.rotate_neighbours : kernels_.rotate;
  const std::int64_t stride = latent.q_rank > 0 ? model_.query_dim() : input_dim();
  float* const queries = latent.q_rank > 0 ? full_.data() : input_.data();
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    const std::int32_t position = position_of(row);
    float* const latent_row = input_.data() + (row + 1) * input_dim() - latent.cached_dim();
    kernels_.rms_norm(latent_row, weights.latent_norm.data(), latent.kv_rank, kLatentNormEps,
                      latent_row);
    rotate(latent_row + latent.kv_rank, rope.cos(position), rope.sin(position), latent.rope_dim);
    for (std::int64_t head = 0; head < model_.n_heads; ++head) {
      rotate(queries + row * stride + head * model_.head_dim + latent.nope_dim, rope.cos(position),
             rope.sin(position), latent.rope_dim);
    }
  });
  absorb_queries(weights, num_rows, query_scale);
}

void LatentAttentionLayer::absorb_queries(const LatentWeights& weights, std::int64_t num_rows,
                                          float query_scale) {
  const LatentAttention& latent = model_.latent_attention;
  const std::int64_t stride = latent.q_rank > 0 ? model_.query_dim() : input_dim();
  const float* const queries = latent.q_rank > 0 ? full_.data() : input_.data();
  absorbed_.resize(num_elements(num_rows, width()));
  attended_.resize(num_elements(num_rows, width()));
  for (std::int64_t head = 0; head < model_.n_heads; ++head) {
    weights.keys[static_cast<std::size_t>(head)].multiply(
        queries + head * model_.head_dim, stride, num_rows,
        absorbed_.data() + head * latent.cached_dim(), width(), pool_);
  }
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    float* const absorbed = absorbed_.data() + row * width();
    for (std::int64_t head = 0; head < model_.n_heads; ++head) {
      std::copy_n(queries + row * stride + head * model_.head_dim + latent.nope_dim,
                  latent.rope_dim, absorbed + head * latent.cached_dim() + latent.kv_rank);
    }
    for (std::int64_t k = 0; k < width(); ++k) absorbed[k] *= query_scale;
  });
}

const float* LatentAttentionLayer::project_values(const LatentWeights& weights,
                                                  std::int64_t num_rows) {
  const LatentAttention& latent = model_.latent_attention;
  const std::int64_t value_width = model_.n_heads * latent.value_dim;
  values_.resize(num_elements(num_rows, value_width));
  for (std::int64_t head = 0; head < model_.n_heads; ++head) {
    weights.values[static_cast<std::size_t>(head)].multiply(
        attended_.data() + head * latent.cached_dim(), width(), num_rows,
        values_.data() + head * latent.value_dim, value_width, pool_);
  }
  return values_.data();
}

}  // namespace metronome
