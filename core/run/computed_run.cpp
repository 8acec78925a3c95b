// SPDX-License-Identifier: Apache-2.0
#include "core/run/computed_run.h"

#include <algorithm>
#include <fmt/core.h>
#include <iomanip>
#include <sstream>

#include "core/base/error.h"
#include "core/scenario/engine_setup.h"
#include "core/scenario/scenario.h"

namespace metronome {

SamplingParams sampling_params(const Scenario& scenario, std::int64_t vocab_size) {
  const SamplingConfig& config = scenario.sampling;
  SamplingParams params;
  params.temperature = config.temperature;
  params.top_k = config.top_k;
  params.top_p = config.top_p;
  params.min_p = config.min_p;
  params.seed = config.seed ? static_cast<std::uint64_t>(*config.seed) : scenario.seed;
  for (const std::int64_t id : config.stop_token_ids) {
    if (id >= vocab_size) {
      fail_config(
          scenario.location_of("sampling.stop_token_ids"), "sampling.stop_token_ids",
          fmt::format("{} is not a token of the model; allowed: 0 to {}", id, vocab_size - 1));
    }
    params.stop_token_ids.push_back(static_cast<TokenId>(id));
  }
  params.ignore_eos = config.ignore_eos;
  params.num_logprobs = static_cast<std::int32_t>(config.logprobs.value_or(-1));
  return params;
}

void check_token_ids(const Scenario& scenario, const Workload& workload, std::int64_t vocab_size) {
  if (workload.has_sessions()) {
    fail_config(scenario.location_of("workload.sessions"), "workload.sessions",
                "only the simulator continues sessions; allowed: --backend=sim");
  }
  const std::string error = workload.token_id_error(vocab_size);
  if (!error.empty()) {
    fail_config(scenario.location_of("workload.trace"), "workload.trace", error);
  }
}

void check_cache_window(const Scenario& scenario, const ModelConfig& model) {
  const std::int64_t window = scenario.kv_cache.sliding_window;
  if (window > 0 && scenario.kv_cache.num_window_groups.value_or(0) != 1) {
    fail_config(scenario.location_of("kv_cache.num_window_groups"), "kv_cache.num_window_groups",
                "this backend keeps the KV of all layers in one block; allowed: 1");
  }
  if (window == 0 || window == model.sliding_window) return;
  const std::string own = std::to_string(model.sliding_window);
  fail_config(scenario.location_of("kv_cache.sliding_window"), "kv_cache.sliding_window",
              fmt::format("{} is not the window of {}{}", window, model.name,
                          model.sliding_window == 0 ? ", which has none; allowed: 0"
                                                    : ", " + own + "; allowed: 0 or " + own));
}

std::int64_t full_kv_blocks(const Scenario& scenario, const ModelConfig& model,
                            std::int64_t block_size) {
  const std::int64_t longest =
      scenario.engine.max_model_len.value_or(model.default_max_model_len());
  std::int64_t num_useful = scenario.engine.max_num_seqs * ceil_div(longest, block_size);
  if (model.n_linear_layers() > 0) {
    // States in blocks, at most one of each layer, and the null block; or states beside the blocks.
    num_useful += scenario.engine.max_num_seqs * model.n_linear_layers() + 1 +
                  blocks_of_states(scenario, model);
  }
  return num_useful;
}

std::int64_t useful_kv_blocks(const Scenario& scenario, const ModelConfig& model,
                              std::int64_t block_size, std::int64_t capacity) {
  if (scenario.kv_cache.enable_prefix_caching.value_or(true)) return capacity;
  return std::min(capacity, full_kv_blocks(scenario, model, block_size));
}

void check_memory(const Scenario& scenario, const char* key, const std::string& what,
                  const std::string& owner, std::int64_t bytes, std::int64_t available) {
  if (bytes <= available) return;
  fail_config(scenario.location_of(key), key,
              what + " " + bytes_text(bytes) + "; " + owner + " has " + bytes_text(available) +
                  " available; allowed: less");
}

std::string bytes_text(std::int64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMiB;
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << (mib < 1024 ? mib : mib / 1024)
       << (mib < 1024 ? " MiB" : " GiB");
  return text.str();
}

std::int64_t bytes_of_gib(double gib) {
  return static_cast<std::int64_t>(gib * static_cast<double>(std::int64_t{1} << 30));
}

}  // namespace metronome
