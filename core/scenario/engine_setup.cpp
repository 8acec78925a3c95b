// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/engine_setup.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>
#include <string>

#include "core/base/error.h"
#include "core/base/real.h"
#include "core/engine/policies/registry.h"
#include "core/model/image_grid.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {
namespace {

struct LayerGroups {
  std::int32_t num_windows = 1;
  std::int32_t num_states = 0;
  std::int64_t num_layers = 0;  // of a group; 0 = a block holds all layers that attend
  bool has_states_before_windows = false;
  std::int32_t num_before_full = 0;
};

bool has_state_groups(const PolicyInfo& policy, const ModelConfig& model) {
  return policy.groups_states && model.n_linear_layers() > 0;
}

// vLLM's groups have the order of the layers that begin them. Full attention is one group here.
// Without groups of windows, their layers count as full attention.
LayerGroups in_order(LayerGroups groups, const ModelConfig& model, bool has_windows) {
  const auto first = [&model](auto is_of_kind) {
    std::int64_t layer = 0;
    while (layer < model.n_layers && !is_of_kind(layer)) ++layer;
    return layer;
  };
  const auto is_state = [&](std::int64_t layer) { return model.is_linear_layer(layer); };
  const auto is_window = [&](std::int64_t layer) {
    return has_windows && model.is_window_layer(layer);
  };
  const std::int64_t first_state = first(is_state);
  const std::int64_t first_window = first(is_window);
  const std::int64_t first_full =
      first([&](std::int64_t layer) { return !is_state(layer) && !is_window(layer); });
  groups.has_states_before_windows = has_windows && first_state < first_window;
  if (first_state < first_full) groups.num_before_full += groups.num_states;
  if (first_window < first_full) groups.num_before_full += groups.num_windows;
  return groups;
}

// How vLLM groups layers (_get_kv_cache_groups_uniform_page_size in
// vllm/v1/core/kv_cache_planning.py): groups have as many layers as the rarest kind; if the most
// frequent one has less than half as many more, as many as that one. Here full attention counts as
// the rarest: it is one group, where vLLM would have several, and further groups then have layers
// to spare.
LayerGroups layer_groups(const KvCacheConfig& config, const ModelConfig& model,
                         const PolicyInfo& policy) {
  const bool has_states = has_state_groups(policy, model);
  const bool has_windows = config.sliding_window > 0;
  if (has_windows && !has_states && config.num_window_groups) {
    return in_order({.num_windows = static_cast<std::int32_t>(*config.num_window_groups)}, model,
                    has_windows);
  }
  const std::int64_t num_linear = has_states ? model.n_linear_layers() : 0;
  const std::int64_t num_window = has_windows ? model.n_window_layers() : 0;
  const std::int64_t num_global = model.n_attention_layers() - num_window;
  const bool is_hybrid = has_states || (num_window > 0 && num_global > 0);
  if (!is_hybrid) return {};
  const std::int64_t most = std::max({num_linear, num_window, num_global});
  const std::int64_t num_layers = 2 * most < 3 * num_global || num_global == 0 ? most : num_global;
  LayerGroups groups{.num_layers = num_layers};
  groups.num_states = static_cast<std::int32_t>(ceil_div(num_linear, num_layers));
  groups.num_windows =
      static_cast<std::int32_t>(std::max<std::int64_t>(ceil_div(num_window, num_layers), 1));
  return in_order(groups, model, has_windows);
}

// Whether cached states are exported from inside a chunk.
bool exports_states(const Scenario& scenario, const ModelConfig& model, const PolicyInfo& policy,
                    const StateRules& rules) {
  return rules.export_unit > 0 && has_state_groups(policy, model) &&
         caches_prefixes(policy, scenario.kv_cache);
}

// Bytes of KV that a device's heads of one layer have for a token.
std::int64_t heads_bytes_per_token(const Scenario& scenario, const ModelConfig& model) {
  const std::int64_t num_heads =
      std::max<std::int64_t>(model.n_kv_heads / scenario.cost_model.tensor_parallel_size, 1);
  return 2 * num_heads * model.head_dim * model.bytes_per_kv_element;
}

// Tokens of a KV block. Where blocks hold states, too, the smallest multiple of kv_cache.block_size
// (and of the unit of exports) whose KV in one layer takes as many bytes on a device as a layer's
// state (_align_hybrid_block_size in vllm/platforms/interface.py).
std::int32_t block_tokens(const Scenario& scenario, const ModelConfig& model,
                          const PolicyInfo& policy, const StateRules& rules) {
  std::int64_t size = scenario.kv_cache.block_size;
  if (!has_state_groups(policy, model)) return static_cast<std::int32_t>(size);
  if (exports_states(scenario, model, policy, rules)) size = std::lcm(size, rules.export_unit);
  const std::int64_t state_bytes =
      model.state_bytes() / model.n_linear_layers() / scenario.cost_model.tensor_parallel_size;
  return static_cast<std::int32_t>(
      size * ceil_div(state_bytes, heads_bytes_per_token(scenario, model) * size));
}

StateMemory state_memory(const Scenario& scenario, const ModelConfig& model,
                         const KvCapacityFn& kv_capacity) {
  const std::int64_t token_bytes =
      model.latent_attention.is_empty()
          ? model.n_attention_layers() * heads_bytes_per_token(scenario, model)
          : model.kv_bytes_per_token();
  return {
      .free_bytes = real(kv_capacity(1) * token_bytes),
      .request_bytes = real(model.state_bytes()) / real(scenario.cost_model.tensor_parallel_size),
      .token_bytes = real(token_bytes)};
}

void check_windows_beside_states(const Scenario& scenario, const ModelConfig& model) {
  if (model.n_window_layers() == 0) {
    throw UnplacedConfigError("kv_cache.sliding_window", "layers of " + model.name +
                                                             " keep states, not windows; "
                                                             "allowed: 0");
  }
  if (model.n_global_layers() == 0) {
    throw UnplacedConfigError("kv_cache.sliding_window",
                              "no layer of " + model.name +
                                  " attends to the whole context, as windows beside states "
                                  "require; allowed: 0");
  }
  if (scenario.kv_cache.num_window_groups.value_or(1) != 1) {
    throw UnplacedConfigError(
        "kv_cache.num_window_groups",
        "the groups of " + model.name + " follow its layers, as it has states; allowed: auto");
  }
}

// Whether the policy's engine divides memory between KV and the states beside it.
bool divides_memory(const ModelConfig& model, const PolicyInfo& policy, const StateRules& rules) {
  const bool has_states_beside = model.n_linear_layers() > 0 && model.n_attention_layers() > 0 &&
                                 !has_state_groups(policy, model);
  return has_states_beside && rules.divides_memory &&
         product_of(policy.name).divide_memory != nullptr;
}

// Settings that a model with states excludes.
void check_states(const Scenario& scenario, const ModelConfig& model, const PolicyInfo& policy,
                  const StateRules& rules) {
  if (model.n_linear_layers() == 0) return;
  if (scenario.kv_cache.sliding_window > 0) check_windows_beside_states(scenario, model);
  if (has_state_groups(policy, model) || !caches_prefixes(policy, scenario.kv_cache)) return;
  if (divides_memory(model, policy, rules)) return;
  throw UnplacedConfigError("kv_cache.enable_prefix_caching",
                            "policy " + std::string(policy.name) + " caches no states, which " +
                                model.name + " has; allowed: false, or policy " +
                                policies_with(&PolicyInfo::groups_states));
}

// vLLM's blocks are then larger than kv_cache.block_size.
void check_retention(const KvCacheConfig& config, std::int64_t block_size) {
  const std::int64_t interval = config.prefix_cache_retention_interval.value_or(0);
  if (interval <= 0 || interval % block_size == 0) return;
  throw UnplacedConfigError("kv_cache.prefix_cache_retention_interval",
                            fmt::format("{} is not a multiple of {}, the tokens of a block that "
                                        "holds a state; allowed: a multiple",
                                        interval, block_size));
}

KvCacheLayout paged_layout(const Scenario& scenario, const ModelConfig& model,
                           const PolicyInfo& policy, const KvCapacityFn& kv_capacity,
                           const StateRules& rules) {
  const KvCacheConfig& config = scenario.kv_cache;
  const LayerGroups groups = layer_groups(config, model, policy);
  const std::int32_t block_size = block_tokens(scenario, model, policy, rules);
  const bool exports = exports_states(scenario, model, policy, rules);
  check_retention(config, block_size);
  std::int64_t num_blocks = 0;
  if (config.num_blocks) {
    num_blocks = *config.num_blocks;
  } else {
    num_blocks = blocks_of_memory(scenario, model, kv_capacity, rules);
    if (num_blocks < 1) {
      throw UnplacedConfigError(
          "kv_cache.num_blocks",
          fmt::format("auto finds no memory for a block of {} tokens{}; allowed: smaller blocks, a "
                      "smaller model",
                      block_size,
                      model.n_linear_layers() > 0
                          ? " beside the states of engine.max_num_seqs requests"
                          : ""));
    }
  }
  return {.num_blocks = num_blocks,
          .block_size = block_size,
          .allocation = config.allocation,
          .watermark_blocks = watermark_blocks(policy, config.watermark, num_blocks),
          .enable_prefix_caching = caches_prefixes(policy, config),
          .windows = {.num_tokens = config.sliding_window, .num_groups = groups.num_windows},
          .retention_interval = config.prefix_cache_retention_interval,
          .states = {.num_groups = groups.num_states,
                     .hash_unit = block_size,
                     .checkpoint_alignment = exports ? block_size : 0},
          .has_states_before_windows = groups.has_states_before_windows,
          .num_groups_before_full = groups.num_before_full};
}

KvCacheLayout slotted_layout(const Scenario& scenario, std::int32_t max_model_len,
                             const KvCapacityFn& kv_capacity) {
  const std::int64_t num_slots = scenario.engine.max_num_seqs;
  const std::int64_t capacity = kv_capacity(max_model_len);
  if (num_slots > capacity) {
    throw UnplacedConfigError(
        "kv_cache.backend",
        fmt::format(
            "slotted needs engine.max_num_seqs = {} slots of engine.max_model_len = {} tokens; the "
            "memory holds {}; allowed: fewer slots, a smaller max_model_len, or paged",
            num_slots, max_model_len, capacity));
  }
  return {.num_blocks = num_slots, .block_size = max_model_len};
}

// Without a token budget a step can hold every prompt at once; the token count must not overflow.
void check_step_size(const Scenario& scenario, const PolicyInfo& policy,
                     std::int64_t max_model_len) {
  const bool has_budget = !policy.budget_key.empty() || policy.chunk_is_of_step;
  const std::int64_t num_seqs = scenario.engine.max_num_seqs;
  if (has_budget || num_seqs * max_model_len <= INT32_MAX) return;
  throw UnplacedConfigError("engine.max_num_seqs",
                            fmt::format("{} prompts of engine.max_model_len = {} tokens do not fit "
                                        "in a step of {}; allowed: a product below 2^31",
                                        num_seqs, max_model_len, policy.name));
}

// vLLM's pool gives its first block to no request.
void check_usable_blocks(const PolicyInfo& policy, const KvCacheLayout& layout) {
  if (!layout.has_null_block || layout.num_blocks > 1) return;
  throw UnplacedConfigError("kv_cache.num_blocks",
                            fmt::format("{} leaves no block for requests: policy {} keeps one as "
                                        "its null block; allowed: auto, or at least 2",
                                        layout.num_blocks, policy.name));
}

// The states and the tokens of the pool limit the requests that run.
void limit_requests(const StatePool& pool, EngineSetup& setup) {
  if (pool.max_requests < 1) {
    throw UnplacedConfigError(
        "cost_model.gpu_memory_utilization",
        "leaves no memory for the states of a request; allowed: a higher one, a smaller model, "
        "more memory");
  }
  setup.max_num_seqs =
      static_cast<std::int32_t>(std::min<std::int64_t>(setup.max_num_seqs, pool.max_requests));
}

DraftMethod draft_method(SpeculativeMethod method) {
  switch (method) {
    case SpeculativeMethod::Ngram: return DraftMethod::Ngram;
    case SpeculativeMethod::DraftModel: return DraftMethod::DraftModel;
    case SpeculativeMethod::Mtp: return DraftMethod::Mtp;
    case SpeculativeMethod::Eagle:
    case SpeculativeMethod::None: break;
  }
  return DraftMethod::Eagle;
}

DraftConfig draft_config(const SpeculativeConfig& drafts, std::int32_t max_num_seqs) {
  if (!drafts.is_on()) return {};
  return {.num_tokens = drafts.num_speculative_tokens,
          .method = draft_method(drafts.method),
          .by_batch_size = drafts_by_batch_size(drafts.num_speculative_tokens_per_batch_size,
                                                drafts.num_speculative_tokens, max_num_seqs)};
}

void set_encoder(const Scenario& scenario, const ModelConfig& model, const PolicyInfo& policy,
                 EngineSetup& setup) {
  const ImageConfig& images = scenario.workload.images;
  const VisionTower& tower = model.vision;
  if (tower.is_empty()) {
    if (!images.is_on()) return;
    throw UnplacedConfigError("workload.images.kind", model.name +
                                                          " takes text only; allowed: none, or a "
                                                          "model with a vision tower");
  }
  const std::int64_t side = tower.patch_size * tower.merge_size;
  if (images.is_on() && images.pixels_per_token != side) {
    throw UnplacedConfigError(
        "workload.images.pixels_per_token",
        fmt::format("{} differs from {}; allowed: {}", images.pixels_per_token, model.name, side));
  }
  const std::int64_t max_item = max_image_tokens(scenario, model);
  setup.encoder.set_sizes(token_budget(scenario.scheduler), max_item);
  setup.encoder.plans_ahead = scenario.engine.async_depth > 1;
  const EngineProduct& product = product_of(policy.name);
  if (product.set_images != nullptr) product.set_images(scenario, max_item, setup.encoder);
}

}  // namespace

