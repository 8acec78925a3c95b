// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_families.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/names.h"
#include "core/base/types.h"
#include "core/model/any_mixers.h"

namespace metronome {
namespace {

constexpr std::int64_t kMaxRows = std::int64_t{1} << 24;

// ---- Layers ----

void keep_states(AnyKeys&, std::vector<LayerPlan>& plans) {
  for (LayerPlan& plan : plans) {
    plan.attends = false;
    plan.has_state = true;
  }
}

// Mamba and attention beside each other in every layer.
void attend_beside_states(AnyKeys&, std::vector<LayerPlan>& plans) {
  for (LayerPlan& plan : plans) plan.attends = plan.has_state = true;
}

// Layers of Mamba alone, and some with a transformer block in front.
void keep_mlps_of_hybrids(AnyKeys&, std::vector<LayerPlan>& plans) {
  for (LayerPlan& plan : plans) plan.has_mlp = plan.attends;
}

// Zamba: layers with attention have Mamba, too.
void attend_in_front_of_states(AnyKeys& keys, std::vector<LayerPlan>& plans) {
  keep_mlps_of_hybrids(keys, plans);
  for (LayerPlan& plan : plans) plan.has_state = true;
}

// LongCat-Flash: a layer has two blocks of attention and MLP, and experts beside the second.
void split_layers(AnyKeys&, std::vector<LayerPlan>& plans) {
  std::vector<LayerPlan> halves;
  for (LayerPlan plan : plans) {
    plan.has_experts = true;
    halves.push_back(plan);
    plan.has_experts = false;
    halves.push_back(plan);
  }
  plans = std::move(halves);
}

// The part of DeciLM's block_configs about a layer; nothing where it has none.
std::optional<JsonSection> block_part(const AnyKeys& keys, std::int64_t layer, const char* part) {
  const Json* const blocks = keys.section().find("block_configs");
  const auto at = static_cast<std::size_t>(layer);
  if (blocks == nullptr || !blocks->is_array() || blocks->size() <= at) return std::nullopt;
  return keys.section().element("block_configs", at).section(part);
}

void drop_parts(AnyKeys& keys, std::vector<LayerPlan>& plans) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    const auto attention = block_part(keys, layer, "attention");
    const auto mlp = block_part(keys, layer, "ffn");
    if (attention && attention->boolean_or("no_op", false)) plans[i].attends = false;
    if (mlp && mlp->boolean_or("no_op", false)) plans[i].has_mlp = false;
  }
}

// ---- One layer ----

// Heads that share keys, and a width by its share of the model's, rounded up (_ffn_mult_to_
// intermediate_size in vLLM 0.33, models/nemotron_nas.py).
void fit_block(AnyKeys& keys, const ModelConfig& model, std::int64_t layer, LayerParts& kind) {
  const std::int64_t hidden = model.hidden_dim;
  if (const auto part = block_part(keys, layer, "attention"); part && !kind.attention.is_empty()) {
    const std::int64_t heads = kind.attention.n_heads;
    const std::int64_t group = std::clamp<std::int64_t>(
        part->find("n_heads_in_group") == nullptr ? 1 : *part->integer("n_heads_in_group"), 1,
        heads);
    kind.attention = grouped_attention(hidden, heads, heads / group, kind.attention.head_dim,
                                       kind.attention.value_dim, false);
  }
  const auto part = block_part(keys, layer, "ffn");
  if (!part || kind.ffn_dim == 0 || part->find("ffn_mult") == nullptr) return;
  constexpr std::int64_t kUnit = 256;
  const double share = std::clamp(part->number_or("ffn_mult", 4), 0.0, 64.0);
  const auto width = static_cast<std::int64_t>(2 * share * static_cast<double>(hidden) / 3);
  kind.ffn_dim = ceil_div(width, kUnit) * kUnit;
}

// Attention over the hidden vector and the embedding beside it, and a projection of the result.
void join_embeddings(AnyKeys& keys, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  if (kind.attention.is_empty()) return;
  const std::int64_t head_dim = keys.number("attention_head_dim", 64);
  kind.attention = grouped_attention(model.hidden_dim, kind.attention.n_heads,
                                     kind.attention.n_kv_heads, head_dim, head_dim, false);
  kind.attention.in_params *= 2;
  const std::int64_t rank = keys.number("adapter_rank");
  kind.side_params =
      model.hidden_dim * model.hidden_dim + rank * (model.hidden_dim + 2 * kind.ffn_dim);
}

