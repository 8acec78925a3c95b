// SPDX-License-Identifier: Apache-2.0
// Scenarios of models with recurrent states: groups, block sizes and memory, by hand
// from vLLM's rules.
#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"
#include "engines/vllm/settings.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

// Qwen3-Next-80B-A3B's layers. A layer's state takes 32 * 128 * 128 numbers and 3 * 8192 inputs of
// the convolution, in bfloat16 1,097,728 bytes; the KV of a token 2 * 2 * 256 elements.
ModelConfig hybrid_model() {
  ModelConfig model;
  model.name = "hybrid";
  model.architecture = "Qwen3NextForCausalLM";
  model.n_layers = 48;
  model.hidden_dim = 2048;
  model.n_heads = 16;
  model.n_kv_heads = 2;
  model.head_dim = 256;
  model.ffn_dim = 5120;
  model.vocab_size = 151936;
  model.max_position_embeddings = 262144;
  model.linear_attention = {.layers = {},
                            .n_key_heads = 16,
                            .n_value_heads = 32,
                            .key_head_dim = 128,
                            .value_head_dim = 128,
                            .conv_width = 4};
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    if ((i + 1) % 4 != 0) model.linear_attention.layers.push_back(i);
  }
  return model;
}

Scenario scenario_with(const std::string& policy, std::int32_t block_size = 16) {
  Scenario scenario;
  scenario.scheduler.policy = policy;
  scenario.scheduler.max_num_batched_tokens = 8192;
  scenario.engine.max_num_seqs = 4;
  scenario.engine.max_model_len = 32768;
  scenario.kv_cache.block_size = block_size;
  return scenario;
}

// Memory for so many tokens of the layers that attend.
EngineSetup setup_of(const Scenario& scenario, const ModelConfig& model,
                     std::int64_t num_tokens = 1'000'000) {
  return make_engine_setup(scenario, model, [num_tokens](std::int64_t block_tokens) {
    return num_tokens / block_tokens;
  });
}

std::string error_of(const Scenario& scenario, const ModelConfig& model) {
  try {
    setup_of(scenario, model);
  } catch (const UnplacedConfigError& error) {
    return error.key() + ": " + error.message();
  }
  return "";
}

TEST_CASE("vLLM groups layers with states, and a block holds a state", "[core][scenario][states]") {
  const ModelConfig model = hybrid_model();
  REQUIRE(model.state_bytes() / model.n_linear_layers() == 1'097'728);
  const EngineSetup setup = setup_of(scenario_with("vllm"), model);
  // 36 layers beside 12: three groups of 12. 1,097,728 / 2048 = 536 tokens, 34 blocks of 16.
  CHECK(setup.kv_cache.states.num_groups == 3);
  CHECK(setup.kv_cache.states.caches_states);
  CHECK(setup.kv_cache.block_size == 544);
  CHECK(setup.kv_cache.states.hash_unit == 544);
  CHECK(setup.kv_cache.has_null_block);
  CHECK(setup.kv_cache.num_groups_before_full == 3);  // layer 0 has a state
  CHECK(setup.kv_cache.num_blocks == 1'000'000 / 544);
  CHECK(setup_of(scenario_with("vllm", 256), model).kv_cache.block_size == 768);
  CHECK(setup_of(scenario_with("vllm", 4096), model).kv_cache.block_size == 4096);
  // Two devices share KV heads and states; four share states, but have a KV head each.
  Scenario parallel = scenario_with("vllm");
  parallel.cost_model.tensor_parallel_size = 2;
  CHECK(setup_of(parallel, model).kv_cache.block_size == 544);
  parallel.cost_model.tensor_parallel_size = 4;
  CHECK(setup_of(parallel, model).kv_cache.block_size == 272);
  // Qwen3.5's config asks for float32.
  ModelConfig precise = model;
  precise.linear_attention.bytes_per_delta_element = 4;
  CHECK(setup_of(scenario_with("vllm"), precise).kv_cache.block_size == 1056);

  Scenario uncached = scenario_with("vllm");
  uncached.kv_cache.enable_prefix_caching = false;
  CHECK(setup_of(uncached, model).kv_cache.states.num_groups == 3);
  CHECK_FALSE(setup_of(uncached, model).kv_cache.states.caches_states);
}

