// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_config.h"

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/number_text.h"
#include "core/base/real.h"
#include "core/model/any_families.h"
#include "core/model/any_keys.h"
#include "core/model/any_layers.h"
#include "core/model/any_mixers.h"
#include "core/model/any_towers.h"
#include "core/model/layer_kind.h"
#include "core/model/shape_bounds.h"

namespace metronome {
namespace {

constexpr const char* kHiddenKeys[] = {"hidden_size", "n_embd",    "d_model",       "dim",
                                       "model_dim",   "embed_dim", "embedding_dim", "n_embed"};
constexpr const char* kWidthKeys[] = {"dense_intermediate_size",
                                      "block_ff_dim",
                                      "ff_intermediate_size",
                                      "intermediate_size_mlp",
                                      "intermediate_size",
                                      "ffn_dim",
                                      "n_inner",
                                      "d_ff",
                                      "ffn_hidden_size",
                                      "decoder_ffn_dim",
                                      "inner_dim",
                                      "dim_ff",
                                      "dff",
                                      "mlp_hidden_size"};
constexpr const char* kExpertsKeys[] = {"n_routed_experts", "num_experts", "num_local_experts",
                                        "moe_num_experts", "n_experts"};
constexpr const char* kPickedKeys[] = {"num_experts_per_tok",
                                       "num_experts_per_token",
                                       "top_k_experts",
                                       "experts_per_token",
                                       "moe_topk",
                                       "moe_k",
                                       "moe_top_k"};
constexpr const char* kExpertWidthKeys[] = {"moe_intermediate_size", "expert_ffn_hidden_size",
                                            "expert_intermediate_size", "moe_ffn_hidden_size"};
constexpr const char* kExpertHiddenKeys[] = {"moe_latent_size", "routed_expert_hidden_size",
                                             "moe_hidden_size"};
constexpr const char* kSharedWidthKeys[] = {"shared_expert_intermediate_size",
                                            "moe_shared_expert_intermediate_size",
                                            "shared_intermediate_size", "share_expert_dim"};
constexpr const char* kNumSharedKeys[] = {"n_shared_experts", "num_shared_experts",
                                          "moe_num_shared_experts", "num_shared_expert"};
constexpr const char* kContextKeys[] = {
    "max_position_embeddings", "n_positions", "max_seq_len",    "model_max_length",  "n_ctx",
    "max_sequence_length",     "seq_length",  "context_length", "max_context_length"};
// The section of the language model, in files of several models.
constexpr const char* kSectionsKeys[] = {"text_config",      "llm_config", "language_config",
                                         "thinker_config",   "decoder",    "language_model_config",
                                         "text_model_config"};

// Reads a model, section by section.
class Reader {
 public:
  Reader(const JsonSection& root, const JsonSection& text, const std::string& architecture)
      : root_(root), text_(text), keys_(text), family_(any_family(root, text, architecture)) {}

  ModelConfig read(const std::string& architecture) {
    model_.architecture = architecture;
    model_.hidden_dim = keys_.required(kHiddenKeys);
    model_.n_layers = num_layers(keys_);
    model_.vocab_size = read_vocabulary();
    model_.max_position_embeddings = read_context();
    // Functions that no gate multiplies.
    const std::string activation = text_.text_or("mlp_hidden_act", text_.text_or("hidden_act", ""));
    model_.has_gated_mlp =
        family_.has_gated_mlp &&
        (family_.gates_any_function || (activation != "relu2" && activation != "xielu"));
    model_.has_learned_positions = family_.has_learned_positions;
    model_.has_tied_embeddings = root_.boolean_or(
        "tie_word_embeddings", text_.boolean_or("tie_word_embeddings", ties_tables()));
    model_.eos_token_ids =
        (root_.find("eos_token_id") != nullptr ? root_ : text_).token_ids("eos_token_id");
    read_experts();
    read_layers();
    refuse_overflow();
    set_summary();
    model_.tower_params = tower_params(root_, text_, model_.hidden_dim);
    if (family_.fit_model != nullptr) family_.fit_model(keys_, model_);
    // A shape of a scenario says all by itself.
    const bool is_shape = architecture == kShapeArchitecture;
    if (!is_shape || !assumed_.empty()) model_.approximation = approximation();
    model_.keys_read = keys_.read();
    return std::move(model_);
  }

