// SPDX-License-Identifier: Apache-2.0
#include "cpu/transformer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/model/attention_mask.h"
#include "core/model/mrope.h"
#include "core/model/rope.h"

namespace metronome {
namespace {

// Large enough to read the weights rarely, small enough for the activations to stay in cache.
constexpr std::int32_t kTileTokens = 256;
// Query tokens per item of attention work.
constexpr std::int32_t kAttentionTokens = 16;

void require_supported(const ModelConfig& model) {
  if (!model.unsupported.empty()) throw ConfigError(model.name + ": " + model.unsupported);
}

float query_scale(const ModelConfig& model) {
  if (model.attention_multiplier > 0) return static_cast<float>(model.attention_multiplier);
  const double scalar = model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar
                                                        : static_cast<double>(model.head_dim);
  return static_cast<float>(1.0 / std::sqrt(scalar));
}

// The block table of a sequence for a kind of layer. Window layers of a hybrid model may have a
// separate table.
const BlockId* blocks_of(const ForwardBatch& batch, std::int32_t sequence, bool is_window) {
  const auto s = static_cast<std::size_t>(sequence);
  if (is_window && !batch.window_block_tables.empty()) {
    return batch.window_block_tables.data() + batch.window_table_start[s];
  }
  return batch.block_tables.data() + batch.table_start[s];
}

}  // namespace

Transformer::Transformer(const ModelConfig& model, const WeightSource& weights, ThreadPool& pool,
                         const PollFn& poll)
    : model_((require_supported(model), model)),
      pool_(pool),
      kernels_(kernels()),
      query_scale_(query_scale(model)),
      weights_(load_model_weights(model, weights, pool, poll)),
      global_rope_(rope_frequencies(model, false), rope_magnitude(model, false)),
      window_rope_(rope_frequencies(model, true), rope_magnitude(model, true)),
      linear_attention_(model_, pool),
      latent_attention_(model_, pool),
      arrays_(static_cast<std::size_t>(pool.num_threads())) {
  if (!model.mrope_sections.empty()) {
    mrope_axes_ = mrope_axes(model.mrope_sections, model.num_rotated() / 2);
  }
}

void Transformer::forward(const ForwardBatch& batch, KvStore& kv, std::vector<float>& logits,
                          const PollFn& poll) {
  METRONOME_CHECK(batch.num_tokens() > 0, "an empty batch");
  const std::int32_t num_positions =
      *std::max_element(batch.context_lens.begin(), batch.context_lens.end());
  global_rope_.extend(num_positions);
  window_rope_.extend(num_positions);
  embed(batch);
  if (!batch.image_tokens.empty()) embed_images(batch);
  if (!batch.rope_positions.empty()) mix_angles(batch);
  for (std::int64_t i = 0; i < model_.n_layers; ++i) {
    // A tile's attention needs the keys of earlier tiles in the same layer, and none of later
    // tiles. A state passes from tile to tile.
    for (std::int32_t begin = 0; begin < batch.num_tokens(); begin += kTileTokens) {
      if (poll) poll();
      const Tile tile = {begin, std::min(begin + kTileTokens, batch.num_tokens())};
      run_layer(weights_.layers[static_cast<std::size_t>(i)], batch, tile, kv);
    }
    if (!batch.image_tokens.empty()) add_image_features(batch, i);
  }
  project_logits(batch, logits);
}

void Transformer::embed(const ForwardBatch& batch) {
  residual_.resize(num_elements(batch.num_tokens(), model_.hidden_dim));
  const float scale =
      (model_.scales_embeddings ? std::sqrt(static_cast<float>(model_.hidden_dim)) : 1.0f) *
      static_cast<float>(model_.embedding_multiplier);
  pool_.for_rows(batch.num_tokens(), [&](std::int64_t token) {
    const TokenId id = batch.token_ids[static_cast<std::size_t>(token)];
    METRONOME_CHECK(value(id) >= 0 && value(id) < model_.vocab_size, "a token id out of range");
    float* row = residual(token);
    weights_.embedding.row(value(id), row);
    for (std::int64_t k = 0; k < model_.hidden_dim; ++k) row[k] *= scale;
    if (!model_.has_learned_positions) return;
    std::vector<float> place(static_cast<std::size_t>(model_.hidden_dim));
    weights_.positions.row(batch.positions[static_cast<std::size_t>(token)], place.data());
    kernels_.add(row, place.data(), model_.hidden_dim);
  });
}

// Replaces the embeddings of tokens that stand for images.
void Transformer::embed_images(const ForwardBatch& batch) {
  const std::int64_t hidden_dim = model_.hidden_dim;
  const std::int64_t stride = model_.vision.features_per_token() * hidden_dim;
  for (const ImageTokens& image : batch.image_tokens) {
    METRONOME_CHECK(stride > 0 && image.features != nullptr, "an image was encoded");
    for (std::int64_t i = 0; i < image.num_tokens; ++i) {
      std::copy_n(image.features + i * stride, hidden_dim, residual(image.first_token + i));
    }
  }
}

// Qwen3-VL's deepstack: features of the vision tower's own layers join behind the first layers.
void Transformer::add_image_features(const ForwardBatch& batch, std::int64_t layer) {
  const std::int64_t per_token = model_.vision.features_per_token();
  const std::int64_t hidden_dim = model_.hidden_dim;
  if (layer + 1 >= per_token) return;
  for (const ImageTokens& image : batch.image_tokens) {
    for (std::int64_t i = 0; i < image.num_tokens; ++i) {
      kernels_.add(residual(image.first_token + i),
                   image.features + (i * per_token + layer + 1) * hidden_dim, hidden_dim);
    }
  }
}

// Each pair's cosine and sine at the position of its axis.
void Transformer::mix_angles(const ForwardBatch& batch) {
  const auto num_pairs = static_cast<std::int64_t>(mrope_axes_.size());
  METRONOME_CHECK(num_pairs > 0, "only models with M-RoPE have positions of their own");
  mixed_angles_.resize(num_elements(batch.num_tokens(), 2 * num_pairs));
  pool_.for_rows(batch.num_tokens(), [&](std::int64_t token) {
    const RopePosition& position = batch.rope_positions[static_cast<std::size_t>(token)];
    const std::int32_t axes[] = {position.time, position.height, position.width};
    float* const out = mixed_angles_.data() + token * 2 * num_pairs;
    for (std::int64_t i = 0; i < num_pairs; ++i) {
      const std::int32_t at = axes[mrope_axes_[static_cast<std::size_t>(i)]];
      out[i] = global_rope_.cos(at)[i];
      out[num_pairs + i] = global_rope_.sin(at)[i];
    }
  });
}

// Adds o(attention(norm(stream))) to the stream, then mlp(norm(stream)). A parallel MLP takes the
// stream as attention found it.
void Transformer::run_layer(const LayerWeights& layer, const ForwardBatch& batch, Tile tile,
                            KvStore& kv) {
  const std::int64_t num_rows = tile.num_tokens();
  make_room(num_rows);
  if (!layer.linear.is_empty()) {
    run_linear_attention(layer, batch, tile, kv);
  } else if (!layer.latent.is_empty()) {
    run_latent_attention(layer, batch, tile, kv);
  } else {
    run_attention(layer, batch, tile, kv);
  }
  if (!model_.has_parallel_mlp) add_to_residual(layer.attention_post_norm, tile);
  // hidden_ has what attention read.
  const float* const input =
      model_.has_mlp_norm() ? normalise(layer.mlp_norm, tile) : hidden_.data();
  if (model_.has_parallel_mlp) add_to_residual(layer.attention_post_norm, tile);
  if (layer.has_experts()) {
    run_experts(layer, input, num_rows, added_);
  } else {
    run_mlp(layer.mlps.front(), input, num_rows, added_);
  }
  add_to_residual(layer.mlp_post_norm, tile);
}

void Transformer::run_attention(const LayerWeights& layer, const ForwardBatch& batch, Tile tile,
                                KvStore& kv) {
  const std::int64_t num_rows = tile.num_tokens();
  qkv_.resize(num_elements(num_rows, qkv_dim()));
  attended_.resize(num_elements(num_rows, model_.query_dim()));
  layer.qkv.multiply(normalise(layer.attention_norm, tile), model_.hidden_dim, num_rows, qkv_,
                     pool_);
  place_heads(layer, batch, tile, kv);
  attend(layer, batch, tile, kv);
  if (model_.has_gated_attention) gate_attended(num_rows);
  layer.attention_output.multiply(attended_.data(), model_.query_dim(), num_rows, added_, pool_);
}

void Transformer::run_linear_attention(const LayerWeights& layer, const ForwardBatch& batch,
                                       Tile tile, KvStore& kv) {
  const std::int64_t num_rows = tile.num_tokens();
  const std::int64_t width = model_.linear_attention.value_dim();
  attended_.resize(num_elements(num_rows, width));
  layer.linear.input.multiply(normalise(layer.attention_norm, tile), model_.hidden_dim, num_rows,
                              qkv_, pool_);
  linear_attention_.run(layer.linear, layer.number, batch, {tile.begin, tile.end}, qkv_.data(), kv,
                        attended_.data());
  layer.linear.output.multiply(attended_.data(), width, num_rows, added_, pool_);
}

// Keys and values of a token are the same vector, the latent and the rotated key: the latter adds
// to what a head attends to, where nothing reads it.
void Transformer::run_latent_attention(const LayerWeights& layer, const ForwardBatch& batch,
                                       Tile tile, KvStore& kv) {
  const std::int64_t num_rows = tile.num_tokens();
  const std::int32_t block_size = kv.shape().block_size;
  const auto position_of = [&](std::int64_t row) {
    return batch.positions[static_cast<std::size_t>(tile.begin + row)];
  };
  latent_attention_.prepare(layer.latent, normalise(layer.attention_norm, tile), num_rows,
                            global_rope_, position_of, query_scale_);
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    const auto token = static_cast<std::int32_t>(tile.begin + row);
    const std::int32_t position = position_of(row);
    const BlockId* blocks = blocks_of(batch, batch.sequence_of(token), layer.is_window);
    const float* const cached = latent_attention_.cached(row);
    kv.write(layer.number, blocks[position / block_size], position % block_size, 0, cached, cached);
  });
  attend(layer, batch, tile, kv);
  layer.attention_output.multiply(latent_attention_.project_values(layer.latent, num_rows),
                                  model_.n_heads * model_.latent_attention.value_dim, num_rows,
                                  added_, pool_);
}