TEST_CASE("a group has as many layers as the rarer kind", "[core][scenario][states]") {
  struct Case {
    std::int64_t n_layers, num_linear, num_groups, num_layers;
  };
  // With less than half as many more of one kind there is one group, of the larger count.
  for (const Case& c : {Case{4, 3, 3, 1}, Case{6, 4, 2, 2}, Case{7, 5, 3, 2}, Case{5, 3, 2, 2},
                        Case{7, 4, 1, 4}, Case{5, 2, 1, 3}, Case{3, 3, 1, 3}}) {
    ModelConfig model = hybrid_model();
    model.n_layers = c.n_layers;
    model.linear_attention.layers.clear();
    for (std::int64_t i = 0; i < c.num_linear; ++i) model.linear_attention.layers.push_back(i);
    INFO(c.num_linear << " of " << c.n_layers << " layers");
    const KvCacheLayout layout = setup_of(scenario_with("vllm"), model).kv_cache;
    CHECK(layout.states.num_groups == c.num_groups);
    const std::int64_t num_attending = std::max<std::int64_t>(1, c.n_layers - c.num_linear);
    CHECK(layout.num_blocks == 1'000'000 / 544 * num_attending / c.num_layers);
  }
}

TEST_CASE("groups have the order of the layers that begin them", "[core][scenario][states]") {
  ModelConfig model = hybrid_model();
  const auto num_before = [&](const Scenario& scenario) {
    return setup_of(scenario, model).kv_cache.num_groups_before_full;
  };
  model.linear_attention.layers.erase(model.linear_attention.layers.begin());
  CHECK(num_before(scenario_with("vllm")) == 0);
  model.linear_attention = {};
  model.sliding_window = 128;
  model.window_layers = {0, 2, 4};
  for (const bool has_window : {false, true}) {
    Scenario scenario = scenario_with("vllm");
    scenario.kv_cache.sliding_window = has_window ? 128 : 0;
    CHECK(num_before(scenario) == (has_window ? 1 : 0));
  }
  Scenario scenario = scenario_with("vllm");
  scenario.kv_cache.sliding_window = 128;
  scenario.kv_cache.num_window_groups = 4;
  CHECK(num_before(scenario) == 4);
  model.window_layers = {1, 3};
  CHECK(num_before(scenario) == 0);
}

TEST_CASE("windows, states and full attention are groups of one model",
          "[core][scenario][states]") {
  ModelConfig model = hybrid_model();
  model.n_layers = 12;
  model.linear_attention.layers = {1, 2, 5, 6, 9, 10};
  model.sliding_window = 128;
  model.window_layers = {0, 4, 7, 8};
  Scenario scenario = scenario_with("vllm");
  // Without the setting windows are kept like full attention, with which layer 0 then begins.
  const KvCacheLayout kept = setup_of(scenario, model).kv_cache;
  CHECK(kept.windows.num_tokens == 0);
  CHECK(kept.states.num_groups == 1);
  CHECK(kept.num_groups_before_full == 0);
  model.linear_attention.layers = {0, 2, 5, 6, 9, 10};
  model.window_layers = {1, 4, 7, 8};
  CHECK(setup_of(scenario, model).kv_cache.num_groups_before_full == 1);
  model.linear_attention.layers = {1, 2, 5, 6, 9, 10};
  model.window_layers = {0, 4, 7, 8};
  scenario.kv_cache.sliding_window = 128;
  const KvCacheLayout layout = setup_of(scenario, model).kv_cache;
  CHECK(layout.windows.num_tokens == 128);
  CHECK(layout.windows.num_groups == 2);  // two layers of full attention: groups of two
  CHECK(layout.states.num_groups == 3);
  CHECK(layout.states.hash_unit == layout.block_size);
  CHECK_FALSE(layout.has_states_before_windows);
  CHECK(layout.num_groups_before_full == 5);
  // A block has room for two layers, of six that attend.
  CHECK(layout.num_blocks == 1'000'000 / layout.block_size * 6 / 2);
  model.window_layers = {3, 4, 7, 8};
  model.linear_attention.layers = {0, 1, 2, 6, 9, 10};
  CHECK(setup_of(scenario, model).kv_cache.has_states_before_windows);

  scenario.kv_cache.num_window_groups = 2;
  CHECK(error_of(scenario, model) ==
        "kv_cache.num_window_groups: the groups of hybrid follow its layers, as it has states; "
        "allowed: auto");
  model.linear_attention.layers = {0, 1, 2, 5, 6, 9, 10, 11};
  CHECK(error_of(scenario, model) ==
        "kv_cache.sliding_window: no layer of hybrid attends to the whole context, as windows "
        "beside states require; allowed: 0");
  model.window_layers.clear();
  model.sliding_window = 0;
  CHECK(error_of(scenario, model) ==
        "kv_cache.sliding_window: layers of hybrid keep states, not windows; allowed: 0");
}

