// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_modules.h"

#include <algorithm>
#include <fmt/core.h>
#include <initializer_list>
#include <regex>
#include <span>
#include <utility>

#include "core/base/names.h"
#include "core/model/model_family.h"

namespace metronome {
namespace {

constexpr std::string_view kRegex = "re:";
constexpr std::size_t kMaxRegex = 1000;

// Whether the whole text is as the pattern says, in which * stands for any characters and ? for
// one.
bool is_glob_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  for (std::size_t t = 0; t < text.size();) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Other names of projections: of families whose files join some of them, and of those with words
// of their own (GLM, Falcon, GPT-NeoX, InternLM 2, MPT, Phi, OPT, Granite).
constexpr const char* kJoinedInputs[] = {"self_attn.qkv_proj", "self_attention.query_key_value",
                                         "attention.query_key_value", "attention.wqkv",
                                         "attn.wqkv"};
constexpr const char* kOutputs[] = {"self_attn.dense", "self_attention.dense",
                                    "attention.dense", "attention.wo",
                                    "attn.out_proj",   "self_attn.out_proj"};

// Collects the modules of one model.
class Modules {
 public:
  explicit Modules(const ModelConfig& model) : model_(model) {
    const ModelFamily* const family = find_family(model.architecture);
    if (family != nullptr) tensors_ = family->tensors;
  }

  std::vector<ModelModule> all() {
    const std::vector<LayerKind> kinds = layer_kinds(model_);
    std::vector<const LayerKind*> of_layers(static_cast<std::size_t>(model_.n_layers));
    for (const LayerKind& kind : kinds) {
      for (const std::int64_t layer : kind.layers) {
        of_layers[static_cast<std::size_t>(layer)] = &kind;
      }
    }
    for (std::size_t layer = 0; layer < of_layers.size(); ++layer) {
      begin_layer(static_cast<std::int64_t>(layer));
      const LayerKind& kind = *of_layers[layer];
      if (!kind.attention.is_empty()) add_attention(kind.attention);
      if (!kind.state.is_empty()) add_state(kind.state);
      if (kind.has_experts) add_experts();
      if (kind.ffn_dim > 0) add_mlp(ModuleKind::MlpIn, {"mlp."}, kind.ffn_dim);
      if (kind.side_params > 0) add(ModuleKind::MlpIn, {"side"}, kind.side_params);
    }
    const std::int64_t tables = model_.n_embedding_params();
    roots_ = {"model.", "model.language_model.", "language_model.model.", "transformer.", ""};
    add(ModuleKind::Embedding, {"embed_tokens", "wte"}, tables);
    roots_ = {"", "language_model.", "model.", "model.language_model."};
    if (!model_.has_tied_embeddings) add(ModuleKind::Head, {"lm_head"}, tables);
    return std::move(modules_);
  }

 private:
  void begin_layer(std::int64_t layer) {
    roots_ = {"model.layers.", "model.language_model.layers.", "language_model.model.layers."};
    if (tensors_ == TensorNames::Gpt2) roots_ = {"transformer.h.", "h."};
    if (is_unknown())
      roots_.insert(roots_.end(),
                    {"backbone.layers.", "layers.", "transformer.h.", "transformer.encoder.layers.",
                     "gpt_neox.layers.", "model.decoder.layers."});
    for (std::string& root : roots_) root += fmt::format("{}.", layer);
  }

  void add(ModuleKind kind, const std::vector<std::string>& names, std::int64_t num_params) {
    const bool is_expert = kind == ModuleKind::ExpertIn || kind == ModuleKind::ExpertOut;
    ModelModule module{.names = {},
                       .kind = kind,
                       .num_params = num_params,
                       .num_matrices = is_expert ? model_.n_experts : 1};
    for (const std::string& root : roots_) {
      for (const std::string& name : names) module.names.push_back(root + name);
    }
    modules_.push_back(std::move(module));
  }

  // A model of no family, whose file may call a part of a layer by several names.
  bool is_unknown() const { return !model_.given_kinds.empty(); }

  void add_mixer(ModuleKind kind, const std::string& name, std::int64_t num_params,
                 std::span<const char* const> others = {}) {
    std::vector<std::string> names = {"self_attn." + name};
    names.insert(names.end(), others.begin(), others.end());
    if (is_unknown()) {
      for (const char* part : {"mixer.", "attn.", "attention.", "linear_attn.", "mamba."}) {
        names.push_back(part + name);
      }
    }
    add(kind, names, num_params);
  }