// Two thirds of the width, rounded up.
void adjust_width(AnyKeys& keys, const ModelConfig&, std::int64_t, LayerParts& kind) {
  if (!keys.is_true("block_auto_adjust_ff_dim") || kind.ffn_dim == 0) return;
  const std::int64_t unit = std::max<std::int64_t>(keys.number("block_multiple_of", 256), 1);
  kind.ffn_dim = ceil_div(2 * kind.ffn_dim / 3, unit) * unit;
}

// Arctic: an MLP as wide as the model beside the experts.
void add_residual_mlp(AnyKeys& keys, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  if (kind.has_experts) kind.ffn_dim = keys.is_true("use_residual", true) ? model.hidden_dim : 0;
}

// OpenELM: each layer's share of the model's width, to the nearest multiple of a divisor
// (make_divisible in its modeling_openelm.py).
void set_share_of_width(AnyKeys& keys, const ModelConfig& model, std::int64_t layer,
                        LayerParts& kind) {
  const Json* const shares = keys.section().find("ffn_multipliers");
  const auto at = static_cast<std::size_t>(layer);
  if (shares == nullptr || !shares->is_array() || shares->size() <= at ||
      !(*shares)[at].is_number()) {
    return;
  }
  const std::int64_t unit = std::max<std::int64_t>(keys.number("ffn_dim_divisor", 256), 1);
  const double share = std::clamp((*shares)[at].get<double>(), 0.0, 64.0);
  const double width = share * static_cast<double>(model.hidden_dim);
  kind.ffn_dim = std::max(
      unit, static_cast<std::int64_t>(width + static_cast<double>(unit) / 2) / unit * unit);
}

void halve_width(AnyKeys&, const ModelConfig&, std::int64_t, LayerParts& kind) {
  kind.ffn_dim /= 2;
}

// A linear recurrence of the width, gates by blocks of it.
void set_recurrence(AnyKeys& keys, const ModelConfig& model, std::int64_t layer, LayerParts& kind) {
  halve_width(keys, model, layer, kind);
  if (kind.state.is_empty()) return;
  const std::int64_t width = keys.number("lru_width", model.hidden_dim);
  const std::int64_t heads = std::max<std::int64_t>(keys.number("num_attention_heads", 1), 1);
  kind.state = {.kind = StateKind::ShortConv,
                .n_heads = 1,
                .key_dim = 1,
                .value_dim = width,
                .conv_width = std::max<std::int64_t>(keys.number("conv1d_width", 4), 1),
                .conv_channels = width,
                .bytes_per_element = 4,
                .n_groups = heads,
                .moved_elements = 8 * width,
                .in_params = 2 * model.hidden_dim * width + 2 * width * (width / heads),
                .out_params = width * model.hidden_dim,
                .other_params = width * 8};
}

// A matrix for each head, of keys and values whose widths are shares of the model's.
void set_matrix_memory(AnyKeys& keys, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  const std::int64_t hidden = model.hidden_dim;
  const auto part = [&](const char* name, double otherwise) {
    const double share = std::clamp(keys.section().number_or(name, otherwise), 0.0, 64.0);
    return static_cast<std::int64_t>(share * static_cast<double>(hidden));
  };
  const std::int64_t heads = std::max<std::int64_t>(keys.number("num_heads", 8), 1);
  const std::int64_t keys_dim = part("qk_dim_factor", 0.5);
  const std::int64_t values = part("v_dim_factor", 1);
  kind.state = {.kind = StateKind::Lightning,
                .n_heads = heads,
                .key_dim = keys_dim / heads,
                .value_dim = values / heads,
                .more_elements = keys_dim + heads,
                .bytes_per_element = 4,
                .n_groups = heads,
                .moved_elements = 7 * values,
                .in_params = hidden * (2 * keys_dim + 2 * values + 2 * heads),
                .out_params = values * hidden};
  const std::int64_t unit =
      std::max<std::int64_t>(keys.number("ffn_round_up_to_multiple_of", 64), 1);
  kind.ffn_dim = ceil_div(part("ffn_proj_factor", 2.667), unit) * unit;
}

