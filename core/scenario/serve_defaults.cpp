// SPDX-License-Identifier: Apache-2.0
// Sources. vLLM: get_batch_defaults() and _set_default_max_num_seqs_and_batched_tokens_args() of
// vllm/engine/arg_utils.py, vllm/config/cache.py, scheduler.py and vllm.py of 0.19 to 0.33. SGLang
// 0.5.23: srt/arg_groups/memory_hook.py, cuda_graph_hook.py, overrides.py, fields/schedule.py, and
// resolve_max_num_reqs() of srt/mem_cache/kv_cache_configurator.py.
#include "core/scenario/serve_defaults.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/scenario/sglang_memory.h"

namespace metronome {
namespace {

double memory_gib(const HardwareSpec& gpu) { return static_cast<double>(gpu.memory_bytes) / kGib; }

class DefaultList {
 public:
  explicit DefaultList(std::string origin) : origin_(std::move(origin)) {}

  // `reason` follows the origin: " for a GPU of 70 GiB or more".
  void add(const char* key, const std::string& value, const std::string& reason = "") {
    defaults_.push_back({key, value, origin_ + reason});
  }
  void add(const char* key, std::int64_t value, const std::string& reason = "") {
    add(key, std::to_string(value), reason);
  }
  std::vector<ServeDefault> take() { return std::move(defaults_); }

 private:
  std::string origin_;
  std::vector<ServeDefault> defaults_;
};

// ---- vLLM ----

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
  if (tier.min_gib > 0) return " for a GPU of " + std::to_string(tier.min_gib) + " GiB or more";
  const std::string slow = slow_gpu(minor, gpu);
  const bool is_large = memory_gib(gpu) >= static_cast<double>(kVllmTiers[1].min_gib);
  return is_large ? " for " + slow + ", whatever its memory" : " for a GPU below 70 GiB";
}

struct Amount {
  std::int64_t value = 0;
  std::string reason;
};

Amount vllm_budget(const VllmTier& tier, const std::string& reason, std::int64_t max_num_seqs,
                   const ChosenOptions& chosen) {
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

// ---- SGLang ----

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
  if (is_first) return " for a GPU below " + std::to_string(tier.below_gib) + " GiB";
  const std::string from = " for a GPU of " + std::to_string((&tier - 1)->below_gib);
  if (tier.below_gib == INT64_MAX) return from + " GiB or more";
  return from + " to " + std::to_string(tier.below_gib) + " GiB";
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

std::int64_t sglang_graph_batch(const SglangTier& tier, const ChosenOptions& chosen) {
  return std::min(
      chosen.tensor_parallel_size < 4 ? tier.max_graph_batch : tier.max_graph_batch_parallel,
      chosen.max_num_seqs.value_or(INT64_MAX));
}

constexpr double kLeastShare = 0.01;  // of the key's range

// The share of memory that is left for weights and KV; negative: the reserve is larger.
double sglang_memory_share(const HardwareSpec& gpu, const ChosenOptions& chosen) {
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
  return (memory_mib - reserved_mib) / memory_mib;
}

}  // namespace

bool is_default_of(std::span<const ServeDefault> defaults, std::string_view key) {
  return std::any_of(defaults.begin(), defaults.end(),
                     [key](const ServeDefault& given) { return given.key == key; });
}

std::vector<ServeDefault> vllm_serve_defaults(int minor, const HardwareSpec& gpu,
                                              const ChosenOptions& chosen) {
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

  DefaultList list("vLLM 0." + std::to_string(minor) + " serve default");
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
           std::string(": 2 x max_num_seqs") +
               (num_drafts > 0 ? " x (1 + num_speculative_tokens)" : "") + ", at most " +
               std::to_string(largest_graph) + (has_large_graphs ? " on B200 and B300" : "") +
               " and max_num_batched_tokens");
  return list.take();
}

bool sglang_leaves_memory(const HardwareSpec& gpu, const ChosenOptions& chosen) {
  return sglang_memory_share(gpu, chosen) >= kLeastShare;
}

std::vector<ServeDefault> sglang_serve_defaults(const HardwareSpec& gpu,
                                                const ChosenOptions& chosen) {
  const SglangTier& tier = sglang_tier(gpu);
  const std::string for_gpu = sglang_tier_text(tier);
  const bool has_pages = is_data_centre_blackwell(gpu);

  DefaultList list("SGLang 0.5.23 launch default");
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
           ": mem_fraction_static, what chunks and graphs leave of the memory");
  list.add("cost_model.max_graph_tokens", sglang_graph_batch(tier, chosen),
           for_gpu + ": requests of the largest decode graph");
  return list.take();
}

}  // namespace metronome
