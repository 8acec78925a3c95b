// Every scheduling policy by name: what it is, which scheduler keys it reads, how to make one.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/scenario.h"

namespace metronome {

class Scheduler;
struct SchedulerContext;

struct PolicyInfo {
  std::string_view name;
  std::string_view summary;  // one line for `metronome list policies`
  std::string_view source;   // what it reproduces
  // Keys of `scheduler:` it reads, besides `policy`.
  std::span<const std::string_view> keys;
  bool allows_order = false;                   // `order` other than fcfs
  bool allows_prefix_caching = false;          // kv_cache.enable_prefix_caching
  StepShape natural_shape = StepShape::Mixed;  // what step_shape `auto` means
  bool requires_separate = false;              // step_shape mixed is impossible
  std::unique_ptr<Scheduler> (*make)(const SchedulerContext&) = nullptr;
};

std::span<const PolicyInfo> all_policies();            // in the order they are listed
const PolicyInfo* find_policy(std::string_view name);  // nullptr when unknown

}  // namespace metronome
