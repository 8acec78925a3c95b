// Every scheduling policy by name: what it is, which scheduler keys it reads, how to make one.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/scenario.h"

namespace metronome {

class Scheduler;
struct SchedulerContext;
struct KvCacheLayout;

enum class PrefixCaching : std::uint8_t {
  Never,
  Optional,  // on unless switched off
  Always,
};

constexpr std::int32_t kWholeModelLength = std::int32_t{1} << 24;  // a budget of max_model_len

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line for `metronome list policies`
  std::string_view source;   // what it reproduces: engine, version
  // Keys of `scheduler:` it reads, besides `policy`.
  std::span<const std::string_view> keys = {};
  bool allows_order = false;  // `order` other than fcfs
  PrefixCaching prefix_caching = PrefixCaching::Never;
  bool requires_paged = false;                 // kv_cache.backend slotted is impossible
  bool allows_sliding_window = false;          // kv_cache.sliding_window
  StepShape natural_shape = StepShape::Mixed;  // what step_shape `auto` means
  bool requires_separate = false;              // step_shape mixed is impossible
  std::int32_t default_token_budget = 2048;    // max_num_batched_tokens: auto
  double default_watermark = 0;                // kv_cache.watermark: null
  // How the engine keeps its cache; `layout` is filled in as far as the scenario says.
  void (*arrange_cache)(const SchedulerConfig&, std::int32_t max_model_len,
                        KvCacheLayout& layout) = nullptr;
  std::unique_ptr<Scheduler> (*make)(const SchedulerContext&) = nullptr;
};

bool caches_prefixes(const PolicyInfo& policy, const KvCacheConfig& config);

// Fills in what a scenario leaves to its policy, so that the resolved config shows it.
void resolve_policy_defaults(Scenario& scenario);

std::span<const PolicyInfo> all_policies();            // in the order they are listed
const PolicyInfo* find_policy(std::string_view name);  // nullptr when unknown

}  // namespace metronome