 private:
  // Tables have far more rows than other numbers.
  std::int64_t read_vocabulary() {
    for (const char* name : {"vocab_size", "padded_vocab_size"}) {  // ChatGLM has the second
      if (text_.find(name) == nullptr) continue;
      keys_.remember(name);
      return *text_.integer(name);
    }
    keys_.remember("vocab_size");
    return root_.required_integer("vocab_size");
  }

  // In place of the usual key: LFM2 and OpenELM have names of their own.
  bool ties_tables() const {
    for (const char* name : {"tie_embedding", "share_input_output_layers"}) {
      if (text_.find(name) != nullptr) return text_.boolean_or(name, false);
    }
    return family_.has_tied_tables;
  }

  std::int64_t read_context() {
    for (const char* name : kContextKeys) {
      if (text_.find(name) == nullptr) continue;
      keys_.remember(name);
      return std::min<std::int64_t>(*text_.integer(name), std::int64_t{1} << 30);
    }
    constexpr std::int64_t kUsual = 131072;
    assume("a context of " + grouped_text(kUsual) + " tokens");
    return kUsual;
  }

  void read_experts() {
    if (!keys_.is_true("is_moe", true)) return;
    model_.n_experts = keys_.number(kExpertsKeys);
    if (model_.n_experts == 0) return;
    model_.n_experts_per_token =
        std::clamp<std::int64_t>(keys_.number(kPickedKeys, 1), 1, model_.n_experts);
    constexpr const char* kPlainWidth[] = {"intermediate_size", "ffn_dim", "d_ff",
                                           "ffn_hidden_size"};
    model_.expert_ffn_dim = keys_.has(kExpertWidthKeys) ? keys_.required(kExpertWidthKeys)
                                                        : keys_.required(kPlainWidth);
    model_.expert_hidden_dim = keys_.number(kExpertHiddenKeys);
    const std::int64_t num_shared = std::min<std::int64_t>(keys_.number(kNumSharedKeys), 64);
    model_.shared_expert_ffn_dim = keys_.has(kSharedWidthKeys) ? keys_.number(kSharedWidthKeys)
                                                               : num_shared * model_.expert_ffn_dim;
  }

  std::int64_t plain_width() {
    if (keys_.has(kWidthKeys)) return keys_.number(kWidthKeys);
    // Without a width, layers of a model with experts have only those.
    if (model_.n_experts > 0) return 0;
    constexpr const char* kRatio[] = {"mlp_ratio", "expansion_ratio", "ffn_mult"};
    const std::int64_t ratio = keys_.number(kRatio, family_.ffn_ratio);
    if (!keys_.has(kRatio)) assume(fmt::format("MLPs {} times as wide as the model", ratio));
    return ratio * model_.hidden_dim;
  }

  LayerParts read_layer(const LayerPlan& plan, std::int64_t layer) {
    LayerParts kind;
    keys_.set_overlay(overlay_of(layer, plan));
    if (plan.attends) {
      kind.attention = any_attention(keys_, model_.hidden_dim, plan);
      fit_heads(layer, kind.attention);
      if (family_.gates_attention) {
        kind.attention.in_params +=
            model_.hidden_dim * kind.attention.n_heads * kind.attention.value_dim;
      }
    }
    if (plan.has_state) kind.state = any_state(keys_, model_.hidden_dim, state_);
    kind.has_experts = plan.has_mlp && plan.has_experts && model_.n_experts > 0;
    if (plan.has_mlp && (!kind.has_experts || family_.has_mlp_beside_experts)) {
      kind.ffn_dim = widths_.empty() ? plain_width() : widths_[static_cast<std::size_t>(layer)];
    }
    const int num_norms = (kind.has_mixer() ? 1 : 0) + (kind.has_mlp() ? 1 : 0);
    kind.other_params = num_norms * model_.hidden_dim * (family_.has_post_norms ? 2 : 1);
    if (family_.fit_layer != nullptr) family_.fit_layer(keys_, model_, layer, kind);
    keys_.set_overlay(std::nullopt);
    return kind;
  }

