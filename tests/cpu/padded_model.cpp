// SPDX-License-Identifier: Apache-2.0
#include "tests/cpu/padded_model.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/model/attention_mask.h"
#include "core/model/rope.h"

namespace metronome {
namespace {

using Eigen::Index;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Matrix<float, 1, Eigen::Dynamic>;
using RowRef = Eigen::Ref<Row>;
using MatrixMap = Eigen::Map<Matrix>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A linear layer is x * matrix^T.
struct PaddedLayer {
  bool is_window = false;
  Matrix query;             // [n_heads * head_dim, hidden_dim]
  Matrix key, value;        // [n_kv_heads * head_dim, hidden_dim]
  Matrix output;            // [hidden_dim, n_heads * head_dim]
  Matrix gate, up;          // [ffn_dim, hidden_dim]
  Matrix down;              // [hidden_dim, ffn_dim]
  Row input_norm;           // [hidden_dim]
  Row post_attention_norm;  // [hidden_dim], before the MLP, or behind attention (post norms)
  // Empty where the model has none.
  Row pre_mlp_norm, post_mlp_norm;  // [hidden_dim], with post norms
  Row query_norm, key_norm;         // [head_dim], with QK norm
};

Matrix read_matrix(const ModelConfig& model, const WeightSource& source, std::int64_t layer,
                   const std::string& name) {
  const WeightSpec spec = weight_spec(model, layer, name);
  Matrix matrix(spec.rows, spec.cols);
  source.read(spec, 0, spec.rows, matrix.data());
  return matrix;
}

Row read_norm(const ModelConfig& model, const WeightSource& source, std::int64_t layer,
              const std::string& name) {
  const Row weight = read_matrix(model, source, layer, name).row(0);
  return model.has_unit_offset_norms ? Row(weight.array() + 1.0f) : weight;
}

PaddedLayer read_layer(const ModelConfig& model, const WeightSource& source, std::int64_t layer) {
  const auto matrix = [&](const char* name) { return read_matrix(model, source, layer, name); };
  const auto norm = [&](const char* name) { return read_norm(model, source, layer, name); };
  PaddedLayer weights;
  weights.is_window = model.is_window_layer(layer);
  weights.query = matrix("self_attn.q_proj");
  weights.key = matrix("self_attn.k_proj");
  weights.value = matrix("self_attn.v_proj");
  weights.output = matrix("self_attn.o_proj");
  weights.gate = matrix("mlp.gate_proj");
  weights.up = matrix("mlp.up_proj");
  weights.down = matrix("mlp.down_proj");
  weights.input_norm = norm("input_layernorm");
  weights.post_attention_norm = norm("post_attention_layernorm");
  if (model.has_post_norms) {
    weights.pre_mlp_norm = norm("pre_feedforward_layernorm");
    weights.post_mlp_norm = norm("post_feedforward_layernorm");
  }
  if (model.has_qk_norm) {
    weights.query_norm = norm("self_attn.q_norm");
    weights.key_norm = norm("self_attn.k_norm");
  }
  return weights;
}

// x / sqrt(mean(x^2) + eps) * weight
void normalize(RowRef x, const Row& weight, float eps) {
  const float mean_square = x.squaredNorm() / static_cast<float>(x.size());
  x = (x / std::sqrt(mean_square + eps)).cwiseProduct(weight);
}

Matrix normalized(Matrix x, const Row& weight, float eps) {
  for (Index i = 0; i < x.rows(); ++i) normalize(x.row(i), weight, eps);
  return x;
}

float silu(float x) { return x / (1.0f + std::exp(-x)); }

float gelu_tanh(float x) {
  constexpr float kSqrtTwoOverPi = 0.7978845608f;
  return 0.5f * x * (1.0f + std::tanh(kSqrtTwoOverPi * (x + 0.044715f * x * x * x)));
}

// Elements i and i + n/2 of a head are a point in the plane, turned by its angle.
void rotate(RowRef head, const Row& cos, const Row& sin) {
  const Index half = head.size() / 2;
  const Row a = head.head(half);
  const Row b = head.tail(half);
  head.head(half) = a.cwiseProduct(cos) - b.cwiseProduct(sin);
  head.tail(half) = b.cwiseProduct(cos) + a.cwiseProduct(sin);
}

// exp(-infinity) is 0: what is masked weighs nothing.
void softmax(RowRef x) {
  const float largest = x.maxCoeff();
  x = x.unaryExpr([largest](float score) { return std::exp(score - largest); });
  x /= x.sum();
}

// A batch as it enters the model. Row b * max_chunk_len + t of ids, positions and activations is
// token t of sequence b.
struct Inputs {
  Index max_chunk_len = 0;
  Index max_kv_len = 0;
  std::vector<TokenId> ids;             // [batch * max_chunk_len]
  std::vector<std::int32_t> positions;  // [batch * max_chunk_len], 0 where padded
  std::vector<Index> kv_lens;           // [batch]
  std::vector<bool> is_cached;          // [batch * max_kv_len], the padding mask

