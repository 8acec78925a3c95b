// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_layers.h"

#include <algorithm>
#include <fmt/core.h>
#include <string>
#include <string_view>

#include "core/base/number_chars.h"

namespace metronome {
namespace {

constexpr const char* kNumLayersKeys[] = {
    "num_hidden_layers",     "n_layer", "n_layers", "num_layers", "decoder_layers", "num_blocks",
    "num_transformer_layers"};
constexpr const char* kWordsKeys[] = {"layers_block_type", "layer_types", "block_types"};
constexpr const char* kPatternKey =
    "hybrid_override_pattern";  // Nemotron-H: a letter for each block

enum class Word : std::uint8_t { Unknown, Attention, Window, State, Both, Mlp, Experts };

struct NamedWord {
  std::string_view name;
  Word word;
};

// Of layer_types and its like.
constexpr NamedWord kNamedWords[] = {
    {"full_attention", Word::Attention},
    {"attention", Word::Attention},
    {"full", Word::Attention},
    {"global", Word::Attention},
    {"global_attention", Word::Attention},
    {"sparse_attention", Word::Attention},
    {"indexed_attention", Word::Attention},
    {"*", Word::Attention},
    {"sliding_attention", Word::Window},
    {"sliding_window_attention", Word::Window},
    {"sliding_window", Word::Window},
    {"chunked_attention", Word::Window},
    {"local", Word::Window},
    {"local_attention", Word::Window},
    {"linear_attention", Word::State},
    {"mamba", Word::State},
    {"mamba2", Word::State},
    {"conv", Word::State},
    {"short_conv", Word::State},
    {"recurrent", Word::State},
    {"kda", Word::State},
    {"M", Word::State},
    {"hybrid", Word::Both},
    {"hybrid_sliding", Word::Window},
    {"mlp", Word::Mlp},
    {"dense", Word::Mlp},
    {"-", Word::Mlp},
    {"moe", Word::Experts},
    {"sparse", Word::Experts},
    {"E", Word::Experts},
};

Word word_of(std::string_view name) {
  for (const NamedWord& named : kNamedWords) {
    if (named.name == name) return named.word;
  }
  // New kinds of attention have new names.
  const bool attends = name.ends_with("attention") || name.ends_with("sparse");
  return attends ? Word::Attention : Word::Unknown;
}

// The layers that a rule is for.
class LayerPlans {
 public:
  LayerPlans(AnyKeys& keys, std::vector<LayerPlan>& plans) : keys_(keys), plans_(plans) {}

  std::int64_t size() const { return static_cast<std::int64_t>(plans_.size()); }

  template <class Is>
  void set(bool LayerPlan::*member, Is is) {
    for (std::int64_t i = 0; i < size(); ++i) plans_[static_cast<std::size_t>(i)].*member = is(i);
  }

  void set_listed(bool LayerPlan::*member, const std::vector<std::int64_t>& layers) {
    set(member,
        [&](std::int64_t i) { return std::binary_search(layers.begin(), layers.end(), i); });
  }

  // By words. False: there are none for so many layers, or an unknown one.
  bool apply_words() {
    std::vector<std::string> words;
    if (keys_.section().find(kPatternKey) != nullptr) {
      for (const char letter : keys_.section().text_or(kPatternKey, "")) {
        if (letter != '|') words.emplace_back(1, letter);
      }
      keys_.remember(kPatternKey);
    }
    for (const char* name : kWordsKeys) {
      if (words.empty()) words = keys_.words(name);
    }
    // RecurrentGemma's list repeats.
    if (words.empty()) return false;
    std::vector<Word> kinds;
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      kinds.push_back(word_of(words[i % words.size()]));
    }
    if (std::find(kinds.begin(), kinds.end(), Word::Unknown) != kinds.end()) return false;
    // A block is then either a mixer or an MLP.
    const bool has_parts = std::any_of(kinds.begin(), kinds.end(), [](Word word) {
      return word == Word::Mlp || word == Word::Experts;
    });
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      LayerPlan& plan = plans_[i];
      const Word word = kinds[i];
      const bool is_mlp = word == Word::Mlp || word == Word::Experts;
      plan.attends = !is_mlp && word != Word::State;
      plan.has_window = word == Word::Window;
      plan.has_state = word == Word::State || word == Word::Both;
      if (!has_parts) continue;
      plan.has_mlp = is_mlp;
      plan.has_experts = word == Word::Experts;
    }
    has_parts_ = has_parts;
    return true;
  }

