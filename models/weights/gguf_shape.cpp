// SPDX-License-Identifier: Apache-2.0
#include "models/weights/gguf_shape.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/core.h>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/model/model_family.h"
#include "models/weights/gguf_family.h"
#include "models/weights/gguf_formats.h"

namespace metronome {
namespace {

constexpr const char* kArchitectureKey = "general.architecture";
constexpr std::int64_t kMaxLayers = 4096;  // shape_error() has the same limit

// Hugging Face's classes that are simulated, by llama.cpp's names.
struct NamedClass {
  std::string_view name;
  std::string_view architecture;
};
constexpr NamedClass kClasses[] = {
    {"gpt-oss", "GptOssForCausalLM"},       {"deepseek2", "DeepseekV3ForCausalLM"},
    {"minimax-m2", "MiniMaxM2ForCausalLM"}, {"qwen3next", "Qwen3NextForCausalLM"},
    {"qwen35", "Qwen3_5ForCausalLM"},       {"qwen35moe", "Qwen3_5MoeForCausalLM"},
};

// Every n-th layer attends to all positions where the file does not say which do: the last of n, or
// the first. Source: load_swa_pattern() in llama.cpp's src/models.
struct WindowDefault {
  std::string_view name;
  std::int64_t interval;
  bool is_first_global = false;
};
constexpr WindowDefault kWindows[] = {
    {"gpt-oss", 2},
    {"cohere2", 4},
    {"exaone4", 4},
    {"exaone-moe", 4},
    {"gemma3n", 5},
    {"afmoe", 4},
    {"plamo3", 8},
    {"mellum", 4},
    {"muse-glimmer", 4},
    {"olmo2", 4},
    {"cohere2moe", 4, true},
    {"laguna", 4, true},
    {"smallthinker", 4, true},
};

// Reads one file.
class ShapeReader {
 public:
  ShapeReader(const GgufFile& file, std::string_view architecture)
      : file_(file), keys_(file, architecture), name_(architecture) {}

  ModelConfig read(const std::string& name) {
    model_.name = name;
    model_.architecture = name_;
    for (const NamedClass& named : kClasses) {
      if (named.name == name_) model_.architecture = named.architecture;
    }
    read_sizes();
    read_layer_kinds();
    read_attention();
    read_mlps();
    check_shape();  // so that products of sizes do not overflow
    read_windows();
    read_traits();
    check_shape();
    check_counts();
    return std::move(model_);
  }

 private:
  using Tensor = const GgufTensor*;

  Tensor find(std::int64_t layer, std::string_view part, std::string_view ending = "weight") const {
    return file_.find_tensor(fmt::format("blk.{}.{}.{}", layer, part, ending));
  }

  // In the first layer that has it.
  Tensor find_any(std::string_view part, std::string_view ending = "weight") const {
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      if (const Tensor found = find(i, part, ending)) return found;
    }
    return nullptr;
  }
  bool has(std::string_view part, std::string_view ending = "weight") const {
    return find_any(part, ending) != nullptr;
  }

  [[noreturn]] void fail_layer(std::int64_t layer, const std::string& what) const {
    file_.fail(kArchitectureKey, fmt::format("{}: layer {} has {}; allowed: layers of attention or "
                                             "of Gated DeltaNet, each with an MLP or experts",
                                             gguf_shown(name_), layer, what));
  }

  void check_shape() const {
    const std::string error = model_.shape_error();
    if (!error.empty()) throw ConfigError(printable(file_.path() + ": " + error));
  }

  // A number, or a list of one for each layer: the number of all layers that have one at all.
  std::optional<std::int64_t> same_in_all(std::string_view key) const {
    const GgufValue* const value = file_.find(keys_.full(key));
    if (value == nullptr || value->type != GgufType::Array) return keys_.integer(key);
    std::int64_t same = 0;
    for (const std::int64_t number : file_.integers(keys_.full(key))) {
      if (number == 0) continue;
      if (same != 0 && number != same) {
        keys_.fail(key, "differs from layer to layer; allowed: one number for all that have one");
      }
      same = number;
    }
    return same;
  }