// RWKV 4: five numbers for each channel; the MLP has a gate as wide as the model.
void set_channel_states(AnyKeys&, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  const std::int64_t hidden = model.hidden_dim;
  kind.state = {.kind = StateKind::ShortConv,
                .n_heads = 1,
                .key_dim = 5,
                .value_dim = hidden,
                .bytes_per_element = 4,
                .n_groups = hidden,
                .moved_elements = 6 * hidden,
                .in_params = 3 * hidden * hidden,
                .out_params = hidden * hidden};
  kind.side_params = hidden * hidden;
}

// Streams of the residual, mixed by products of low rank in front of attention and MLP.
void mix_streams(AnyKeys& keys, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  const std::int64_t streams = std::min<std::int64_t>(keys.number("hc_count", 1), 64);
  kind.side_params = 4 * streams * model.hidden_dim * keys.number("hc_lowrank");
}

// A bias of scores by distance, projected for each head; short convolutions of keys, of values, and
// of what attention and MLP return.
void add_distances(AnyKeys& keys, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  const AttentionPart& attention = kind.attention;
  StatePart& state = kind.state;
  state.kind = StateKind::ShortConv;
  state.n_heads = state.n_groups = attention.n_kv_heads;
  state.conv_width = std::max<std::int64_t>(keys.number("conv_kernel_size", 4), 1);
  state.conv_channels =
      attention.n_kv_heads * (attention.head_dim + attention.value_dim) + 2 * model.hidden_dim;
  state.other_params = state.conv_channels * state.conv_width;
  kind.side_params = model.hidden_dim * kind.attention.n_heads * keys.number("d_rel");
}

// Queries and keys go through a convolution of groups of channels; the router is an MLP.
void convolve(AnyKeys& keys, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  const std::int64_t columns = keys.number("cca_time0", 2) + keys.number("cca_time1", 2) - 1;
  const AttentionPart& attention = kind.attention;
  const std::int64_t channels = (attention.n_heads + attention.n_kv_heads) * attention.head_dim;
  const std::int64_t router = keys.number("router_hidden_size");
  kind.side_params = channels * attention.head_dim * keys.number("cca_time1", 2) +
                     router * (model.hidden_dim + 2 * router);
  // A request carries its last inputs, and half of the values, which come a token late.
  kind.state = {.kind = StateKind::ShortConv,
                .n_heads = 1,
                .more_elements = attention.n_kv_heads * attention.value_dim / 2,
                .conv_width = std::max<std::int64_t>(columns, 1),
                .conv_channels = channels,
                .n_groups = attention.n_kv_heads};
}

// Layers with a window have twice the KV heads, unless the file says so itself.
void double_window_heads(AnyKeys& keys, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  AttentionPart& attention = kind.attention;
  if (attention.window == 0 || keys.section().find("swa_num_key_value_heads") != nullptr) return;
  const std::int64_t window = attention.window;
  attention = grouped_attention(model.hidden_dim, attention.n_heads, 2 * attention.n_kv_heads,
                                attention.head_dim, attention.value_dim, false);
  attention.window = window;
}

// Layers that read the KV of earlier ones, and what each token brings to every layer.
void add_inputs_of_layers(AnyKeys& keys, const ModelConfig& model, std::int64_t layer,
                          LayerParts& kind) {
  const std::int64_t shared = std::min(keys.number("num_kv_shared_layers"), model.n_layers);
  AttentionPart& attention = kind.attention;
  if (layer >= model.n_layers - shared && !attention.is_empty()) {
    share_cache(model.hidden_dim, attention);
    if (keys.is_true("use_double_wide_mlp")) kind.ffn_dim *= 2;
  }
  const std::int64_t inputs = keys.number("hidden_size_per_layer_input");
  const std::int64_t rank = keys.number("laurel_rank");
  kind.side_params = model.hidden_dim * (3 * inputs + 2 * rank);
}

// Every head gets a query and an output of each expert.
void mix_attention(AnyKeys&, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  AttentionPart& attention = kind.attention;
  const std::int64_t of_one = model.hidden_dim * attention.n_kv_heads * attention.head_dim;
  attention.in_params = 2 * of_one + model.n_experts_per_token * of_one;
  attention.out_params = model.n_experts_per_token * of_one;
}

