// SPDX-License-Identifier: Apache-2.0
// Sources, of 0.5.23: srt/arg_groups/memory_hook.py, cuda_graph_hook.py, overrides.py,
// fields/schedule.py, and resolve_max_num_reqs() of srt/mem_cache/kv_cache_configurator.py.
#include "engines/sglang/serve_defaults.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <iterator>
#include <string>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "engines/sglang/settings.h"

namespace metronome {
namespace {

struct SglangTier {
  std::int64_t below_gib;
  std::int64_t chunked_prefill_size;
  std::int64_t max_graph_batch;           // requests of the largest captured decode
  std::int64_t max_graph_batch_parallel;  // with four GPUs a layer or more
};
constexpr SglangTier kSglangTiers[] = {
    {20, 2048, 8, 8},     {35, 4096, 48, 160},   {60, 4096, 32, 160},
    {90, 8192, 256, 512}, {160, 8192, 256, 512}, {INT64_MAX, 16384, 512, 512},
};
constexpr std::int64_t kLeastRunningRequests = 2048;

// " for a GPU of 60 to 90 GiB".
std::string sglang_tier_text(const SglangTier& tier) {
  const bool is_first = &tier == std::begin(kSglangTiers);
  if (is_first) return fmt::format(" for a GPU below {} GiB", tier.below_gib);
  const std::string from = fmt::format(" for a GPU of {}", (&tier - 1)->below_gib);
  if (tier.below_gib == INT64_MAX) return from + " GiB or more";
  return fmt::format("{} to {} GiB", from, tier.below_gib);
}

// Sizes of the prefill graphs up to `largest` tokens, which it captures one by one.
std::int64_t num_prefill_graphs(std::int64_t largest) {
  struct Range {
    std::int64_t first, last, step;
  };
  const Range ranges[] = {{4, 32, 4},      {48, 256, 16},     {288, 512, 32},
                          {576, 1024, 64}, {1280, 4096, 256}, {4608, largest, 512}};
  std::int64_t count = 0;
  for (const Range& range : ranges) {
    const std::int64_t last = std::min(range.last, largest);
    if (last >= range.first) count += (last - range.first) / range.step + 1;
  }
  return count;
}

const SglangTier& sglang_tier(const HardwareSpec& gpu) {
  const auto* tier = std::find_if(
      std::begin(kSglangTiers), std::end(kSglangTiers),
      [&gpu](const auto& row) { return memory_gib(gpu) < static_cast<double>(row.below_gib); });
  METRONOME_CHECK(tier != std::end(kSglangTiers), "the last tier is for every GPU");
  return *tier;
}

std::int64_t sglang_graph_batch(const SglangTier& tier, const SglangServeOptions& chosen) {
  return std::min(
      chosen.tensor_parallel_size < 4 ? tier.max_graph_batch : tier.max_graph_batch_parallel,
      chosen.max_num_seqs.value_or(INT64_MAX));
}

// The part of a share that images leave, by the size of the vision tower
// (adjust_mem_fraction_for_vlm of memory_hook.py). Its layers do not count: they are not where
// SGLang looks for them.
double share_beside_images(double share, std::int64_t vision_dim) {
  if (vision_dim == 0) return share;
  const double width = static_cast<double>(vision_dim) / 1024;
  const double rounded = std::round(share * 1000) / 1000;
  return rounded * 0.95 * std::clamp(1 - 0.1 * (width * width - 1), 0.8, 1.05);
}

constexpr double kLeastShare = 0.01;  // of the key's range

// The share of memory that is left for weights and KV; negative: the reserve is larger.
double sglang_memory_share(const HardwareSpec& gpu, const SglangServeOptions& chosen) {
  const SglangTier& tier = sglang_tier(gpu);
  const std::int64_t chunk = chosen.chunked_prefill_size.value_or(tier.chunked_prefill_size);
  const std::int64_t graph_batch = sglang_graph_batch(tier, chosen);
  const double memory_mib = memory_gib(gpu) * 1024;
  const std::int64_t largest_prefill = chunk > 0 ? chunk : chosen.max_prefill_tokens;
  double reserved_mib = 512;
  reserved_mib += 1.5 * static_cast<double>(std::max<std::int64_t>(largest_prefill, 2048));
  reserved_mib += static_cast<double>(chosen.tensor_parallel_size) / 8 * 1024;
  reserved_mib += 2 * static_cast<double>(graph_batch);
  reserved_mib += 8 * static_cast<double>(num_prefill_graphs(chunk));
  if (memory_mib > 60 * 1024) reserved_mib = std::max(reserved_mib, 10.0 * 1024);
  return share_beside_images((memory_mib - reserved_mib) / memory_mib, chosen.vision_dim);
}

}  // namespace

std::int64_t vision_dim_of(const Scenario& scenario) {
  if (scenario.model.empty()) return 0;  // which is reported later
  return find_model(scenario.model, scenario.location_of("model")).vision.hidden_dim;
}

bool sglang_leaves_memory(const HardwareSpec& gpu, const SglangServeOptions& chosen) {
  return sglang_memory_share(gpu, chosen) >= kLeastShare;
}

std::vector<ServeDefault> sglang_serve_defaults(const HardwareSpec& gpu,
                                                const SglangServeOptions& chosen) {
  const SglangTier& tier = sglang_tier(gpu);
  const std::string for_gpu = sglang_tier_text(tier);
  const bool has_pages = is_data_centre_blackwell(gpu);

  ServeDefaultList list("SGLang 0.5.23 launch default");
  list.add("scheduler.chunked_prefill_size", tier.chunked_prefill_size, for_gpu);
  list.add("scheduler.max_prefill_tokens", 16384);
  list.add("scheduler.enable_mixed_chunk", "false");
  list.add("scheduler.schedule_policy", "fcfs");
  list.add("scheduler.schedule_conservativeness", "1");
  list.add("engine.max_num_seqs", kLeastRunningRequests,
           ": 2048 to 4096 requests by the size of the pool");
  list.add("engine.async_depth", 2, ": the overlap schedule");
  list.add("kv_cache.enable_prefix_caching", "true", ": the radix cache");
  list.add("kv_cache.block_size", has_pages ? 64 : 1,
           has_pages ? ": pages of the attention kernels of B200 and B300" : "");
  list.add("cost_model.gpu_memory_utilization",
           fixed_text(std::max(kLeastShare, sglang_memory_share(gpu, chosen)), 3),
           std::string(": mem_fraction_static, what chunks and graphs") +
               (chosen.vision_dim > 0 ? ", and images," : "") + " leave of the memory");
  list.add("cost_model.max_graph_tokens", sglang_graph_batch(tier, chosen),
           for_gpu + ": requests of the largest decode graph");
  return list.take();
}

std::vector<ServeDefault> sglang_serve_defaults(const Scenario& scenario, const HardwareSpec& gpu,
                                                const IsGiven& is_given) {
  const SglangConfig& config = scenario.scheduler.settings<SglangConfig>();
  SglangServeOptions chosen;
  chosen.tensor_parallel_size = scenario.cost_model.tensor_parallel_size;
  if (is_given("engine.max_num_seqs")) chosen.max_num_seqs = scenario.engine.max_num_seqs;
  if (is_given("scheduler.chunked_prefill_size")) {
    chosen.chunked_prefill_size = config.chunked_prefill_size;
  }
  chosen.max_prefill_tokens = config.max_prefill_tokens;
  chosen.vision_dim = vision_dim_of(scenario);
  return sglang_serve_defaults(gpu, chosen);
}

}  // namespace metronome