Transformer::HeadRows Transformer::head_rows(const LayerWeights& layer) {
  if (layer.latent.is_empty()) {
    return {qkv_.data(),        qkv_dim(),       attended_.data(),
            model_.query_dim(), model_.head_dim, model_.n_kv_heads};
  }
  const std::int64_t head_dim = model_.latent_attention.cached_dim();
  const std::int64_t width = model_.n_heads * head_dim;
  return {latent_attention_.queries(0), width, latent_attention_.attended(0), width, head_dim, 1};
}

// Multiplies the outputs of all heads by the sigmoids of their gates.
void Transformer::gate_attended(std::int64_t num_rows) {
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    float* const attended = attended_.data() + row * model_.query_dim();
    const float* const gate = qkv_.data() + (row + 1) * qkv_dim() - model_.query_dim();
    kernels_.sigmoid_multiply(gate, attended, model_.query_dim(), attended);
  });
}

void Transformer::make_room(std::int64_t num_rows) {
  hidden_.resize(num_elements(num_rows, model_.hidden_dim));
  added_.resize(num_elements(num_rows, model_.hidden_dim));
}

void Transformer::apply_norm(const NormWeights& norm, const float* x, std::int64_t n, float* out,
                             std::int64_t first) const {
  const auto eps = static_cast<float>(model_.norm_eps);
  const float* const scale = norm.scale.data() + first;
  if (model_.has_layer_norms) {
    const float* const bias = norm.bias.empty() ? nullptr : norm.bias.data() + first;
    kernels_.layer_norm(x, scale, bias, n, eps, out);
  } else {
    kernels_.rms_norm(x, scale, n, eps, out);
  }
}