// Decays and gates of full rank.
void widen_gates(AnyKeys&, const ModelConfig& model, std::int64_t, LayerParts& kind) {
  StatePart& state = kind.state;
  if (state.is_empty()) return;
  const std::int64_t inner = state.n_heads * state.value_dim;
  state.in_params = model.hidden_dim * (5 * inner + state.n_heads);
}

// The gate is projected from the latent queries, which are twice as wide.
void gate_latent(AnyKeys&, const ModelConfig&, std::int64_t, LayerParts& kind) {
  AttentionPart& attention = kind.attention;
  const std::int64_t rank = attention.latent.q_rank;
  attention.in_params += rank * attention.n_heads * (attention.head_dim + 2 * attention.value_dim);
}

// Attention of a key that is its value, low-rank queries and outputs, and entries that stand for
// several tokens: of 4, an index chooses; of 128, all are read. The nearest tokens have entries of
// their own (vLLM 0.33, models/deepseek_v4.py).
void compress(AnyKeys& keys, const ModelConfig& model, std::int64_t layer, LayerParts& kind) {
  const std::int64_t hidden = model.hidden_dim;
  AttentionPart& attention = kind.attention;
  const std::int64_t dim = attention.head_dim;
  const std::int64_t queries = attention.n_heads * dim;
  const std::int64_t q_rank = keys.number("q_lora_rank", 1024);
  const std::int64_t o_rank = keys.number("o_lora_rank", 1024);
  const std::int64_t o_groups = std::max<std::int64_t>(keys.number("o_groups", 8), 1);
  const std::int64_t window = keys.number("sliding_window", 128);
  attention = {.n_heads = attention.n_heads,
               .n_kv_heads = 1,
               .head_dim = dim,
               .value_dim = dim,
               .keys_are_values = true,
               .latent = {}};
  attention.whole_params = hidden * (q_rank + dim);
  attention.in_params = attention.whole_params + q_rank * queries;
  attention.out_params = queries * o_rank + o_groups * o_rank * hidden;
  std::int64_t ratio = 0;
  if (const auto ratios = keys.per_layer("compress_ratios", model.n_layers); !ratios.empty()) {
    ratio = ratios[static_cast<std::size_t>(layer)];
  } else if (const auto words = keys.words("layer_types");
             static_cast<std::int64_t>(words.size()) > layer) {
    const std::string& word = words[static_cast<std::size_t>(layer)];
    ratio = word == "compressed_sparse_attention"    ? 4
            : word == "heavily_compressed_attention" ? 128
                                                     : 0;
  }
  if (ratio < 2) {
    attention.window = window;
    return;
  }
  attention.stride = ratio;
  attention.nearest = window;
  const bool has_index = ratio <= 4;
  // Windows of compressed tokens overlap where an index chooses.
  const std::int64_t compressor = 2 * hidden * dim * (has_index ? 2 : 1);
  attention.in_params += compressor;
  attention.whole_params += compressor;
  if (!has_index) return;
  attention.is_sparse = true;
  attention.index_heads = keys.number("index_n_heads", 64);
  attention.index_dim = keys.number("index_head_dim", 128);
  attention.window = keys.number("index_topk", 512) * ratio;
  const std::int64_t index = q_rank * attention.index_heads * attention.index_dim +
                             hidden * (attention.index_heads + 4 * attention.index_dim);
  attention.in_params += index;
  attention.whole_params += index;
}

// Layers that attend to an image, whose KV no token of text adds to.
void attend_to_images(AnyKeys& keys, const ModelConfig&, std::int64_t layer, LayerParts& kind) {
  const auto listed = keys.layers("cross_attention_layers");
  kind.attention.shares_kv = std::binary_search(listed.begin(), listed.end(), layer);
}

