// SPDX-License-Identifier: Apache-2.0
// Sources: get_batch_defaults() and _set_default_max_num_seqs_and_batched_tokens_args() of
// vllm/engine/arg_utils.py, vllm/config/cache.py, scheduler.py and vllm.py of 0.19 to 0.33.
#include "engines/vllm/serve_defaults.h"

#include <algorithm>
#include <fmt/core.h>
#include <iterator>
#include <string>

#include "core/base/error.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

// The first tier that applies decides.
struct VllmTier {
  int first_minor;  // versions from 0.`first_minor` on
  std::int64_t min_gib;
  std::int64_t max_num_batched_tokens;
  std::int64_t max_num_seqs;
  bool skips_slow_gpus;  // A100, and from 0.33 on GB10: more memory than arithmetic
};
constexpr VllmTier kVllmTiers[] = {
    {28, 160, 16384, 1024, false},
    {19, 70, 8192, 1024, true},
    {19, 0, 2048, 256, false},
};
constexpr int kFirstGb10Minor = 33;
constexpr int kFirstLargeGraphMinor = 28;
constexpr int kFirstHigherMemoryMinor = 20;

// The name of a GPU that vLLM takes for a small one despite its memory; empty for others.
std::string slow_gpu(int minor, const HardwareSpec& gpu) {
  std::string name = gpu.name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (name.find("a100") != std::string::npos) return "A100";
  const bool is_gb10 = gpu.compute_capability > 12.05 && gpu.compute_capability < 12.15;
  return minor >= kFirstGb10Minor && is_gb10 ? "GB10" : "";
}

const VllmTier& vllm_tier(int minor, const HardwareSpec& gpu) {
  const auto applies = [&](const VllmTier& tier) {
    return minor >= tier.first_minor && memory_gib(gpu) >= static_cast<double>(tier.min_gib) &&
           !(tier.skips_slow_gpus && !slow_gpu(minor, gpu).empty());
  };
  const auto* found = std::find_if(std::begin(kVllmTiers), std::end(kVllmTiers), applies);
  METRONOME_CHECK(found != std::end(kVllmTiers), "the last tier is for every GPU and version");
  return *found;
}

// " for a GPU of 70 GiB or more".
std::string vllm_tier_text(int minor, const HardwareSpec& gpu, const VllmTier& tier) {
  if (tier.min_gib > 0) return fmt::format(" for a GPU of {} GiB or more", tier.min_gib);
  const std::string slow = slow_gpu(minor, gpu);
  const bool is_large = memory_gib(gpu) >= static_cast<double>(kVllmTiers[1].min_gib);
  return is_large ? " for " + slow + ", whatever its memory" : " for a GPU below 70 GiB";
}

struct Amount {
  std::int64_t value = 0;
  std::string reason;
};

Amount vllm_budget(const VllmTier& tier, const std::string& reason, std::int64_t max_num_seqs,
                   const VllmServeOptions& chosen) {
  Amount budget = {tier.max_num_batched_tokens, reason};
  if (!chosen.max_model_len) return budget;
  const std::int64_t length = *chosen.max_model_len;
  if (!chosen.enable_chunked_prefill && length > budget.value) {
    budget = {length, ": max_model_len, because prompts are not chunked"};
  }
  if (max_num_seqs * length < budget.value) {
    budget = {max_num_seqs * length, ": max_num_seqs x max_model_len"};
  }
  return budget;
}

}  // namespace

std::vector<ServeDefault> vllm_serve_defaults(int minor, const HardwareSpec& gpu,
                                              const VllmServeOptions& chosen) {
  const VllmTier& tier = vllm_tier(minor, gpu);
  const std::string for_gpu = vllm_tier_text(minor, gpu, tier);
  Amount seqs = {chosen.max_num_seqs.value_or(tier.max_num_seqs), for_gpu};
  Amount budget = vllm_budget(tier, for_gpu, seqs.value, chosen);
  budget.value = chosen.max_num_batched_tokens.value_or(budget.value);
  if (!chosen.max_num_seqs && budget.value < seqs.value) {
    seqs = {budget.value, ": at most max_num_batched_tokens"};
  }
  const bool has_large_graphs = minor >= kFirstLargeGraphMinor && is_data_centre_blackwell(gpu);
  const std::int64_t largest_graph = has_large_graphs ? 1024 : 512;
  const std::int64_t num_drafts = chosen.num_speculative_tokens;
  const std::int64_t graph_tokens =
      std::min({2 * seqs.value * (1 + num_drafts), largest_graph, budget.value});

  ServeDefaultList list(fmt::format("vLLM 0.{} serve default", minor));
  list.add("scheduler.max_num_batched_tokens", budget.value, budget.reason);
  list.add("engine.max_num_seqs", seqs.value, seqs.reason);
  if (chosen.looks_up_drafts) {
    list.add("engine.async_depth", 1, ": no asynchronous scheduling with method ngram");
  } else {
    list.add("engine.async_depth", 2, ": asynchronous scheduling");
  }
  list.add("scheduler.enable_chunked_prefill", "true");
  list.add("kv_cache.enable_prefix_caching", "true");
  list.add("kv_cache.block_size", 16);
  list.add("cost_model.gpu_memory_utilization", minor >= kFirstHigherMemoryMinor ? "0.92" : "0.9");
  list.add("cost_model.max_graph_tokens", graph_tokens,
           fmt::format(": 2 x max_num_seqs{}, at most {}{} and max_num_batched_tokens",
                       num_drafts > 0 ? " x (1 + num_speculative_tokens)" : "", largest_graph,
                       has_large_graphs ? " on B200 and B300" : ""));
  return list.take();
}

std::vector<ServeDefault> vllm_serve_defaults(const Scenario& scenario, const HardwareSpec& gpu,
                                              const IsGiven& is_given) {
  const VllmConfig& config = scenario.scheduler.settings<VllmConfig>();
  VllmServeOptions chosen;
  if (is_given("engine.max_num_seqs")) chosen.max_num_seqs = scenario.engine.max_num_seqs;
  chosen.max_num_batched_tokens = scenario.scheduler.max_num_batched_tokens;
  chosen.max_model_len = scenario.engine.max_model_len;
  chosen.enable_chunked_prefill = config.enable_chunked_prefill;
  if (scenario.speculative.is_on()) {
    chosen.num_speculative_tokens = scenario.speculative.num_speculative_tokens;
    chosen.looks_up_drafts = scenario.speculative.method == SpeculativeMethod::Ngram;
  }
  // A missing model is reported later.
  if (!chosen.max_model_len && !chosen.enable_chunked_prefill && !scenario.model.empty()) {
    chosen.max_model_len =
        find_model(scenario.model, scenario.location_of("model")).default_max_model_len();
  }
  return vllm_serve_defaults(config.minor(), gpu, chosen);
}

}  // namespace metronome