// The tile's normalised residuals, [tile_tokens, hidden_dim]; the residuals without that norm.
const float* Transformer::normalise(const NormWeights& norm, Tile tile) {
  if (norm.scale.empty()) return residual(tile.begin);
  pool_.for_rows(tile.num_tokens(), [&](std::int64_t row) {
    apply_norm(norm, residual(tile.begin + row), model_.hidden_dim,
               hidden_.data() + row * model_.hidden_dim);
  });
  return hidden_.data();
}

// Normalises a token's queries, or its keys.
void Transformer::normalise_heads(const NormWeights& norm, std::int64_t num_heads,
                                  float* heads) const {
  if (norm.scale.empty()) return;
  const std::int64_t head_dim = model_.head_dim;
  if (model_.has_whole_qk_norm) return apply_norm(norm, heads, num_heads * head_dim, heads);
  for (std::int64_t head = 0; head < num_heads; ++head) {
    const std::int64_t first = head * head_dim;
    apply_norm(norm, heads + first, head_dim, heads + first,
               model_.has_qk_norm_per_head ? first : 0);
  }
}

// Normalises and rotates a token's queries and keys, which follow them.
void Transformer::turn_heads(const LayerWeights& layer, const float* cos, const float* sin,
                             float* query) const {
  float* const key = query + model_.query_dim();
  const auto normalise_both = [&] {
    normalise_heads(layer.query_norm, model_.n_heads, query);
    normalise_heads(layer.key_norm, model_.n_kv_heads, key);
  };
  if (!model_.has_late_qk_norm) normalise_both();
  if (layer.is_rotated) {
    const auto rotate = model_.has_interleaved_rope ? kernels_.rotate_neighbours : kernels_.rotate;
    for (std::int64_t head = 0; head < model_.n_heads + model_.n_kv_heads; ++head) {
      rotate(query + head * model_.head_dim, cos, sin, model_.num_rotated());
    }
  }
  if (model_.has_late_qk_norm) normalise_both();
}

