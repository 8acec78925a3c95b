#include "cpu/transformer.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/model/attention_mask.h"
#include "core/model/rope.h"

namespace metronome {
namespace {

// Large enough to read the weights rarely, small enough for the activations to stay in cache.
constexpr std::int32_t kTileTokens = 256;
// Query tokens per item of attention work.
constexpr std::int32_t kAttentionTokens = 16;
// With fewer rows, a loop does not pay for waking the other threads.
constexpr std::int64_t kFewRows = 4;

void require_supported(const ModelConfig& model) {
  if (!model.unsupported.empty()) throw ConfigError(model.name + ": " + model.unsupported);
}

std::size_t count(std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); }

}  // namespace

Transformer::Transformer(const ModelConfig& model, const WeightSource& weights, ThreadPool& pool,
                         const PollFn& poll)
    : model_((require_supported(model), model)),
      pool_(pool),
      kernels_(kernels()),
      global_rope_(rope_frequencies(model, false)),
      window_rope_(rope_frequencies(model, true)),
      scratch_(static_cast<std::size_t>(pool.num_threads())) {
  const double scalar = model.query_pre_attn_scalar > 0 ? model.query_pre_attn_scalar
                                                        : static_cast<double>(model.head_dim);
  query_scale_ = static_cast<float>(1.0 / std::sqrt(scalar));
  embedding_ = PackedMatrix(weights, {weight_spec(model, -1, "model.embed_tokens")}, pool);
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    if (poll) poll();
    layers_.push_back(load_layer(weights, i));
  }
  final_norm_ = load_norm(weights, -1, "model.norm");
  if (!model.has_tied_embeddings) {
    head_ = PackedMatrix(weights, {weight_spec(model, -1, "lm_head")}, pool);
  }
}

std::vector<float> Transformer::load_norm(const WeightSource& weights, std::int64_t layer,
                                          const std::string& name) const {
  const WeightSpec spec = weight_spec(model_, layer, name);
  std::vector<float> norm(static_cast<std::size_t>(spec.cols));
  weights.read(spec, 0, 1, norm.data());
  if (model_.has_unit_offset_norms) {
    for (float& weight : norm) weight += 1.0f;
  }
  return norm;
}