  bool has_parts() const { return has_parts_; }

  // GLM-5.3.
  void share_indices() {
    const auto words = keys_.words("indexer_types");
    if (static_cast<std::int64_t>(words.size()) < size()) return;
    set(&LayerPlan::shares_index,
        [&](std::int64_t i) { return words[static_cast<std::size_t>(i)] == "shared"; });
  }

  void plan_mixers() {
    const auto numbered = [&](const char* name) { return keys_.per_layer(name, size()); };
    if (apply_words()) return;
    // Every n-th layer attends to the whole context.
    constexpr const char* kInterval[] = {"sliding_window_pattern", "_sliding_window_pattern"};
    if (const std::int64_t every = keys_.number(kInterval); every > 1) {
      return set(&LayerPlan::has_window, [&](std::int64_t i) { return (i + 1) % every != 0; });
    }
    // MiMo: 1 = a window. MiniMax-01: 1 = attends.
    if (const auto flags = numbered("hybrid_layer_pattern"); !flags.empty()) {
      return set(&LayerPlan::has_window,
                 [&](std::int64_t i) { return flags[static_cast<std::size_t>(i)] == 1; });
    }
    if (const auto flags = numbered("attn_type_list"); !flags.empty()) {
      return mix_states([&](std::int64_t i) { return flags[static_cast<std::size_t>(i)] == 1; });
    }
    // Kimi Linear counts from 1.
    if (const auto nested = keys_.section().section("linear_attn_config")) {
      AnyKeys inner(*nested);
      if (const auto listed = inner.layers("full_attn_layers", 1); !listed.empty()) {
        keys_.remember("linear_attn_config");
        return mix_listed(listed);
      }
    }
    for (const char* name : {"attn_layer_indices", "full_attn_idxs"}) {
      if (const auto listed = keys_.layers(name); !listed.empty()) return mix_listed(listed);
    }
    const std::int64_t period = keys_.number("attn_layer_period");
    if (period > 0) {
      const std::int64_t offset = keys_.number("attn_layer_offset");
      return mix_states([&](std::int64_t i) { return i % period == offset; });
    }
    // PLaMo 2.
    if (const std::int64_t step = keys_.number("mamba_step"); step > 1) {
      return mix_states([&](std::int64_t i) { return i % step == step / 2; });
    }
    const std::int64_t interval = keys_.number("full_attention_interval");
    const std::int64_t group = keys_.number("layer_group_size");
    if (interval > 0 || group > 0) {
      const std::int64_t every = std::max(interval, group);
      return mix_states([&](std::int64_t i) { return (i + 1) % every == 0; });
    }
  }

  // Layers that attend, and others with a state.
  template <class Attends>
  void mix_states(Attends attends) {
    set(&LayerPlan::attends, attends);
    set(&LayerPlan::has_state, [&](std::int64_t i) { return !attends(i); });
  }

  void mix_listed(const std::vector<std::int64_t>& attending) {
    mix_states(
        [&](std::int64_t i) { return std::binary_search(attending.begin(), attending.end(), i); });
  }