  void read_sizes() {
    constexpr std::string_view kCount = "block_count";
    const std::int64_t all = keys_.required(kCount);
    const std::int64_t predicting = keys_.integer("nextn_predict_layers").value_or(0);
    model_.n_layers = all - predicting;
    if (model_.n_layers < 1 || model_.n_layers > kMaxLayers) {
      keys_.fail(
          kCount,
          fmt::format("is {} with {} layers that predict further tokens; allowed: 1 to {} others",
                      all, predicting, kMaxLayers));
    }
    model_.hidden_dim = keys_.required("embedding_length");
    model_.max_position_embeddings = keys_.required("context_length");
    model_.vocab_size = gguf_vocab_size(file_, keys_);
    model_.has_tied_embeddings = file_.find_tensor("output.weight") == nullptr;
    model_.n_heads = same_in_all("attention.head_count").value_or(0);
    if (model_.n_heads == 0) keys_.fail("attention.head_count", "is missing; allowed: an integer");
    model_.n_kv_heads = same_in_all("attention.head_count_kv").value_or(model_.n_heads);
    model_.head_dim = keys_.integer("attention.key_length")
                          .value_or(model_.hidden_dim / std::max<std::int64_t>(model_.n_heads, 1));
  }

  // Layers that attend, and layers that keep a state.
  void read_layer_kinds() {
    LinearAttention& linear = model_.linear_attention;
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      const bool has_state = find(i, "ssm_conv1d") != nullptr || find(i, "ssm_in") != nullptr;
      const bool attends = find(i, "attn_output") != nullptr;
      const bool is_delta = find(i, "ssm_beta") != nullptr || find(i, "ssm_ba") != nullptr;
      if (has_state && attends) fail_layer(i, "attention and a state");
      if (has_state && !is_delta) fail_layer(i, "a state of another kind");
      if (!has_state && !attends) fail_layer(i, "no attention");
      if (find(i, "ffn_down") == nullptr && find(i, "ffn_down_exps") == nullptr) {
        fail_layer(i, "no MLP");
      }
      if (has_state) linear.layers.push_back(i);
    }
    if (linear.layers.empty()) return;
    linear.n_key_heads = keys_.required("ssm.group_count");
    linear.n_value_heads = keys_.required("ssm.time_step_rank");
    linear.key_head_dim = keys_.required("ssm.state_size");
    linear.value_head_dim =
        keys_.required("ssm.inner_size") / std::max<std::int64_t>(linear.n_value_heads, 1);
    linear.conv_width = keys_.required("ssm.conv_kernel");
    linear.bytes_per_delta_element = linear.bytes_per_conv_element = 4;
  }

  // Files from before 2025 have no *_mla, and keys and values of heads instead.
  void read_attention() {
    LatentAttention& latent = model_.latent_attention;
    latent.kv_rank = keys_.integer("attention.kv_lora_rank").value_or(0);
    if (latent.kv_rank == 0 || !has("attn_kv_a_mqa")) {
      latent.kv_rank = 0;
      return;
    }
    latent.q_rank = has("attn_q_a") ? keys_.required("attention.q_lora_rank") : 0;
    latent.rope_dim = keys_.required("rope.dimension_count");
    model_.head_dim = keys_.integer("attention.key_length_mla").value_or(model_.head_dim);
    latent.nope_dim = std::max<std::int64_t>(model_.head_dim - latent.rope_dim, 0);
    latent.value_dim = keys_.has("attention.value_length_mla")
                           ? keys_.required("attention.value_length_mla")
                           : keys_.required("attention.value_length");
    model_.n_kv_heads = model_.n_heads;
    model_.rotary_dim = latent.rope_dim;
  }

  static std::int64_t rows_of(Tensor tensor) {
    return tensor == nullptr || tensor->shape.empty() ? 0 : tensor->shape.front();
  }
  static std::int64_t width_of(Tensor down) {
    return down == nullptr || down->shape.empty() ? 0 : down->shape.back();
  }