// MiniMax-M3: some layers read the blocks that an index chose.
void choose_blocks(AnyKeys& keys, const ModelConfig& model, std::int64_t layer, LayerParts& kind) {
  AttentionPart& attention = kind.attention;
  attention = grouped_attention(model.hidden_dim, attention.n_heads, attention.n_kv_heads,
                                attention.head_dim, attention.value_dim, false);
  const auto at = static_cast<std::size_t>(layer);
  const auto of_words = keys.words("layer_types");
  bool is_sparse = of_words.size() > at && of_words[at] == "minimax_m3_sparse";
  std::int64_t blocks = keys.number("index_topk_blocks", 16);
  std::int64_t block = keys.number("index_block_size", 128);
  std::int64_t heads = keys.number("index_n_heads", 4);
  std::int64_t dim = keys.number("index_head_dim", 128);
  if (const auto nested = keys.section().section("sparse_attention_config")) {
    AnyKeys inner(*nested);
    const auto flags = inner.per_layer("sparse_attention_freq", model.n_layers);
    is_sparse = flags.size() > at && flags[at] == 1;
    blocks = inner.number("sparse_topk_blocks", blocks);
    block = inner.number("sparse_block_size", block);
    heads = inner.number("sparse_num_index_heads", heads);
    dim = inner.number("sparse_index_dim", dim);
    keys.remember("sparse_attention_config");
  }
  if (!is_sparse) return;
  attention.is_sparse = true;
  attention.window = blocks * block;
  attention.index_heads = heads;
  attention.index_dim = dim;
  const std::int64_t index = model.hidden_dim * (heads * dim + dim);
  attention.in_params += index;
  attention.whole_params += index;
}

// ---- The model ----

void add_tables(AnyKeys& keys, ModelConfig& model) {
  const std::int64_t inputs = keys.number("hidden_size_per_layer_input");
  const Json* const rows = keys.section().find("vocab_size_per_layer_input");
  if (inputs > 0 && rows != nullptr) {
    const std::int64_t vocabulary = *keys.section().integer("vocab_size_per_layer_input");
    model.extra_params += std::min(vocabulary, kMaxRows) * model.n_layers * inputs;
  }
  const std::int64_t streams = std::clamp<std::int64_t>(keys.number("altup_num_inputs", 1), 1, 64);
  model.extra_params += 2 * (streams - 1) * model.hidden_dim * model.hidden_dim;
}

// All experts see a token's shared expert, as wide as they are.
void share_expert(AnyKeys&, ModelConfig& model) {
  if (model.n_moe_layers() > 0) model.shared_expert_ffn_dim = model.expert_ffn_dim;
}

// Experts of images, which tokens of text do not use: of two lists, the second numbers.
void add_experts_of_images(AnyKeys& keys, ModelConfig& model) {
  const std::vector<std::int64_t> experts = keys.per_layer("moe_num_experts", 2);
  const std::vector<std::int64_t> widths = keys.per_layer("moe_intermediate_size", 2);
  const std::int64_t count =
      std::min<std::int64_t>(experts.empty() ? model.n_experts : experts.back(), 4096);
  if (widths.empty() || model.n_moe_layers() == 0) return;
  model.idle_params +=
      model.n_moe_layers() * count * model.n_mlp_matrices() * model.hidden_dim * widths.back();
}

// Experts of queries and outputs that a token does not pick.
void add_idle_attention(AnyKeys&, ModelConfig& model) {
  for (const LayerKind& kind : model.given_kinds) {
    const AttentionPart& attention = kind.attention;
    model.idle_params += kind.count() * (model.n_experts - model.n_experts_per_token) * 2 *
                         model.hidden_dim * attention.n_kv_heads * attention.head_dim;
  }
}

// Some of the experts that a token picks return what they got.
void skip_zero_experts(AnyKeys& keys, ModelConfig& model) {
  const std::int64_t zero = keys.number("zero_expert_num");
  if (model.n_experts == 0) return;
  model.n_experts_per_token = std::max<std::int64_t>(
      model.n_experts_per_token * model.n_experts / (model.n_experts + zero), 1);
}

std::int64_t attention_and_mlp_params(const ModelConfig& model, const LayerKind& kind) {
  return kind.attention.in_params + kind.attention.out_params +
         model.n_mlp_matrices() * model.hidden_dim * kind.ffn_dim;
}

// Layers that attend have the attention and the MLP of the first few of them; a state beside is of
// each.
void share_weights(std::int64_t num_distinct, ModelConfig& model) {
  for (const LayerKind& kind : model.given_kinds) {
    if (kind.attention.is_empty()) continue;
    model.repeated_params += std::max<std::int64_t>(kind.count() - num_distinct, 0) *
                             attention_and_mlp_params(model, kind);
  }
}

void share_blocks(AnyKeys& keys, ModelConfig& model) {
  share_weights(std::max<std::int64_t>(keys.number("num_mem_blocks", 1), 1), model);
}

