// Every scheduling policy by name: what it is, which scheduler keys it reads, how to make one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "core/engine/engine_config.h"
#include "core/engine/kv/kv_cache.h"
#include "core/engine/scheduler_config.h"

namespace metronome {

class Scheduler;
struct SchedulerContext;
struct EngineSetup;

enum class PrefixCaching : std::uint8_t {
  Never,
  Optional,  // on unless switched off
  Always,
};

// How an engine keeps its cache; KvCacheLayout tells what each means.
struct CacheRules {
  bool has_null_block = false;
  HashTime hash_time = HashTime::Plan;
  DuplicateRule duplicates = DuplicateRule::KeepAll;
  bool reuses_unhashed_first = false;
};

// Host time between dependent steps of an engine as it ships, and who measured it where.
struct HostGap {
  double us = 0;
  std::string_view source;
};

constexpr std::int32_t kWholeModelLength = std::int32_t{1} << 24;  // a budget of max_model_len

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line for `metronome list policies`
  std::string_view source;   // what it reproduces: engine, version
  // Keys of `scheduler:` it reads, besides `policy`.
  std::span<const std::string_view> keys = {};
  bool allows_order = false;       // `order` other than fcfs
  bool allows_allocation = false;  // kv_cache.allocation; engines have their own
  bool allows_watermark = false;   // kv_cache.watermark
  bool has_token_budget = false;   // of a step, under a key of its own
  PrefixCaching prefix_caching = PrefixCaching::Never;
  bool requires_paged = false;         // kv_cache.backend slotted is impossible
  bool allows_sliding_window = false;  // kv_cache.sliding_window
  bool predicts_steps = false;  // asks how long a step would take: SchedulerContext::predictor
  StepShape natural_shape = StepShape::Mixed;  // what step_shape `auto` means
  bool requires_separate = false;              // step_shape mixed is impossible
  std::int32_t default_token_budget = 2048;    // max_num_batched_tokens: auto
  double default_watermark = 0;                // kv_cache.watermark: null
  std::optional<HostGap> host_gap = {};        // absent: nobody has published one
  CacheRules cache = {};
  // Rules that depend on settings: changes a layout that is filled in otherwise.
  void (*adjust_cache)(const SchedulerConfig&, std::int32_t max_model_len,
                       KvCacheLayout& layout) = nullptr;
  std::unique_ptr<Scheduler> (*make)(const SchedulerContext&) = nullptr;
};

// Gives the cache of `setup`, which is filled in otherwise, the rules of the policy's engine.
void arrange_cache(const PolicyInfo& policy, EngineSetup& setup);
// Blocks that `share` of the pool is, as engines round it; nullopt: the policy's own share.
std::int64_t watermark_blocks(const PolicyInfo& policy, std::optional<double> share,
                              std::int64_t num_blocks);

bool caches_prefixes(const PolicyInfo& policy, const KvCacheConfig& config);

// Whether the policy reads that key of the `scheduler` section.
bool reads_key(const PolicyInfo& policy, std::string_view key);

std::span<const PolicyInfo> all_policies();            // in the order they are listed
const PolicyInfo* find_policy(std::string_view name);  // nullptr when unknown

}  // namespace metronome