  Index rows() const { return static_cast<Index>(ids.size()); }
};

Inputs padded(std::span<const PaddedSequence> batch, TokenId padding) {
  Inputs in;
  for (const PaddedSequence& sequence : batch) {
    const auto chunk_len = static_cast<Index>(sequence.chunk.size());
    const Index kv_len = sequence.first_position + chunk_len;
    METRONOME_CHECK(chunk_len > 0 && sequence.first_position >= 0, "a chunk has tokens");
    METRONOME_CHECK(kv_len <= sequence.cache->capacity, "a chunk fits its cache");
    in.kv_lens.push_back(kv_len);
    in.max_chunk_len = std::max(in.max_chunk_len, chunk_len);
    in.max_kv_len = std::max(in.max_kv_len, kv_len);
  }
  for (std::size_t b = 0; b < batch.size(); ++b) {
    const auto chunk_len = static_cast<Index>(batch[b].chunk.size());
    for (Index t = 0; t < in.max_chunk_len; ++t) {
      const bool is_real = t < chunk_len;
      in.ids.push_back(is_real ? batch[b].chunk[static_cast<std::size_t>(t)] : padding);
      in.positions.push_back(is_real ? batch[b].first_position + static_cast<std::int32_t>(t) : 0);
    }
    for (Index p = 0; p < in.max_kv_len; ++p) in.is_cached.push_back(p < in.kv_lens[b]);
  }
  return in;
}

// The masks that layers of one kind, window or global, share in a pass. The padding mask hides from
// a real token only positions that the causal rule hides already: padding lies behind it.
struct PaddedKind {
  std::vector<Matrix> masks;  // [batch] of [max_chunk_len, max_kv_len]: 0 or -infinity
  std::vector<Row> cos, sin;  // [batch * max_chunk_len] of [head_dim / 2]
};

PaddedKind prepare(const ModelConfig& model, const Inputs& in, bool is_window) {
  PaddedKind kind;
  const auto window = is_window ? static_cast<std::int32_t>(model.sliding_window) : kNoWindow;
  for (std::size_t b = 0; b < in.kv_lens.size(); ++b) {
    Matrix mask(in.max_chunk_len, in.max_kv_len);
    for (Index t = 0; t < in.max_chunk_len; ++t) {
      const std::int32_t q_pos = in.positions[b * static_cast<std::size_t>(in.max_chunk_len) +
                                              static_cast<std::size_t>(t)];
      for (Index p = 0; p < in.max_kv_len; ++p) {
        const bool is_cached =
            in.is_cached[b * static_cast<std::size_t>(in.max_kv_len) + static_cast<std::size_t>(p)];
        const bool is_seen = attends(q_pos, static_cast<std::int32_t>(p), window) && is_cached;
        mask(t, p) = is_seen ? 0.0f : -kInfinity;
      }
    }
    kind.masks.push_back(mask);
  }
  const std::vector<float> frequencies = rope_frequencies(model, is_window);
  for (const std::int32_t position : in.positions) {
    Row cos(static_cast<Index>(frequencies.size()));
    Row sin(cos.size());
    for (Index i = 0; i < cos.size(); ++i) {
      const float angle = static_cast<float>(position) * frequencies[static_cast<std::size_t>(i)];
      cos(i) = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin(i) = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
    kind.cos.push_back(cos);
    kind.sin.push_back(sin);
  }
  return kind;
}

// One layer's cache of a batch, seen as the padded batch needs it.
struct CacheView {
  const ModelConfig& model;
  std::span<const PaddedSequence> batch;
  Index layer;
  Index max_kv_len;

  // The slot of one head: [capacity, head_dim].
  MatrixMap slot(std::size_t b, std::vector<float> PaddedCache::*what, Index kv_head) const {
    PaddedCache& cache = *batch[b].cache;
    const Index size = cache.capacity * model.head_dim;
    float* const data = (cache.*what).data() + (layer * model.n_kv_heads + kv_head) * size;
    return MatrixMap(data, cache.capacity, model.head_dim);
  }

  // Writes the real tokens' rows of [max_chunk_len, head_dim] behind what the sequence has, and
  // gathers all it has then, with zeros up to max_kv_len.
  Matrix update(std::size_t b, std::vector<float> PaddedCache::*what, Index kv_head,
                const Matrix& rows) const {
    MatrixMap cached = slot(b, what, kv_head);
    const auto chunk_len = static_cast<Index>(batch[b].chunk.size());
    const Index kv_len = batch[b].first_position + chunk_len;
    cached.middleRows(batch[b].first_position, chunk_len) = rows.topRows(chunk_len);
    Matrix gathered = Matrix::Zero(max_kv_len, model.head_dim);
    gathered.topRows(kv_len) = cached.topRows(kv_len);
    return gathered;
  }
};

// Normalises and turns every head of [batch * max_chunk_len, heads * head_dim].
void place_heads(const ModelConfig& model, const PaddedKind& kind, const Row& norm, Matrix& x) {
  for (Index i = 0; i < x.rows(); ++i) {
    for (Index begin = 0; begin < x.cols(); begin += model.head_dim) {
      RowRef head = x.row(i).segment(begin, model.head_dim);
      if (model.has_qk_norm) normalize(head, norm, static_cast<float>(model.norm_eps));
      const auto row = static_cast<std::size_t>(i);
      rotate(head, kind.cos[row], kind.sin[row]);
    }
  }
}

// softmax(q * k^T / sqrt(scalar) + mask) * v, head by head; then the output projection. From and to
// [batch * max_chunk_len, hidden_dim].
Matrix attention(const ModelConfig& model, const PaddedLayer& weights, const PaddedKind& kind,
                 const CacheView& cache, const Inputs& in, const Matrix& x) {
  Matrix q = x * weights.query.transpose();        // [batch * max_chunk_len, n_heads * head_dim]
  Matrix k = x * weights.key.transpose();          // [batch * max_chunk_len, n_kv_heads * head_dim]
  const Matrix v = x * weights.value.transpose();  // the same shape
  place_heads(model, kind, weights.query_norm, q);
  place_heads(model, kind, weights.key_norm, k);

  const double scalar = model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar
                                                        : static_cast<double>(model.head_dim);
  const auto scale = static_cast<float>(1.0 / std::sqrt(scalar));
  const Index dim = model.head_dim;
  const Index len = in.max_chunk_len;
  const Index heads_per_kv_head = model.n_heads / model.n_kv_heads;
  Matrix out(in.rows(), model.n_heads * dim);  // [batch * max_chunk_len, n_heads * head_dim]
  for (std::size_t b = 0; b < in.kv_lens.size(); ++b) {
    const Index row = static_cast<Index>(b) * len;
    for (Index kv_head = 0; kv_head < model.n_kv_heads; ++kv_head) {
      const Matrix keys =
          cache.update(b, &PaddedCache::keys, kv_head, k.block(row, kv_head * dim, len, dim));
      const Matrix values =
          cache.update(b, &PaddedCache::values, kv_head, v.block(row, kv_head * dim, len, dim));
      for (Index i = 0; i < heads_per_kv_head; ++i) {
        const Index head = kv_head * heads_per_kv_head + i;
        const Matrix queries = q.block(row, head * dim, len, dim);
        Matrix scores = queries * keys.transpose() * scale + kind.masks[b];
        for (Index t = 0; t < len; ++t) softmax(scores.row(t));
        out.block(row, head * dim, len, dim) = scores * values;
      }
    }
  }
  return out * weights.output.transpose();
}

// (activation(gate) * up), down: from and to [batch * max_chunk_len, hidden_dim].
Matrix mlp(const ModelConfig& model, const PaddedLayer& weights, const Matrix& x) {
  Matrix gate = x * weights.gate.transpose();    // [batch * max_chunk_len, ffn_dim]
  const Matrix up = x * weights.up.transpose();  // the same shape
  gate = gate.unaryExpr(model.activation == Activation::Silu ? &silu : &gelu_tanh);
  return gate.cwiseProduct(up) * weights.down.transpose();
}

}  // namespace

struct PaddedModel::Weights {
  ModelConfig model;
  Matrix embedding;  // [vocab_size, hidden_dim]
  Matrix head;       // [vocab_size, hidden_dim]
  Row final_norm;    // [hidden_dim]
  std::vector<PaddedLayer> layers;
};

PaddedCache::PaddedCache(const ModelConfig& model, std::int32_t num_positions)
    : capacity(num_positions) {
  const std::int64_t size = model.n_layers * model.n_kv_heads * num_positions * model.head_dim;
  keys.assign(static_cast<std::size_t>(size), 0.0f);
  values.assign(static_cast<std::size_t>(size), 0.0f);
}

std::span<const float> PaddedLogits::at(std::size_t sequence, std::size_t token) const {
  METRONOME_CHECK(token < static_cast<std::size_t>(max_chunk_len), "logits of a token in the pass");
  const auto vocab = static_cast<std::size_t>(vocab_size);
  const std::size_t row = sequence * static_cast<std::size_t>(max_chunk_len) + token;
  return std::span(values).subspan(row * vocab, vocab);
}

bool PaddedModel::computes(const ModelConfig& model) {
  ModelTraits traits = model;
  if (traits.activation == Activation::GeluTanh) traits.activation = Activation::Silu;
  traits.has_post_norms = traits.has_qk_norm = traits.has_unit_offset_norms = false;
  traits.scales_embeddings = false;
  const RopeScaling::Kind scaling = model.rope_scaling.kind;
  return traits == ModelTraits{} && model.linear_attention.is_empty() &&
         model.latent_attention.is_empty() && model.n_experts == 0 && model.rotary_dim == 0 &&
         model.unrotated_layers.empty() && model.attention_multiplier == 0 &&
         model.attention_softcap == 0 && model.logit_softcap == 0 &&
         model.embedding_multiplier == 1 && model.residual_multiplier == 1 &&
         model.logit_divisor == 1 && model.qkv_clip == 0 && model.query_scale_beta == 0 &&
         scaling != RopeScaling::Kind::Yarn && scaling != RopeScaling::Kind::LongRope;
}

PaddedModel::PaddedModel(const ModelConfig& model, const WeightSource& source)
    : weights_(std::make_unique<Weights>()) {
  METRONOME_CHECK(model.unsupported.empty() && computes(model), "a model that can be computed");
  weights_->model = model;
  weights_->embedding = read_matrix(model, source, -1, "model.embed_tokens");
  weights_->head =
      model.has_tied_embeddings ? weights_->embedding : read_matrix(model, source, -1, "lm_head");
  weights_->final_norm = read_norm(model, source, -1, "model.norm");
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    weights_->layers.push_back(read_layer(model, source, layer));
  }
}

PaddedModel::~PaddedModel() = default;

PaddedLogits PaddedModel::forward(std::span<const PaddedSequence> batch, TokenId padding) const {
  const ModelConfig& model = weights_->model;
  const auto eps = static_cast<float>(model.norm_eps);
  const Inputs in = padded(batch, padding);
  const PaddedKind global = prepare(model, in, false);
  const PaddedKind window = model.n_window_layers() > 0 ? prepare(model, in, true) : PaddedKind{};

  Matrix x(in.rows(), model.hidden_dim);  // [batch * max_chunk_len, hidden_dim]
  for (Index i = 0; i < x.rows(); ++i) {
    x.row(i) = weights_->embedding.row(value(in.ids[static_cast<std::size_t>(i)]));
  }
  if (model.scales_embeddings) {
    x *= static_cast<float>(std::sqrt(static_cast<double>(model.hidden_dim)));
  }
  for (std::size_t l = 0; l < weights_->layers.size(); ++l) {
    const PaddedLayer& layer = weights_->layers[l];
    const PaddedKind& kind = layer.is_window ? window : global;
    const CacheView cache{model, batch, static_cast<Index>(l), in.max_kv_len};
    const Matrix attended =
        attention(model, layer, kind, cache, in, normalized(x, layer.input_norm, eps));
    if (model.has_post_norms) {
      x += normalized(attended, layer.post_attention_norm, eps);
      x += normalized(mlp(model, layer, normalized(x, layer.pre_mlp_norm, eps)),
                      layer.post_mlp_norm, eps);
    } else {
      x += attended;
      x += mlp(model, layer, normalized(x, layer.post_attention_norm, eps));
    }
  }

  PaddedLogits logits{in.max_chunk_len, model.vocab_size, {}};
  logits.values.resize(static_cast<std::size_t>(x.rows() * model.vocab_size));
  MatrixMap(logits.values.data(), x.rows(), model.vocab_size) =
      normalized(x, weights_->final_norm, eps) * weights_->head.transpose();
  return logits;
}

}  // namespace metronome