  // The mean width of dense MLPs; experts, and which layers have them.
  void read_mlps() {
    std::int64_t sum = 0;
    std::vector<std::int64_t> dense;
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      if (find(i, "ffn_down_exps") != nullptr) continue;
      dense.push_back(i);
      sum += std::min<std::int64_t>(width_of(find(i, "ffn_down")), std::int64_t{1} << 24);
    }
    const auto num_dense = static_cast<std::int64_t>(dense.size());
    const Tensor experts = find_any("ffn_down_exps");
    model_.expert_ffn_dim = width_of(experts);
    model_.ffn_dim = sum > 0 ? (sum + num_dense / 2) / num_dense
                             : same_in_all("feed_forward_length").value_or(0);
    if (model_.ffn_dim == 0) model_.ffn_dim = model_.expert_ffn_dim;
    if (experts == nullptr) return;
    model_.n_experts = rows_of(experts);
    model_.n_experts_per_token = same_in_all("expert_used_count").value_or(1);
    model_.n_dense_layers = num_dense;
    if (!dense.empty() && dense.back() + 1 != num_dense) model_.dense_layers = dense;
    // Some have an MLP of all tokens beside the experts.
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      if (find(i, "ffn_down_exps") == nullptr) continue;
      model_.shared_expert_ffn_dim =
          width_of(find(i, "ffn_down_shexp")) + width_of(find(i, "ffn_down"));
      break;
    }
    const std::int64_t groups = keys_.integer("expert_group_count").value_or(1);
    const std::int64_t used = keys_.integer("expert_group_used_count").value_or(1);
    if (groups > 1 && used > 0) {
      model_.n_expert_groups = groups;
      model_.n_groups_per_token = used;
    }
  }

  // Whether each layer has a window: by a list, or by the interval of the layers that have none.
  std::vector<bool> are_windowed() const {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    WindowDefault rule = {name_, 1};
    for (const WindowDefault& known : kWindows) {
      if (known.name == name_) rule = known;
    }
    const GgufValue* const value = file_.find(keys_.full(kPattern));
    const auto num_layers = static_cast<std::size_t>(model_.n_layers);
    if (value != nullptr && value->type == GgufType::Array) {
      std::vector<bool> listed;
      if (value->element_type == GgufType::Bool) {
        listed = file_.booleans(keys_.full(kPattern));
      } else {
        for (const std::int64_t n : file_.integers(keys_.full(kPattern))) listed.push_back(n != 0);
      }
      if (listed.size() >= num_layers) {
        listed.resize(num_layers);
        return listed;
      }
      keys_.fail(kPattern, "is shorter than the layers; allowed: a truth for each");
    }
    if (value != nullptr) rule.interval = keys_.required(kPattern);
    std::vector<bool> windowed;
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      const std::int64_t place = rule.is_first_global ? i : i + 1;
      windowed.push_back(rule.interval == 0 || place % rule.interval != 0);
    }
    return windowed;
  }

  void read_windows() {
    const std::int64_t window = keys_.integer("attention.sliding_window").value_or(0);
    if (window == 0) return;
    const std::vector<bool> windowed = are_windowed();
    const auto has_window = [&](std::int64_t i) { return windowed[static_cast<std::size_t>(i)]; };
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      if (has_window(i) && !model_.is_linear_layer(i)) model_.window_layers.push_back(i);
    }
    if (model_.window_layers.empty()) return;
    model_.sliding_window = window;
    if (!model_.linear_attention.is_empty()) return;
    const auto first_global = std::find(windowed.begin(), windowed.end(), false);
    const std::int64_t interval =
        first_global == windowed.end() ? 0 : first_global - windowed.begin() + 1;
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      if (has_window(i) != (interval == 0 || (i + 1) % interval != 0)) return;
    }
    model_.window_layers.clear();
    model_.global_layer_interval = interval;
  }

  // Parts of a layer, as the tensors have them.
  void read_traits() {
    model_.has_layer_norms = keys_.has("attention.layer_norm_epsilon");
    model_.has_norm_biases = has("attn_norm", "bias");
    std::int64_t num_norms = 0;
    for (const GgufTensor& tensor : file_.tensors()) {
      const GgufName name = split_gguf_name(tensor.name);
      const bool is_norm = name.part.find("norm") != name.part.npos && name.ending == "weight";
      if (name.layer == 0 && is_norm && tensor.shape.size() == 1 &&
          tensor.shape.front() == model_.hidden_dim) {
        ++num_norms;
      }
    }
    model_.has_post_norms = num_norms >= 4;
    if (const Tensor norm = find_any("attn_q_norm")) {
      model_.has_qk_norm = true;
      model_.has_whole_qk_norm = model_.n_heads > 1 && num_elements(*norm) == model_.query_dim();
    }
    model_.has_qkv_biases = has("attn_q", "bias") || has("attn_qkv", "bias");
    model_.has_attention_output_bias = has("attn_output", "bias");
    model_.has_mlp_biases = has("ffn_down", "bias");
    model_.has_expert_biases = has("ffn_down_exps", "bias");
    model_.has_router_biases = has("ffn_gate_inp", "bias");
    model_.has_sigmoid_router = model_.has_choice_bias = has("exp_probs_b", "bias");
    model_.has_attention_sinks = has("attn_sinks");
    model_.has_shared_expert_gate = has("ffn_gate_inp_shexp");
    model_.has_learned_positions = file_.find_tensor("position_embd.weight") != nullptr;
    model_.has_gated_mlp =
        has("ffn_gate") || has("ffn_gate_exps") || has("ffn_gate_up_exps") || has_gate_in_up();
    model_.has_gated_attention = has_gated_attention();
  }

  bool has_gate_in_up() const { return rows_of(find_any("ffn_up")) == 2 * model_.ffn_dim; }

  // A tensor of its own, or rows behind those of the queries.
  bool has_gated_attention() const {
    for (std::int64_t i = 0; i < model_.n_layers; ++i) {
      if (find(i, "attn_output") == nullptr) continue;
      return rows_of(find(i, "attn_gate")) == model_.query_dim() ||
             (model_.latent_attention.is_empty() &&
              rows_of(find(i, "attn_q")) == 2 * model_.query_dim());
    }
    return false;
  }

  // Parts that the shape leaves out would cost nothing, so that they must be small.
  void check_counts() {
    const std::int64_t in_file = gguf_size(file_, model_.n_layers).num_params;
    const std::int64_t counted = model_.n_params();
    if (in_file > 0 && std::abs(in_file - counted) > in_file / 100) {
      const auto shown = [](std::int64_t params) {
        return fixed_text(static_cast<double>(params) / 1e6, 1) + " M";
      };
      file_.fail(kArchitectureKey,
                 gguf_shown(name_) + " has parts of another shape: attention, MLPs and experts " +
                     "would have " + shown(counted) + " parameters, and the file's tensors have " +
                     shown(in_file) + "; allowed: a model of which they are 99 %");
    }
    model_.unsupported = std::string(kArchitectureKey) + ": " + gguf_shown(name_) +
                         " is only simulated; allowed: " + gguf_family_names();
    if (find_family(model_.architecture) != nullptr) return;
    model_.approximation =
        printable(name_) + " is an unknown architecture: it is simulated as " +
        (model_.n_experts > 0 ? "a mixture of experts" : "a dense model") + " with " +
        (model_.latent_attention.is_empty() ? "attention of grouped queries" : "latent attention") +
        (model_.linear_attention.is_empty() ? "" : " and layers with a state") +
        (model_.n_window_layers() > 0 ? " and windows" : "") +
        ", by the keys and tensors of its file; its other parts cost nothing";
  }

  const GgufFile& file_;
  GgufKeys keys_;
  std::string name_;
  ModelConfig model_;
};

}  // namespace

bool has_gguf_shape(const GgufFile& file, std::string_view architecture) {
  const GgufKeys keys(file, architecture);
  const bool is_causal = file.boolean(keys.full("attention.causal")).value_or(true);
  return is_causal && !file.tensors().empty() && keys.has("block_count") &&
         keys.has("embedding_length") && keys.has("attention.head_count");
}

ModelConfig read_gguf_shape(const GgufFile& file, std::string_view architecture,
                            const std::string& name) {
  return ShapeReader(file, architecture).read(name);
}

std::int64_t gguf_vocab_size(const GgufFile& file, const GgufKeys& keys) {
  constexpr const char* kEmbedding = "token_embd.weight";
  if (const GgufTensor* table = file.find_tensor(kEmbedding)) {
    if (table->shape.size() != 2) {
      file.fail(kEmbedding, "is not a matrix; allowed: a row for each token");
    }
    return table->shape.front();
  }
  if (const GgufValue* tokens = file.find("tokenizer.ggml.tokens")) {
    constexpr std::uint64_t kMax = std::uint64_t{1} << 40;
    return static_cast<std::int64_t>(std::min(tokens->count, kMax));
  }
  return keys.required("vocab_size");
}

}  // namespace metronome