  void read_layers() {
    state_ = family_.state == StateKind::None ? state_kind(keys_) : family_.state;
    widths_ = keys_.per_layer("intermediate_size", model_.n_layers);
    const bool is_state = state_ == StateKind::Mamba || state_ == StateKind::Mamba2;
    std::vector<LayerPlan> plans =
        plan_layers(keys_, model_.n_layers, model_.n_experts > 0, is_state);
    assume_states(plans);
    for (LayerPlan& plan : plans) {
      if (state_ == StateKind::None) plan.has_state = false;
      if (family_.has_states_alone) plan.has_mlp = false;
    }
    if (family_.fit_plans != nullptr) family_.fit_plans(keys_, plans);
    model_.n_layers = static_cast<std::int64_t>(plans.size());
    std::vector<LayerParts> layers;
    for (std::size_t i = 0; i < plans.size(); ++i) {
      layers.push_back(read_layer(plans[i], static_cast<std::int64_t>(i)));
    }
    model_.given_kinds = group_layers(layers);
  }

  // Files of delta rules that do not list layers: as in Qwen3-Next.
  void assume_states(std::vector<LayerPlan>& plans) {
    const bool has_rule = state_ == StateKind::GatedDelta || state_ == StateKind::KimiDelta;
    const auto has_state = [](const LayerPlan& plan) { return plan.has_state; };
    if (!has_rule || !keys_.words("layer_types").empty() ||
        std::any_of(plans.begin(), plans.end(), has_state)) {
      return;
    }
    constexpr std::size_t kInterval = 4;
    assume("attention in every fourth layer, states in the others");
    for (std::size_t i = 0; i < plans.size(); ++i) {
      plans[i].attends = (i + 1) % kInterval == 0;
      plans[i].has_state = !plans[i].attends;
    }
  }

  // Lists of heads: DeciLM and OpenELM. HunYuan-Large: of some layers, only the first has keys.
  void fit_heads(std::int64_t layer, AttentionPart& attention) {
    const auto of_layer = [&](const char* name, std::int64_t otherwise) {
      const auto listed = keys_.per_layer(name, model_.n_layers);
      return listed.empty() ? otherwise
                            : std::max<std::int64_t>(listed[static_cast<std::size_t>(layer)], 1);
    };
    const std::int64_t heads = of_layer("num_query_heads", attention.n_heads);
    const std::int64_t kv_heads = std::min(
        heads,
        of_layer("num_key_value_heads_per_layer", of_layer("num_kv_heads", attention.n_kv_heads)));
    if (heads != attention.n_heads || kv_heads != attention.n_kv_heads) {
      const std::int64_t window = attention.window;
      attention = grouped_attention(model_.hidden_dim, heads, kv_heads, attention.head_dim,
                                    attention.value_dim, false);
      attention.window = window;
    }
    const std::int64_t shared = std::max<std::int64_t>(keys_.number("cla_share_factor", 2), 1);
    if (keys_.is_true("use_cla") && layer % shared != 0) share_cache(model_.hidden_dim, attention);
  }

  std::optional<JsonSection> overlay_of(std::int64_t layer, const LayerPlan& plan) const {
    // Step 3.5: of layers with a window.
    if (plan.has_window) {
      if (auto other = text_.section("attention_other_setting")) return other;
    }
    const auto all = text_.section("per_layer_config");
    if (!all) return std::nullopt;
    // Numbers have leading zeros.
    for (const std::string& key : all->keys()) {
      std::string_view digits = key;
      while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
      if (digits == std::to_string(layer)) return all->section(key.c_str());
    }
    return std::nullopt;
  }