// Normalises and rotates queries and keys; writes keys and values into the cache.
void Transformer::place_heads(const LayerWeights& layer, const ForwardBatch& batch, Tile tile,
                              KvStore& kv) {
  const std::int64_t head_dim = model_.head_dim;
  const RopeTable& rope = layer.is_window ? window_rope_ : global_rope_;
  const std::int32_t block_size = kv.shape().block_size;
  const auto bound = static_cast<float>(model_.qkv_clip);
  pool_.for_rows(tile.num_tokens(), [&](std::int64_t row) {
    const auto token = static_cast<std::int32_t>(tile.begin + row);
    const std::int32_t position = batch.positions[static_cast<std::size_t>(token)];
    float* const query = qkv_.data() + row * qkv_dim();
    float* const key = query + model_.query_dim();
    const float* const value = key + model_.kv_dim();
    if (bound > 0) kernels_.clip(query, bound, model_.query_dim() + 2 * model_.kv_dim());
    const float* cos = rope.cos(position);
    const float* sin = rope.sin(position);
    if (!batch.rope_positions.empty()) {
      cos = mixed_angles_.data() + token * model_.num_rotated();
      sin = cos + model_.num_rotated() / 2;
    }
    turn_heads(layer, cos, sin, query);
    const float scale = query_scale_ * query_scale_at(model_, position);
    for (std::int64_t k = 0; k < model_.query_dim(); ++k) query[k] *= scale;
    const BlockId* blocks = blocks_of(batch, batch.sequence_of(token), layer.is_window);
    for (std::int64_t head = 0; head < model_.n_kv_heads; ++head) {
      kv.write(layer.number, blocks[position / block_size], position % block_size, head,
               key + head * head_dim, value + head * head_dim);
    }
  });
}

void Transformer::attend(const LayerWeights& layer, const ForwardBatch& batch, Tile tile,
                         const KvStore& kv) {
  const HeadRows heads = head_rows(layer);
  const auto group = static_cast<std::int32_t>(model_.n_heads / heads.n_kv_heads);
  items_.clear();
  for (std::int32_t begin = tile.begin; begin < tile.end;) {
    const std::int32_t sequence = batch.sequence_of(begin);
    const std::int32_t end =
        std::min({tile.end, batch.query_start[static_cast<std::size_t>(sequence) + 1],
                  begin + kAttentionTokens});
    for (std::int32_t head = 0; head < heads.n_kv_heads; ++head) {
      items_.push_back({sequence, head, head * group, (head + 1) * group, begin, end});
    }
    begin = end;
  }
  const int num_parts = pool_.num_threads();
  split_items(num_parts);
  const auto num_items = static_cast<std::int64_t>(items_.size());
  pool_.for_each_part([&](int part) {
    for (std::int64_t i = part; i < num_items; i += num_parts) {
      attend_item(layer, heads, batch, tile, kv, items_[static_cast<std::size_t>(i)],
                  arrays_[static_cast<std::size_t>(part)]);
    }
  });
}