// Two stacks of layers that run in cycles.
void repeat_stacks(AnyKeys& keys, ModelConfig& model) {
  share_weights(2 * keys.number("num_layers_per_stack", model.n_layers), model);
}

// Sources: the modeling files of transformers 5 of each model type, unless another is named.
constexpr AnyFamily kAnyFamilies[] = {
    {.model_type = "afmoe", .gates_attention = true},
    {.model_type = "arctic", .has_mlp_beside_experts = true, .fit_layer = add_residual_mlp},
    {.model_type = "axk2", .fit_layer = gate_latent},
    {.model_type = "bailing_hybrid", .fit_layer = widen_gates},
    {.model_type = "beam", .gates_attention = true},
    {.model_type = "bert",
     .has_gated_mlp = false,
     .has_learned_positions = true,
     .has_tied_tables = true},
    {.model_type = "biogpt",
     .has_gated_mlp = false,
     .has_learned_positions = true,
     .has_tied_tables = true},
    {.model_type = "bitnet", .gates_any_function = true},
    {.model_type = "bloom", .has_gated_mlp = false, .has_tied_tables = true},
    {.model_type = "codegen", .has_gated_mlp = false},
    {.model_type = "cohere", .has_tied_tables = true},
    {.model_type = "cohere2", .has_tied_tables = true},
    {.model_type = "ctrl", .has_gated_mlp = false},
    {.model_type = "deci", .fit_plans = drop_parts, .fit_layer = fit_block},
    {.model_type = "deepseek_v4", .fit_layer = compress},
    {.model_type = "dory", .gates_attention = true},
    {.model_type = "ernie4_5_moe_vl", .has_tied_tables = true, .fit_model = add_experts_of_images},
    {.model_type = "ernie4_5_vl_moe", .has_tied_tables = true, .fit_model = add_experts_of_images},
    {.model_type = "falcon", .has_gated_mlp = false, .has_tied_tables = true},
    {.model_type = "falcon_h1", .fit_plans = attend_beside_states},
    {.model_type = "falcon_mamba", .has_tied_tables = true, .has_states_alone = true},
    {.model_type = "fuyu", .has_gated_mlp = false},
    {.model_type = "gemma", .has_tied_tables = true},
    {.model_type = "gemma2", .has_tied_tables = true, .has_post_norms = true},
    {.model_type = "gemma3", .has_tied_tables = true, .has_post_norms = true},
    {.model_type = "gemma3n",
     .has_tied_tables = true,
     .has_post_norms = true,
     .fit_layer = add_inputs_of_layers,
     .fit_model = add_tables},
    {.model_type = "gemma4",
     .has_tied_tables = true,
     .has_post_norms = true,
     .has_mlp_beside_experts = true,
     .fit_layer = add_inputs_of_layers,
     .fit_model = add_tables},
    {.model_type = "gemma4_unified",
     .has_tied_tables = true,
     .has_post_norms = true,
     .has_mlp_beside_experts = true,
     .fit_layer = add_inputs_of_layers,
     .fit_model = add_tables},
    {.model_type = "gpt_bigcode",
     .has_gated_mlp = false,
     .has_learned_positions = true,
     .has_tied_tables = true},
    {.model_type = "gpt_neo",
     .has_gated_mlp = false,
     .has_learned_positions = true,
     .has_tied_tables = true},
    {.model_type = "gpt_neox", .has_gated_mlp = false},
    {.model_type = "gpt_neox_japanese", .has_gated_mlp = false},
    {.model_type = "gptj", .has_gated_mlp = false},
    {.model_type = "hrm", .gates_attention = true, .fit_model = repeat_stacks},
    {.model_type = "hy_v4", .gates_attention = true},
    {.model_type = "hy_v4_vl", .gates_attention = true},
    {.model_type = "inkling", .fit_layer = add_distances},
    {.model_type = "inkling2", .gates_attention = true, .fit_layer = add_distances},
    {.model_type = "jetmoe",
     .has_tied_tables = true,
     .fit_layer = mix_attention,
     .fit_model = add_idle_attention},
    {.model_type = "lfm2", .has_tied_tables = true, .fit_layer = adjust_width},
    {.model_type = "lfm2_moe", .has_tied_tables = true},
    {.model_type = "lfm3", .has_tied_tables = true},
    {.model_type = "llama4", .fit_model = share_expert},
    {.model_type = "longcat_flash",
     .has_mlp_beside_experts = true,
     .fit_plans = split_layers,
     .fit_model = skip_zero_experts},
    {.model_type = "mamba", .has_tied_tables = true, .has_states_alone = true},
    {.model_type = "mamba2", .has_states_alone = true, .state = StateKind::Mamba2},
    {.model_type = "mimo_v2_flash", .fit_layer = double_window_heads},
    {.model_type = "minicpm3", .has_tied_tables = true},
    {.model_type = "minimax_m3", .fit_layer = choose_blocks},
    {.model_type = "minimax_m3_vl", .fit_layer = choose_blocks},
    {.model_type = "mllama", .fit_layer = attend_to_images},
    {.model_type = "mllama_text_model", .fit_layer = attend_to_images},
    {.model_type = "moshi", .fit_layer = halve_width},
    {.model_type = "mpt", .has_gated_mlp = false, .has_tied_tables = true},
    {.model_type = "muse_glimmer", .gates_attention = true},
    {.model_type = "muse_spark", .gates_attention = true},
    {.model_type = "nemotron-nas", .fit_plans = drop_parts, .fit_layer = fit_block},
    {.model_type = "openelm", .fit_layer = set_share_of_width},
    {.model_type = "openai-gpt",
     .has_gated_mlp = false,
     .has_learned_positions = true,
     .has_tied_tables = true},
    {.model_type = "opt",
     .has_gated_mlp = false,
     .has_learned_positions = true,
     .has_tied_tables = true},
    {.model_type = "persimmon", .has_gated_mlp = false},
    {.model_type = "phi", .has_gated_mlp = false},
    {.model_type = "phi3small", .has_tied_tables = true},
    {.model_type = "qwen", .fit_layer = halve_width},
    {.model_type = "qwen3_5", .gates_attention = true},
    {.model_type = "qwen3_5_moe", .gates_attention = true},
    {.model_type = "qwen3_next", .gates_attention = true},
    {.model_type = "qwen4_exp", .gates_attention = true, .fit_layer = mix_streams},
    {.model_type = "recurrent_gemma", .has_tied_tables = true, .fit_layer = set_recurrence},
    {.model_type = "rwkv",
     .has_gated_mlp = false,
     .fit_plans = keep_states,
     .fit_layer = set_channel_states},
    {.model_type = "smollm3", .has_tied_tables = true},
    {.model_type = "starcoder2", .has_gated_mlp = false, .has_tied_tables = true},
    {.model_type = "vaultgemma", .has_tied_tables = true},
    {.model_type = "xglm", .has_gated_mlp = false, .has_tied_tables = true},
    {.model_type = "xlstm", .fit_plans = keep_states, .fit_layer = set_matrix_memory},
    {.model_type = "zamba",
     .has_tied_tables = true,
     .fit_plans = attend_in_front_of_states,
     .fit_layer = join_embeddings,
     .fit_model = share_blocks},
    {.model_type = "zamba2",
     .has_tied_tables = true,
     .fit_plans = keep_mlps_of_hybrids,
     .fit_layer = join_embeddings,
     .fit_model = share_blocks},
    {.model_type = "zaya", .has_tied_tables = true, .fit_layer = convolve},
};

constexpr AnyFamily kPlain;

}  // namespace

const AnyFamily& any_family(const JsonSection& root, const JsonSection& text,
                            const std::string& architecture) {
  // DeepseekV4ForCausalLM without a type of its own is deepseek_v4.
  const std::string name = lower_ascii(architecture.substr(0, architecture.find("For")));
  std::vector<std::string> types = {text.text_or("model_type", ""), root.text_or("model_type", "")};
  for (std::string& type : types) {
    constexpr std::string_view kText = "_text";
    if (type.ends_with(kText)) type.resize(type.size() - kText.size());
    for (const AnyFamily& family : kAnyFamilies) {
      if (family.model_type == type) return family;
    }
  }
  for (const AnyFamily& family : kAnyFamilies) {
    std::string plain(family.model_type);
    std::erase(plain, '_');
    if (plain == name) return family;
  }
  return kPlain;
}

}  // namespace metronome