  void add_attention(const AttentionPart& attention) {
    if (!attention.latent.is_empty()) return add_latent_attention(attention);
    const bool is_fused = tensors_ == TensorNames::Phi3 || tensors_ == TensorNames::Gpt2;
    if (is_fused) {
      add(ModuleKind::AttentionIn, {"self_attn.qkv_proj", "attn.c_attn"}, attention.in_params);
      return add(ModuleKind::AttentionOut, {"self_attn.o_proj", "attn.c_proj"},
                 attention.out_params);
    }
    const std::int64_t heads = attention.shares_kv ? 0 : model_.hidden_dim * attention.n_kv_heads;
    const std::int64_t keys = heads * attention.head_dim;
    const std::int64_t values = attention.keys_are_values ? 0
                                                          : std::min(heads * attention.value_dim,
                                                                     attention.in_params - keys);
    add_mixer(ModuleKind::AttentionIn, "q_proj", attention.in_params - keys - values,
              kJoinedInputs);
    if (keys > 0) add_mixer(ModuleKind::AttentionIn, "k_proj", keys, kJoinedInputs);
    if (values > 0) add_mixer(ModuleKind::AttentionIn, "v_proj", values, kJoinedInputs);
    add_mixer(ModuleKind::AttentionOut, "o_proj", attention.out_params, kOutputs);
  }

  void add_latent_attention(const AttentionPart& attention) {
    const LatentAttention& latent = attention.latent;
    const std::int64_t hidden = model_.hidden_dim;
    const std::int64_t from_latent =
        latent.kv_rank * attention.n_heads * (latent.nope_dim + latent.value_dim);
    const std::int64_t to_latent = hidden * latent.cached_dim();
    // An index and a gate, where there are any, count with the queries.
    const std::int64_t of_queries = attention.in_params - to_latent - from_latent;
    if (latent.q_rank > 0) {
      add_mixer(ModuleKind::AttentionIn, "q_a_proj", hidden * latent.q_rank);
      add_mixer(ModuleKind::AttentionIn, "q_b_proj", of_queries - hidden * latent.q_rank);
    } else {
      add_mixer(ModuleKind::AttentionIn, "q_proj", of_queries);
    }
    add_mixer(ModuleKind::AttentionIn, "kv_a_proj_with_mqa", to_latent);
    add_mixer(ModuleKind::AttentionIn, "kv_b_proj", from_latent);
    add_mixer(ModuleKind::AttentionOut, "o_proj", attention.out_params);
  }

  void add_state(const StatePart& state) {
    if (is_unknown()) {
      add_mixer(ModuleKind::StateIn, "in_proj", state.in_params);
      return add_mixer(ModuleKind::StateOut, "out_proj", state.out_params);
    }
    const LinearAttention& linear = model_.linear_attention;
    const std::int64_t hidden = model_.hidden_dim;
    const std::int64_t inputs = hidden * linear.conv_channels();
    const std::int64_t values = hidden * linear.value_dim();
    const std::int64_t gates = hidden * linear.n_value_heads;
    if (tensors_ == TensorNames::Qwen3Next) {
      add(ModuleKind::StateIn, {"linear_attn.in_proj_qkvz"}, inputs + values);
      add(ModuleKind::StateIn, {"linear_attn.in_proj_ba"}, 2 * gates);
    } else {
      add(ModuleKind::StateIn, {"linear_attn.in_proj_qkv"}, inputs);
      add(ModuleKind::StateIn, {"linear_attn.in_proj_z"}, values);
      add(ModuleKind::StateIn, {"linear_attn.in_proj_b"}, gates);
      add(ModuleKind::StateIn, {"linear_attn.in_proj_a"}, gates);
    }
    add(ModuleKind::StateOut, {"linear_attn.out_proj"}, values);
  }

  // A dense MLP or a shared expert, below any of these prefixes.
  void add_mlp(ModuleKind in, std::vector<std::string> below, std::int64_t width) {
    const ModuleKind out = in == ModuleKind::MlpIn ? ModuleKind::MlpOut : ModuleKind::SharedOut;
    const std::int64_t matrix = model_.hidden_dim * width;
    if (is_unknown() && in == ModuleKind::MlpIn) {
      below.insert(below.end(), {"mixer.", "feed_forward."});
    }
    const auto names = [&below](std::initializer_list<const char*> of_part) {
      std::vector<std::string> all;
      for (const std::string& prefix : below) {
        for (const char* name : of_part) all.push_back(prefix + name);
      }
      return all;
    };
    if (tensors_ == TensorNames::Phi3) {
      add(in, names({"gate_up_proj"}), 2 * matrix);
    } else {
      if (model_.has_gated_mlp) {
        add(in, names({"gate_proj", "gate_up_proj", "w1", "input_linear", "dense_h_to_4h"}),
            matrix);
      }
      add(in,
          names({"up_proj", "c_fc", "gate_up_proj", "w3", "input_linear", "fc1", "dense_h_to_4h"}),
          matrix);
    }
    add(out, names({"down_proj", "c_proj", "w2", "output_linear", "fc2", "dense_4h_to_h"}), matrix);
  }

