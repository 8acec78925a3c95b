// SPDX-License-Identifier: Apache-2.0
#include "core/model/model_modules.h"

#include <algorithm>
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

// Collects the modules of one model.
class Modules {
 public:
  explicit Modules(const ModelConfig& model) : model_(model) {
    const ModelFamily* const family = find_family(model.architecture);
    if (family != nullptr) tensors_ = family->tensors;
  }

  std::vector<ModelModule> all() {
    for (std::int64_t layer = 0; layer < model_.n_layers; ++layer) {
      begin_layer(layer);
      model_.is_linear_layer(layer) ? add_states() : add_attention();
      model_.is_moe_layer(layer) ? add_experts() : add_mlp(ModuleKind::MlpIn, "mlp.");
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
    for (std::string& root : roots_) root += std::to_string(layer) + ".";
  }

  void add(ModuleKind kind, const std::vector<std::string>& names, std::int64_t num_params) {
    ModelModule module{.names = {}, .kind = kind, .num_params = num_params};
    for (const std::string& root : roots_) {
      for (const std::string& name : names) module.names.push_back(root + name);
    }
    modules_.push_back(std::move(module));
  }

  void add_attention() {
    const std::int64_t hidden = model_.hidden_dim;
    const std::int64_t query = model_.query_dim();
    const std::int64_t kv = model_.kv_dim();
    if (!model_.latent_attention.is_empty()) return add_latent_attention();
    const bool is_fused = tensors_ == TensorNames::Phi3 || tensors_ == TensorNames::Gpt2;
    if (is_fused) {
      add(ModuleKind::AttentionIn, {"self_attn.qkv_proj", "attn.c_attn"},
          hidden * (query + 2 * kv));
      return add(ModuleKind::AttentionOut, {"self_attn.o_proj", "attn.c_proj"}, query * hidden);
    }
    const std::int64_t gate = model_.has_gated_attention ? query : 0;
    add(ModuleKind::AttentionIn, {"self_attn.q_proj"}, hidden * (query + gate));
    add(ModuleKind::AttentionIn, {"self_attn.k_proj"}, hidden * kv);
    add(ModuleKind::AttentionIn, {"self_attn.v_proj"}, hidden * kv);
    add(ModuleKind::AttentionOut, {"self_attn.o_proj"}, query * hidden);
  }

  void add_latent_attention() {
    const LatentAttention& latent = model_.latent_attention;
    const std::int64_t hidden = model_.hidden_dim;
    const std::int64_t queries = model_.n_heads * (latent.nope_dim + latent.rope_dim);
    if (latent.q_rank > 0) {
      add(ModuleKind::AttentionIn, {"self_attn.q_a_proj"}, hidden * latent.q_rank);
      add(ModuleKind::AttentionIn, {"self_attn.q_b_proj"}, latent.q_rank * queries);
    } else {
      add(ModuleKind::AttentionIn, {"self_attn.q_proj"}, hidden * queries);
    }
    add(ModuleKind::AttentionIn, {"self_attn.kv_a_proj_with_mqa"}, hidden * latent.cached_dim());
    add(ModuleKind::AttentionIn, {"self_attn.kv_b_proj"},
        latent.kv_rank * model_.n_heads * (latent.nope_dim + latent.value_dim));
    add(ModuleKind::AttentionOut, {"self_attn.o_proj"}, model_.n_heads * latent.value_dim * hidden);
  }

  void add_states() {
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

  // A dense MLP or a shared expert, below this prefix.
  void add_mlp(ModuleKind in, const std::string& below) {
    const bool is_dense = in == ModuleKind::MlpIn;
    const ModuleKind out = is_dense ? ModuleKind::MlpOut : ModuleKind::SharedOut;
    const std::int64_t matrix =
        model_.hidden_dim * (is_dense ? model_.ffn_dim : model_.shared_expert_ffn_dim);
    if (tensors_ == TensorNames::Phi3) {
      add(in, {below + "gate_up_proj"}, 2 * matrix);
    } else {
      if (model_.has_gated_mlp) add(in, {below + "gate_proj"}, matrix);
      add(in, {below + "up_proj", below + "c_fc"}, matrix);
    }
    add(out, {below + "down_proj", below + "c_proj"}, matrix);
  }

  void add_experts() {
    const std::int64_t matrix = model_.n_experts * model_.hidden_dim * model_.expert_ffn_dim;
    // A matrix of the first expert, that of all, and the module of all.
    const auto names = [this](const std::string& one, const std::string& all,
                              const std::string& of_mixtral) {
      std::vector<std::string> found = {"block_sparse_moe.experts.0." + of_mixtral,
                                        "block_sparse_moe.experts"};
      if (tensors_ == TensorNames::Mixtral) return found;
      for (const std::string& name : {"0." + one, all}) found.push_back("mlp.experts." + name);
      found.emplace_back("mlp.experts");
      return found;
    };
    if (model_.has_gated_mlp) {
      add(ModuleKind::ExpertIn, names("gate_proj", "gate_up_proj", "w1"), matrix);
    }
    add(ModuleKind::ExpertIn, names("up_proj", "gate_up_proj", "w3"), matrix);
    add(ModuleKind::ExpertOut, names("down_proj", "down_proj", "w2"), matrix);
    if (model_.shared_expert_ffn_dim == 0) return;
    const bool is_one = model_.has_shared_expert_gate;  // Qwen; DeepSeek has several, joined
    add_mlp(ModuleKind::SharedIn, is_one ? "mlp.shared_expert." : "mlp.shared_experts.");
  }

  const ModelConfig& model_;
  TensorNames tensors_ = TensorNames::Llama;
  std::vector<std::string> roots_;
  std::vector<ModelModule> modules_;
};

}  // namespace

std::vector<ModelModule> model_modules(const ModelConfig& model) { return Modules(model).all(); }

bool ModuleList::add(const std::string& entry) {
  const std::size_t number = num_entries_++;
  if (!entry.starts_with(kRegex)) {
    const std::string name = lower_ascii(entry);
    if (names_ == Names::Whole || name.find_first_of("*?") == std::string::npos) {
      named_.emplace(name, number);
    } else {
      patterns_.push_back(
          {number, std::nullopt, {name, name + ".*", "*." + name, "*." + name + ".*"}});
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
    patterns_.push_back({number, std::regex(std::string(regex), flags), {}});
  } catch (const std::regex_error&) {
    return false;
  }
  return true;
}

bool ModuleList::matches(const Pattern& pattern, std::string_view name) {
  if (pattern.regex) {
    return std::regex_search(name.begin(), name.end(), *pattern.regex,
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