std::int64_t max_image_tokens(const Scenario& scenario, const ModelConfig& model) {
  if (model.vision.is_empty()) return 0;
  const std::int64_t side = model.vision.patch_size * model.vision.merge_size;
  const ImageConfig& images = scenario.workload.images;
  return images.is_on() ? images.max_tokens() : kDefaultMaxPixels / (side * side);
}

std::vector<std::int32_t> drafts_by_batch_size(const std::vector<std::vector<std::int64_t>>& rows,
                                               std::int32_t num_drafts, std::int32_t max_num_seqs) {
  if (rows.empty()) return {};
  std::vector<std::int32_t> by_size(static_cast<std::size_t>(max_num_seqs) + 1, 0);
  for (const std::vector<std::int64_t>& row : rows) {
    // Sizes behind the row have its number, too, until the next row.
    for (std::int64_t size = row[0]; size <= max_num_seqs; ++size) {
      by_size[static_cast<std::size_t>(size)] =
          static_cast<std::int32_t>(std::min<std::int64_t>(row[2], num_drafts));
    }
  }
  return by_size;
}

std::int64_t blocks_of_memory(const Scenario& scenario, const ModelConfig& model,
                              const KvCapacityFn& kv_capacity, const StateRules& rules) {
  const KvCacheConfig& config = scenario.kv_cache;
  const PolicyInfo& policy = *find_policy(scenario.scheduler.policy);
  const LayerGroups groups = layer_groups(config, model, policy);
  const std::int64_t block_size = block_tokens(scenario, model, policy, rules);
  std::int64_t capacity = 0;
  if (groups.num_states > 0) {
    // A block has room for the KV or the states of a group's layers.
    const std::int64_t num_attending = std::max<std::int64_t>(1, model.n_attention_layers());
    capacity = kv_capacity(block_size) * num_attending / groups.num_layers;
  } else if (groups.num_layers > 0) {
    capacity = kv_capacity(1) * model.n_layers / (groups.num_layers * block_size);
  } else if (divides_memory(model, policy, rules)) {
    const StateMemory memory = state_memory(scenario, model, kv_capacity);
    const StatePool pool = product_of(policy.name).divide_memory(scenario, memory);
    capacity = static_cast<std::int64_t>((memory.free_bytes - pool.bytes) /
                                         (memory.token_bytes * real(block_size)));
  } else {
    capacity = kv_capacity(block_size) - blocks_of_states(scenario, model);
  }
  return std::min(capacity, kMaxBlocks);
}