// Gives every thread an item where a decode has fewer KV heads than there are threads. Rows are
// independent of each other, so the split changes no bit.
void Transformer::split_items(int num_threads) {
  const auto num_items = static_cast<std::int32_t>(items_.size());
  if (num_items == 0 || num_items >= num_threads) return;
  const auto group = items_.front().end_head - items_.front().first_head;
  const std::int32_t num_parts = std::min(group, (num_threads + num_items - 1) / num_items);
  for (std::int32_t i = 0; i < num_items; ++i) {
    AttentionItem item = items_[static_cast<std::size_t>(i)];
    const std::int32_t first_head = item.first_head;
    for (std::int32_t part = 1; part < num_parts; ++part) {
      item.first_head = first_head + part * group / num_parts;
      item.end_head = first_head + (part + 1) * group / num_parts;
      items_.push_back(item);
    }
    items_[static_cast<std::size_t>(i)].end_head = first_head + group / num_parts;
  }
}

void Transformer::attend_item(const LayerWeights& layer, const HeadRows& heads,
                              const ForwardBatch& batch, Tile tile, const KvStore& kv,
                              const AttentionItem& item, AttentionArrays& arrays) {
  arrays.clear();
  for (std::int32_t token = item.begin; token < item.end; ++token) {
    const std::int64_t row = token - tile.begin;
    for (std::int64_t head = item.first_head; head < item.end_head; ++head) {
      const std::int64_t first = head * heads.head_dim;
      arrays.queries.push_back(heads.queries + row * heads.query_stride + first);
      arrays.outputs.push_back(heads.outputs + row * heads.output_stride + first);
      arrays.positions.push_back(batch.positions[static_cast<std::size_t>(token)]);
      if (!layer.sinks.empty()) {
        arrays.sinks.push_back(layer.sinks[static_cast<std::size_t>(head)]);
      }
    }
  }

  const std::int32_t window =
      layer.is_window ? static_cast<std::int32_t>(model_.sliding_window) : kNoWindow;
  const std::int32_t block_size = kv.shape().block_size;
  const BlockId* blocks = blocks_of(batch, item.sequence, layer.is_window);
  const std::int32_t end = arrays.positions.back() + 1;
  std::int32_t position = first_attended(arrays.positions.front(), window);
  position -= position % block_size % static_cast<std::int32_t>(kLanes);
  while (position < end) {
    const std::int32_t offset = position % block_size;
    const std::int32_t kv_tile = offset / static_cast<std::int32_t>(kLanes);
    const BlockId block = blocks[position / block_size];
    arrays.key_tiles.push_back(kv.key_tile(layer.number, block, item.head, kv_tile));
    arrays.value_tiles.push_back(kv.value_tile(layer.number, block, item.head, kv_tile));
    arrays.tile_positions.push_back(position);
    position += std::min(static_cast<std::int32_t>(kLanes), block_size - offset);
  }
  arrays.tile_positions.push_back(std::min(position, end));
  arrays.attend(kernels_, heads.head_dim, window, static_cast<float>(model_.attention_softcap));
}

// out = down(activation(input(x))). x is [num_rows, hidden_dim].
void Transformer::run_mlp(const MlpWeights& mlp, const float* x, std::int64_t num_rows,
                          std::vector<float>& out) {
  mlp.input.multiply(x, model_.hidden_dim, num_rows, gate_up_, pool_);
  activate(mlp, num_rows);
  mlp.down.multiply(gate_up_.data(), mlp.input.matrix.num_outputs(), num_rows, out, pool_);
}

// The sum of each token's experts by their weights, expert by expert in the order of their numbers.
// So a token's bits do not depend on the other tokens.
void Transformer::run_experts(const LayerWeights& layer, const float* x, std::int64_t num_rows,
                              std::vector<float>& out) {
  const std::int64_t width = model_.hidden_dim;
  mixture_.choose(model_, layer.router, x, num_rows, pool_);
  out.assign(num_elements(num_rows, width), 0.0f);
  for (std::int64_t e = 0; e < model_.n_experts; ++e) {
    const std::vector<ExpertRow>& rows = mixture_.rows_of(e);
    if (rows.empty()) continue;
    const auto num_expert_rows = static_cast<std::int64_t>(rows.size());
    run_mlp(layer.mlps[static_cast<std::size_t>(e)], mixture_.gather(e, x, width), num_expert_rows,
            mixture_.output());
    pool_.for_rows(num_expert_rows, [&](std::int64_t i) {
      const ExpertRow& row = rows[static_cast<std::size_t>(i)];
      float* const computed = mixture_.output().data() + i * width;
      for (std::int64_t k = 0; k < width; ++k) computed[k] *= row.weight;
      kernels_.add(out.data() + row.row * width, computed, width);
    });
  }
  if (layer.has_shared_expert()) add_shared_expert(layer, x, num_rows, out);
}