Transformer::Layer Transformer::load_layer(const WeightSource& weights, std::int64_t i) {
  const auto matrix = [&](std::initializer_list<const char*> names) {
    std::vector<WeightSpec> specs;
    for (const char* name : names) specs.push_back(weight_spec(model_, i, name));
    return PackedMatrix(weights, specs, pool_);
  };
  const auto norm = [&](const char* name) { return load_norm(weights, i, name); };
  Layer layer;
  layer.is_window = model_.is_window_layer(i);
  layer.qkv = matrix({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
  layer.attention_output = matrix({"self_attn.o_proj"});
  layer.gate_up = matrix({"mlp.gate_proj", "mlp.up_proj"});
  layer.down = matrix({"mlp.down_proj"});
  layer.attention_norm = norm("input_layernorm");
  if (model_.has_qk_norm) {
    layer.query_norm = norm("self_attn.q_norm");
    layer.key_norm = norm("self_attn.k_norm");
  }
  // In Llama this name is the norm before the MLP. In models with four norms it is the norm after
  // attention.
  if (model_.has_post_norms) {
    layer.attention_post_norm = norm("post_attention_layernorm");
    layer.mlp_norm = norm("pre_feedforward_layernorm");
    layer.mlp_post_norm = norm("post_feedforward_layernorm");
  } else {
    layer.mlp_norm = norm("post_attention_layernorm");
  }
  return layer;
}

std::int64_t Transformer::weight_bytes() const {
  std::int64_t bytes = embedding_.num_bytes() + head_.num_bytes();
  for (const Layer& layer : layers_) {
    bytes += layer.qkv.num_bytes() + layer.attention_output.num_bytes() +
             layer.gate_up.num_bytes() + layer.down.num_bytes();
  }
  return bytes;
}

// Calls work(row) for every row, on all threads if there are many.
template <class Work>
void Transformer::for_rows(std::int64_t num_rows, const Work& work) {
  const auto all = [&work](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) work(row);
  };
  if (num_rows < kFewRows) return all(0, num_rows);
  pool_.for_range(num_rows, all);
}

void Transformer::forward(const ForwardBatch& batch, KvStore& kv, std::vector<float>& logits,
                          const PollFn& poll) {
  METRONOME_CHECK(batch.num_tokens() > 0, "an empty batch");
  const std::int32_t num_positions =
      *std::max_element(batch.context_lens.begin(), batch.context_lens.end());
  global_rope_.extend(num_positions);
  window_rope_.extend(num_positions);
  embed(batch);
  for (std::int64_t i = 0; i < model_.n_layers; ++i) {
    // A tile's attention needs the keys of earlier tiles in the same layer, and none of later
    // tiles.
    for (std::int32_t begin = 0; begin < batch.num_tokens(); begin += kTileTokens) {
      if (poll) poll();
      const Tile tile = {begin, std::min(begin + kTileTokens, batch.num_tokens())};
      run_layer(layers_[static_cast<std::size_t>(i)], i, batch, tile, kv);
    }
  }
  project_logits(batch, logits);
}

void Transformer::embed(const ForwardBatch& batch) {
  residual_.resize(count(batch.num_tokens(), model_.hidden_dim));
  const float scale =
      model_.scales_embeddings ? std::sqrt(static_cast<float>(model_.hidden_dim)) : 1.0f;
  for_rows(batch.num_tokens(), [&](std::int64_t token) {
    const TokenId id = batch.token_ids[static_cast<std::size_t>(token)];
    METRONOME_CHECK(value(id) >= 0 && value(id) < model_.vocab_size, "a token id out of range");
    float* row = residual(token);
    embedding_.row(value(id), row);
    for (std::int64_t k = 0; k < model_.hidden_dim; ++k) row[k] *= scale;
  });
}

// Adds o(attention(norm(stream))) to the stream, then down(activation(gate_up(norm(stream)))).
void Transformer::run_layer(const Layer& layer, std::int64_t index, const ForwardBatch& batch,
                            Tile tile, KvStore& kv) {
  make_room(tile.num_tokens());
  normalise(layer.attention_norm, tile);
  multiply(layer.qkv, hidden_, tile, qkv_);
  place_heads(layer, index, batch, tile, kv);
  attend(layer, index, batch, tile, kv);
  multiply(layer.attention_output, attended_, tile, hidden_);
  add_to_residual(layer.attention_post_norm, tile);

  normalise(layer.mlp_norm, tile);
  multiply(layer.gate_up, hidden_, tile, gate_up_);
  activate(tile);
  multiply(layer.down, gate_up_, tile, hidden_);
  add_to_residual(layer.mlp_post_norm, tile);
}

void Transformer::make_room(std::int64_t num_rows) {
  hidden_.resize(count(num_rows, model_.hidden_dim));
  qkv_.resize(count(num_rows, query_dim() + 2 * kv_dim()));
  attended_.resize(count(num_rows, query_dim()));
  gate_up_.resize(count(num_rows, 2 * model_.ffn_dim));
}

// out = x weights^T, row by row. Uses the first inputs of each row of x; writes all columns of out.
void Transformer::multiply(const PackedMatrix& weights, const std::vector<float>& x, Tile tile,
                           std::vector<float>& out) const {
  const std::int64_t num_rows = tile.num_tokens();
  const std::int64_t x_columns = static_cast<std::int64_t>(x.size()) / num_rows;
  weights.multiply(x.data(), x_columns, num_rows, out.data(), weights.num_outputs(), pool_);
}

// hidden = norm(residual).
void Transformer::normalise(const std::vector<float>& norm, Tile tile) {
  const auto eps = static_cast<float>(model_.norm_eps);
  for_rows(tile.num_tokens(), [&](std::int64_t row) {
    kernels_.rms_norm(residual(tile.begin + row), norm.data(), model_.hidden_dim, eps,
                      hidden_.data() + row * model_.hidden_dim);
  });
}

namespace {

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

// Normalises and rotates queries and keys; writes keys and values into the cache.
void Transformer::place_heads(const Layer& layer, std::int64_t index, const ForwardBatch& batch,
                              Tile tile, KvStore& kv) {
  const std::int64_t head_dim = model_.head_dim;
  const auto eps = static_cast<float>(model_.norm_eps);
  const RopeTable& rope = layer.is_window ? window_rope_ : global_rope_;
  const std::int32_t block_size = kv.shape().block_size;
  for_rows(tile.num_tokens(), [&](std::int64_t row) {
    const auto token = static_cast<std::int32_t>(tile.begin + row);
    const std::int32_t position = batch.positions[static_cast<std::size_t>(token)];
    float* query = qkv_.data() + row * layer.qkv.num_outputs();
    float* key = query + query_dim();
    const float* value = key + kv_dim();
    const auto turn = [&](float* head, const std::vector<float>& norm) {
      if (!norm.empty()) kernels_.rms_norm(head, norm.data(), head_dim, eps, head);
      kernels_.rotate(head, rope.cos(position), rope.sin(position), head_dim);
    };
    for (std::int64_t head = 0; head < model_.n_heads; ++head) {
      turn(query + head * head_dim, layer.query_norm);
    }
    for (std::int64_t k = 0; k < query_dim(); ++k) query[k] *= query_scale_;
    const BlockId* blocks = blocks_of(batch, batch.sequence_of(token), layer.is_window);
    for (std::int64_t head = 0; head < model_.n_kv_heads; ++head) {
      turn(key + head * head_dim, layer.key_norm);
      kv.write(index, blocks[position / block_size], position % block_size, head,
               key + head * head_dim, value + head * head_dim);
    }
  });
}

void Transformer::attend(const Layer& layer, std::int64_t index, const ForwardBatch& batch,
                         Tile tile, const KvStore& kv) {
  items_.clear();
  for (std::int32_t begin = tile.begin; begin < tile.end;) {
    const std::int32_t sequence = batch.sequence_of(begin);
    const std::int32_t end =
        std::min({tile.end, batch.query_start[static_cast<std::size_t>(sequence) + 1],
                  begin + kAttentionTokens});
    for (std::int32_t head = 0; head < model_.n_kv_heads; ++head) {
      items_.push_back({sequence, head, begin, end});
    }
    begin = end;
  }
  const auto num_items = static_cast<std::int64_t>(items_.size());
  const int num_parts = pool_.num_threads();
  pool_.run([&](int part) {
    for (std::int64_t i = part; i < num_items; i += num_parts) {
      attend_item(layer, index, batch, tile, kv, items_[static_cast<std::size_t>(i)],
                  scratch_[static_cast<std::size_t>(part)]);
    }
  });
}

void Transformer::attend_item(const Layer& layer, std::int64_t index, const ForwardBatch& batch,
                              Tile tile, const KvStore& kv, const AttentionItem& item,
                              AttentionScratch& scratch) {
  const std::int64_t head_dim = model_.head_dim;
  const std::int64_t group = model_.n_heads / model_.n_kv_heads;  // query heads per KV head
  scratch.queries.clear();
  scratch.outputs.clear();
  scratch.positions.clear();
  for (std::int32_t token = item.begin; token < item.end; ++token) {
    const std::int64_t row = token - tile.begin;
    for (std::int64_t head = item.head * group; head < (item.head + 1) * group; ++head) {
      scratch.queries.push_back(qkv_.data() + row * layer.qkv.num_outputs() + head * head_dim);
      scratch.outputs.push_back(attended_.data() + row * query_dim() + head * head_dim);
      scratch.positions.push_back(batch.positions[static_cast<std::size_t>(token)]);
    }
  }

  const std::int32_t window =
      layer.is_window ? static_cast<std::int32_t>(model_.sliding_window) : kNoWindow;
  const std::int32_t block_size = kv.shape().block_size;
  const BlockId* blocks = blocks_of(batch, item.sequence, layer.is_window);
  const std::int32_t end = scratch.positions.back() + 1;
  scratch.key_tiles.clear();
  scratch.value_tiles.clear();
  scratch.tile_positions.clear();
  std::int32_t position = first_attended(scratch.positions.front(), window);
  position -= position % block_size % static_cast<std::int32_t>(kLanes);
  while (position < end) {
    const std::int32_t offset = position % block_size;
    const std::int32_t kv_tile = offset / static_cast<std::int32_t>(kLanes);
    const BlockId block = blocks[position / block_size];
    scratch.key_tiles.push_back(kv.key_tile(index, block, item.head, kv_tile));
    scratch.value_tiles.push_back(kv.value_tile(index, block, item.head, kv_tile));
    scratch.tile_positions.push_back(position);
    position += std::min(static_cast<std::int32_t>(kLanes), block_size - offset);
  }
  scratch.tile_positions.push_back(std::min(position, end));

  const AttentionTask task = {
      .queries = scratch.queries.data(),
      .outputs = scratch.outputs.data(),
      .positions = scratch.positions.data(),
      .num_rows = static_cast<std::int32_t>(scratch.positions.size()),
      .head_dim = static_cast<std::int32_t>(head_dim),
      .window = window,
      .key_tiles = scratch.key_tiles.data(),
      .value_tiles = scratch.value_tiles.data(),
      .tile_positions = scratch.tile_positions.data(),
      .num_tiles = static_cast<std::int32_t>(scratch.key_tiles.size()),
  };
  scratch.kernel.resize(static_cast<std::size_t>(attention_scratch_floats(task)));
  kernels_.attend(task, scratch.kernel.data());
}

// Replaces the gates of each row by activation(gates) * ups.
void Transformer::activate(Tile tile) {
  const std::int64_t ffn_dim = model_.ffn_dim;
  const auto activate_row =
      model_.activation == Activation::GeluTanh ? kernels_.gelu_multiply : kernels_.silu_multiply;
  for_rows(tile.num_tokens(), [&](std::int64_t row) {
    float* gates = gate_up_.data() + row * 2 * ffn_dim;
    activate_row(gates, gates + ffn_dim, ffn_dim, gates);
  });
}

// residual += hidden, after the post-norm if the model has one.
void Transformer::add_to_residual(const std::vector<float>& post_norm, Tile tile) {
  const auto eps = static_cast<float>(model_.norm_eps);
  for_rows(tile.num_tokens(), [&](std::int64_t row) {
    float* hidden = hidden_.data() + row * model_.hidden_dim;
    if (!post_norm.empty()) {
      kernels_.rms_norm(hidden, post_norm.data(), model_.hidden_dim, eps, hidden);
    }
    kernels_.add(residual(tile.begin + row), hidden, model_.hidden_dim);
  });
}

void Transformer::project_logits(const ForwardBatch& batch, std::vector<float>& logits) {
  const auto num_rows = static_cast<std::int64_t>(batch.logit_tokens.size());
  logits.resize(count(num_rows, model_.vocab_size));
  if (num_rows == 0) return;
  hidden_.resize(count(num_rows, model_.hidden_dim));
  const auto eps = static_cast<float>(model_.norm_eps);
  for_rows(num_rows, [&](std::int64_t row) {
    const std::int32_t token = batch.logit_tokens[static_cast<std::size_t>(row)];
    kernels_.rms_norm(residual(token), final_norm_.data(), model_.hidden_dim, eps,
                      hidden_.data() + row * model_.hidden_dim);
  });
  const PackedMatrix& head = model_.has_tied_embeddings ? embedding_ : head_;
  head.multiply(hidden_.data(), model_.hidden_dim, num_rows, logits.data(), model_.vocab_size,
                pool_);
}

}  // namespace metronome