std::int64_t blocks_of_states(const Scenario& scenario, const ModelConfig& model) {
  if (model.n_linear_layers() == 0 || model.n_attention_layers() == 0) return 0;
  return ceil_div(scenario.engine.max_num_seqs * model.state_bytes(),
                  scenario.kv_cache.block_size * model.kv_bytes_per_token());
}

StepShape resolved_step_shape(const Scenario& scenario) {
  if (scenario.engine.step_shape != StepShape::Auto) return scenario.engine.step_shape;
  return find_policy(scenario.scheduler.policy)->natural_shape;
}

EngineSetup make_engine_setup(const Scenario& scenario, const ModelConfig& model,
                              const KvCapacityFn& kv_capacity, const StateRules& rules) {
  const std::int64_t max_model_len =
      scenario.engine.max_model_len.value_or(model.default_max_model_len());
  if (max_model_len > model.max_context()) {
    throw UnplacedConfigError("engine.max_model_len",
                              fmt::format("{} is more than {} supports; allowed: at most {}",
                                          max_model_len, model.name, model.max_context()));
  }
  const PolicyInfo* policy = find_policy(scenario.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "the policy was validated before");
  check_step_size(scenario, *policy, max_model_len);
  const EngineProduct& product = product_of(policy->name);
  if (product.check_model != nullptr) product.check_model(scenario, model, max_model_len);
  check_states(scenario, model, *policy, rules);

  EngineSetup setup;
  setup.scheduler = scenario.scheduler;
  setup.scheduler.drafts = draft_config(scenario.speculative, scenario.engine.max_num_seqs);
  setup.max_num_seqs = scenario.engine.max_num_seqs;
  setup.max_model_len = static_cast<std::int32_t>(max_model_len);
  setup.max_waiting_requests = scenario.engine.max_waiting_requests;
  setup.async_depth = scenario.engine.async_depth;
  setup.step_shape = resolved_step_shape(scenario);
  setup.ignores_eos = scenario.sampling.ignore_eos;
  set_encoder(scenario, model, *policy, setup);
  if (scenario.kv_cache.backend == KvBackend::Slotted) {
    setup.kv_cache = slotted_layout(scenario, setup.max_model_len, kv_capacity);
    return setup;
  }
  setup.kv_cache = paged_layout(scenario, model, *policy, kv_capacity, rules);
  if (!scenario.kv_cache.num_blocks && divides_memory(model, *policy, rules)) {
    limit_requests(product.divide_memory(scenario, state_memory(scenario, model, kv_capacity)),
                   setup);
  }
  arrange_cache(*policy, setup);
  check_usable_blocks(*policy, setup.kv_cache);
  return setup;
}

}  // namespace metronome