TEST_CASE("other policies keep states beside the blocks", "[core][scenario][states]") {
  const ModelConfig model = hybrid_model();
  for (const char* policy : {"chunked", "continuous", "sarathi", "sglang", "tensorrt_llm"}) {
    INFO(policy);
    Scenario scenario = scenario_with(policy);
    scenario.kv_cache.enable_prefix_caching = false;
    const KvCacheLayout layout = setup_of(scenario, model).kv_cache;
    CHECK(layout.states.num_groups == 0);
    CHECK(layout.block_size == 16);
    // Four requests: 4 * 36 * 1,097,728 bytes are 6,432 tokens of 12 * 2048 bytes, 402 blocks.
    CHECK(layout.num_blocks == 62'500 - 402);
  }
}

TEST_CASE("settings that a model with states excludes", "[core][scenario][states]") {
  const ModelConfig model = hybrid_model();
  CHECK(error_of(scenario_with("sglang"), model) ==
        "kv_cache.enable_prefix_caching: policy sglang caches no states, which hybrid has; "
        "allowed: false, or policy vllm");
  Scenario slotted = scenario_with("vllm");
  slotted.kv_cache.backend = KvBackend::Slotted;
  CHECK(error_of(slotted, model) ==
        "kv_cache.backend: slotted has no blocks for the states of hybrid; allowed: paged, or "
        "another policy than vllm");
  Scenario window = scenario_with("vllm");
  window.kv_cache.sliding_window = 128;
  CHECK(error_of(window, model) ==
        "kv_cache.sliding_window: layers of hybrid keep states, not windows; allowed: 0");
  Scenario whole_images = scenario_with("vllm");
  whole_images.scheduler.edit<VllmConfig>().disable_chunked_mm_input = true;
  CHECK(error_of(whole_images, model) ==
        "scheduler.disable_chunked_mm_input: true leaves no states of hybrid to cache inside an "
        "image; allowed: false, or kv_cache.enable_prefix_caching: false");
  whole_images.kv_cache.enable_prefix_caching = false;
  CHECK(error_of(whole_images, model).empty());
  Scenario interval = scenario_with("vllm");
  interval.kv_cache.prefix_cache_retention_interval = 1024;
  CHECK(error_of(interval, model) ==
        "kv_cache.prefix_cache_retention_interval: 1024 is not a multiple of 544, the tokens of a "
        "block that holds a state; allowed: a multiple");
  Scenario older = scenario_with("vllm");
  older.scheduler.edit<VllmConfig>().version = 0;
  CHECK(error_of(older, model) == "scheduler.version: the rules of vLLM 0." +
                                      std::to_string(kFirstVllmMinor) +
                                      " for states are not known; allowed: 0.33 or later");
  Scenario unchunked = scenario_with("vllm");
  unchunked.scheduler.edit<VllmConfig>().enable_chunked_prefill = false;
  unchunked.scheduler.max_num_batched_tokens = 32768;
  CHECK(error_of(unchunked, model) ==
        "scheduler.enable_chunked_prefill: false leaves no states of hybrid to cache; allowed: "
        "true, or kv_cache.enable_prefix_caching: false");
}

}  // namespace
}  // namespace metronome::TEST_FILE