  void add_experts() {
    const std::int64_t matrix =
        model_.n_experts * (model_.n_expert_params() / model_.n_mlp_matrices());
    // A matrix of the first expert, that of all, and the module of all.
    const auto names = [this](const std::string& one, const std::string& all,
                              const std::string& of_mixtral) {
      std::vector<std::string> found = {"block_sparse_moe.experts.0." + of_mixtral,
                                        "block_sparse_moe.experts"};
      if (tensors_ == TensorNames::Mixtral) return found;
      if (!is_unknown()) found.clear();
      if (model_.architecture.starts_with("Granite")) {  // all experts of a layer in one
        found.push_back(of_mixtral == "w2" ? "block_sparse_moe.output_linear"
                                           : "block_sparse_moe.input_linear");
      }
      for (const char* part : {"mlp.", "mixer.", "moe.", "ffn.", "feed_forward."}) {
        const std::string experts = std::string(part) + "experts";
        found.insert(found.end(), {experts + ".0." + one, experts + "." + all, experts});
        if (!is_unknown()) break;
      }
      return found;
    };
    if (model_.has_gated_mlp) {
      add(ModuleKind::ExpertIn, names("gate_proj", "gate_up_proj", "w1"), matrix);
    }
    add(ModuleKind::ExpertIn, names("up_proj", "gate_up_proj", "w3"), matrix);
    add(ModuleKind::ExpertOut, names("down_proj", "down_proj", "w2"), matrix);
    if (model_.expert_hidden_dim > 0) {
      const std::int64_t projection = model_.hidden_dim * model_.expert_hidden_dim;
      add(ModuleKind::SharedIn, {"mixer.fc1_latent_proj", "mlp.fc1_latent_proj"}, projection);
      add(ModuleKind::SharedOut, {"mixer.fc2_latent_proj", "mlp.fc2_latent_proj"}, projection);
    }
    if (model_.shared_expert_ffn_dim == 0) return;
    std::vector<std::string> below = {"mlp.shared_experts."};  // DeepSeek has several, joined
    if (model_.architecture.starts_with("HunYuan")) below = {"mlp.shared_mlp."};
    if (model_.has_shared_expert_gate) below = {"mlp.shared_expert."};  // Qwen
    if (is_unknown()) {
      below.insert(below.end(),
                   {"mlp.shared_expert.", "mixer.shared_experts.", "shared_mlp.", "share_expert.",
                    "ffn.shared_experts.", "feed_forward.shared_expert.",
                    "block_sparse_moe.shared_experts."});
    }
    add_mlp(ModuleKind::SharedIn, below, model_.shared_expert_ffn_dim);
  }

  const ModelConfig& model_;
  TensorNames tensors_ = TensorNames::Llama;
  std::vector<std::string> roots_;
  std::vector<ModelModule> modules_;
};

}  // namespace

std::vector<ModelModule> model_modules(const ModelConfig& model) { return Modules(model).all(); }

struct ModuleList::CompiledRegex {
  explicit CompiledRegex(std::regex compiled) : regex(std::move(compiled)) {}
  std::regex regex;
};

bool ModuleList::add(const std::string& entry) {
  const std::size_t number = num_entries_++;
  if (!entry.starts_with(kRegex)) {
    const std::string name = lower_ascii(entry);
    if (names_ == Names::Whole || name.find_first_of("*?") == std::string::npos) {
      named_.emplace(name, number);
    } else {
      patterns_.push_back({number, nullptr, {name, name + ".*", "*." + name, "*." + name + ".*"}});
    }
    return true;
  }
  std::string_view regex = std::string_view(entry).substr(kRegex.size());
  if (regex.size() > kMaxRegex) return false;
  auto flags = std::regex::ECMAScript;
  constexpr std::string_view kAnyCase = "(?i)";
  if (regex.starts_with(kAnyCase)) {
    regex.remove_prefix(kAnyCase.size());
    flags |= std::regex::icase;
  }
  try {
    patterns_.push_back(
        {number, std::make_shared<CompiledRegex>(std::regex(std::string(regex), flags)), {}});
  } catch (const std::regex_error&) {
    return false;
  }
  return true;
}

bool ModuleList::matches(const Pattern& pattern, std::string_view name) {
  if (pattern.regex) {
    return std::regex_search(name.begin(), name.end(), pattern.regex->regex,
                             std::regex_constants::match_continuous);
  }
  return std::any_of(pattern.globs.begin(), pattern.globs.end(),
                     [name](const std::string& glob) { return is_glob_match(glob, name); });
}

std::optional<std::size_t> ModuleList::find_text(std::string_view text) const {
  const auto found = named_.find(text);
  return found == named_.end() ? std::nullopt : std::optional(found->second);
}

// By the name, or the longest of its parts.
std::optional<std::size_t> ModuleList::find_named(std::string_view name) const {
  if (names_ == Names::Whole || named_.empty()) return find_text(name);
  std::vector<std::size_t> begins = {0};
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '.') begins.push_back(i + 1);
  }
  begins.push_back(name.size() + 1);
  const std::size_t num_words = begins.size() - 1;
  for (std::size_t length = num_words; length > 0; --length) {
    for (std::size_t first = 0; first + length <= num_words; ++first) {
      const std::size_t end = begins[first + length] - 1;
      const auto found = find_text(name.substr(begins[first], end - begins[first]));
      if (found) return found;
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> ModuleList::find(const ModelModule& module) const {
  for (const std::string& name : module.names) {
    if (const auto found = find_named(name)) return found;
  }
  for (const Pattern& pattern : patterns_) {
    for (const std::string& name : module.names) {
      if (matches(pattern, name)) return pattern.entry;
    }
  }
  return std::nullopt;
}

}  // namespace metronome