  // Products of three numbers fit into 64 bits; sums over layers may not.
  void refuse_overflow() const {
    constexpr double kMost = 1e15;
    double params = 0;
    double bytes = 0;
    for (const LayerKind& kind : model_.given_kinds) {
      const double width = real(kind.ffn_dim) + real(model_.shared_expert_ffn_dim) +
                           real(model_.expert_hidden_dim) +
                           real(model_.n_experts) * real(model_.expert_ffn_dim);
      params += real(kind.count()) * (real(kind.mixer_params()) + real(kind.state.other_params) +
                                      real(kind.other_params) + real(kind.side_params) +
                                      3 * width * real(model_.hidden_dim));
      bytes += real(kind.count()) *
               (real(kind.state.bytes()) + 4 * real(kind.attention.cached_elements()));
    }
    if (params < kMost && bytes < kMost) return;
    text_.fail(kHiddenKeys[0],
               "and the numbers beside it make a model of more than 1e15 "
               "parameters; allowed: fewer");
  }

  // The numbers of a model of one kind, from the first kind that has them.
  void set_summary() {
    for (const LayerKind& kind : model_.given_kinds) {
      const AttentionPart& attention = kind.attention;
      if (model_.n_heads == 0 && !attention.is_empty()) {
        model_.n_heads = attention.n_heads;
        model_.n_kv_heads = attention.n_kv_heads;
        model_.head_dim = attention.head_dim;
        model_.latent_attention = attention.latent;
      }
      if (!attention.is_sparse && attention.stride == 1) {
        model_.sliding_window = std::max(model_.sliding_window, attention.window);
      }
      model_.ffn_dim = std::max(model_.ffn_dim, kind.ffn_dim);
    }
    if (model_.n_heads == 0) {  // states alone
      model_.n_heads = model_.n_kv_heads = 1;
      model_.head_dim = 64;
    }
    if (model_.ffn_dim == 0) model_.ffn_dim = std::max<std::int64_t>(model_.expert_ffn_dim, 1);
    if (model_.n_moe_layers() == 0) {
      model_.n_experts = model_.n_experts_per_token = model_.expert_ffn_dim = 0;
      model_.shared_expert_ffn_dim = model_.expert_hidden_dim = 0;
    }
  }

  void assume(const std::string& what) {
    if (assumed_.find(what) != std::string::npos) return;
    assumed_ += (assumed_.empty() ? "" : ", ") + what;
  }

  std::string approximation() const {
    std::string kinds;
    for (const LayerKind& kind : model_.given_kinds) {
      kinds += fmt::format("{}{} x {}", kinds.empty() ? "" : "; ", kind.count(), kind.name());
    }
    return model_.architecture +
           " has no row in the list of families and is read by its keys: " + kinds + ". " +
           (assumed_.empty() ? "" : "Assumed: " + assumed_ + ". ") +
           "`metronome list models FILE` shows it";
  }

  const JsonSection& root_;
  const JsonSection& text_;
  AnyKeys keys_;
  const AnyFamily& family_;
  ModelConfig model_;
  StateKind state_ = StateKind::None;
  std::vector<std::int64_t> widths_;  // of MLPs, by layer
  std::string assumed_;
};

}  // namespace

JsonSection any_text_section(const JsonSection& root) {
  for (const char* name : kSectionsKeys) {
    const auto section = root.section(name);
    if (!section) continue;
    return any_text_section(*section);
  }
  return root;
}

ModelConfig read_any_model(const JsonSection& root, const std::string& architecture) {
  if (root.boolean_or("is_encoder_decoder", false)) {
    root.fail("is_encoder_decoder", "true is not supported; allowed: false, a model that decodes");
  }
  const JsonSection text = any_text_section(root);
  return Reader(root, text, architecture).read(architecture);
}

}  // namespace metronome