// The expert that sees all tokens, times the sigmoid of its gate if it has one.
void Transformer::add_shared_expert(const LayerWeights& layer, const float* x,
                                    std::int64_t num_rows, std::vector<float>& out) {
  const std::int64_t width = model_.hidden_dim;
  const bool is_gated = layer.shared_expert_gate.num_outputs() > 0;
  std::vector<float>& computed = mixture_.output();
  run_mlp(layer.shared_expert, x, num_rows, computed);
  if (is_gated) {
    shared_gates_.resize(static_cast<std::size_t>(num_rows));
    layer.shared_expert_gate.multiply(x, width, num_rows, shared_gates_.data(), 1, pool_);
  }
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    float* const of_row = computed.data() + row * width;
    if (is_gated) {
      const float one = 1.0f;
      float share = 0;
      kernels_.sigmoid_multiply(shared_gates_.data() + row, &one, 1, &share);
      for (std::int64_t k = 0; k < width; ++k) of_row[k] *= share;
    }
    kernels_.add(out.data() + row * width, of_row, width);
  });
}

// Replaces the first half of each row by activation(gates) * ups, or a row without gates by
// activation(ups).
void Transformer::activate(const MlpWeights& mlp, std::int64_t num_rows) {
  const auto activate_row = [this] {
    switch (model_.activation) {
      case Activation::GeluTanh: return kernels_.gelu_tanh_multiply;
      case Activation::Gelu: return kernels_.gelu_multiply;
      case Activation::ClampedSwiglu: return kernels_.clamped_swiglu;
      case Activation::SquaredRelu: return kernels_.squared_relu_multiply;
      default: return kernels_.silu_multiply;
    }
  }();
  const std::int64_t width = mlp.down.matrix.num_inputs();
  const std::int64_t stride = model_.has_gated_mlp ? 2 * width : width;
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    float* const gates = gate_up_.data() + row * stride;
    if (model_.activation == Activation::Xielu) return kernels_.xielu(gates, mlp.xielu, width);
    activate_row(gates, model_.has_gated_mlp ? gates + width : nullptr, width, gates);
  });
}

// residual += what attention or MLP computed, after the post-norm if the model has one.
void Transformer::add_to_residual(const NormWeights& post_norm, Tile tile) {
  const auto multiplier = static_cast<float>(model_.residual_multiplier);
  pool_.for_rows(tile.num_tokens(), [&](std::int64_t row) {
    float* const added = added_.data() + row * model_.hidden_dim;
    if (!post_norm.scale.empty()) apply_norm(post_norm, added, model_.hidden_dim, added);
    if (multiplier != 1) {
      for (std::int64_t k = 0; k < model_.hidden_dim; ++k) added[k] *= multiplier;
    }
    kernels_.add(residual(tile.begin + row), added, model_.hidden_dim);
  });
}

void Transformer::project_logits(const ForwardBatch& batch, std::vector<float>& logits) {
  const auto num_rows = static_cast<std::int64_t>(batch.logit_tokens.size());
  logits.resize(num_elements(num_rows, model_.vocab_size));
  if (num_rows == 0) return;
  hidden_.resize(num_elements(num_rows, model_.hidden_dim));
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    const std::int32_t token = batch.logit_tokens[static_cast<std::size_t>(row)];
    apply_norm(weights_.final_norm, residual(token), model_.hidden_dim,
               hidden_.data() + row * model_.hidden_dim);
  });
  const PackedMatrix& head = model_.has_tied_embeddings ? weights_.embedding : weights_.head;
  head.multiply(hidden_.data(), model_.hidden_dim, num_rows, logits.data(), model_.vocab_size,
                pool_);
  const auto divisor = static_cast<float>(model_.logit_divisor);
  const auto cap = static_cast<float>(model_.logit_softcap);
  const std::vector<float>& bias = weights_.head_bias;
  if (divisor == 1 && cap == 0 && bias.empty()) return;
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    float* const of_row = logits.data() + row * model_.vocab_size;
    if (!bias.empty()) kernels_.add(of_row, bias.data(), model_.vocab_size);
    for (std::int64_t k = 0; divisor != 1 && k < model_.vocab_size; ++k) of_row[k] /= divisor;
    if (cap > 0) kernels_.softcap(of_row, cap, model_.vocab_size);
  });
}

}  // namespace metronome