  void plan_experts() {
    bool LayerPlan::*const member = &LayerPlan::has_experts;
    if (const auto words = keys_.words("mlp_layer_types");
        static_cast<std::int64_t>(words.size()) >= size()) {
      return set(member,
                 [&](std::int64_t i) { return words[static_cast<std::size_t>(i)] != "dense"; });
    }
    if (const auto flags = keys_.per_layer("moe_layer_freq", size()); !flags.empty()) {
      return set(member, [&](std::int64_t i) { return flags[static_cast<std::size_t>(i)] != 0; });
    }
    if (const auto listed = keys_.layers("moe_layers"); !listed.empty()) {
      return set_listed(member, listed);
    }
    if (const auto listed = numbers_of_text("moe_layers_enum"); !listed.empty()) {
      return set_listed(member, listed);
    }
    if (const std::int64_t period = keys_.number("expert_layer_period"); period > 0) {
      const std::int64_t offset = keys_.number("expert_layer_offset");
      return set(member, [&](std::int64_t i) { return i % period == offset; });
    }
    if (const std::int64_t step = keys_.number("interleave_moe_layer_step"); step > 0) {
      return set(member, [&](std::int64_t i) { return (i + 1) % step == 0; });
    }
    constexpr const char* kDense[] = {"first_k_dense_replace", "num_dense_layers",
                                      "moe_layer_start_index", "n_dense_layers",
                                      "num_dense_first_layers"};
    constexpr const char* kStep[] = {"moe_layer_interval", "decoder_sparse_step", "moe_layer_freq"};
    const std::int64_t num_dense = keys_.number(kDense);
    const std::int64_t end = keys_.number("moe_layer_end_index", size());
    const std::int64_t step = std::max<std::int64_t>(keys_.number(kStep, 1), 1);
    const std::vector<std::int64_t> dense = keys_.layers("mlp_only_layers");
    set(member, [&](std::int64_t i) {
      return i >= num_dense && i <= end && (i + 1) % step == 0 &&
             !std::binary_search(dense.begin(), dense.end(), i);
    });
  }

 private:
  // "3,4,5": Step.
  std::vector<std::int64_t> numbers_of_text(const char* name) {
    const Json* const value = keys_.section().find(name);
    if (value == nullptr || !value->is_string()) return {};
    std::vector<std::int64_t> numbers;
    const std::string text = value->get<std::string>();
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end) {
      std::int64_t number = 0;
      const auto [next, error] = read_number(at, end, number);
      if (error != std::errc()) return {};
      numbers.push_back(number);
      at = next + (next < end ? 1 : 0);
    }
    keys_.remember(name);
    std::sort(numbers.begin(), numbers.end());
    return numbers;
  }

  AnyKeys& keys_;
  std::vector<LayerPlan>& plans_;
  bool has_parts_ = false;
};

}  // namespace

std::int64_t num_layers(AnyKeys& keys) {
  constexpr std::int64_t kMost = 4096;
  std::int64_t layers = 0;
  if (keys.has(kNumLayersKeys)) {
    layers = keys.required(kNumLayersKeys);
  } else if (keys.section().find(kPatternKey) != nullptr) {
    layers = static_cast<std::int64_t>(keys.section().text_or(kPatternKey, "").size());
  } else {
    for (const char* name : kWordsKeys) {
      if (layers == 0) layers = static_cast<std::int64_t>(keys.words(name).size());
    }
  }
  if (layers < 1 || layers > kMost) {
    keys.section().fail_absent("num_hidden_layers", fmt::format("1 to {}", kMost));
  }
  return layers;
}

std::vector<LayerPlan> plan_layers(AnyKeys& keys, std::int64_t n_layers, bool has_experts,
                                   bool is_state) {
  LayerPlan usual;
  usual.attends = !is_state;
  usual.has_state = is_state;
  std::vector<LayerPlan> plans(static_cast<std::size_t>(n_layers), usual);
  LayerPlans layers(keys, plans);
  layers.plan_mixers();
  layers.share_indices();
  if (has_experts && !layers.has_parts()) layers.plan_experts();
  return plans;
}

}  // namespace metronome
