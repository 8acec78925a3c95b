// SPDX-License-Identifier: Apache-2.0
#include "engines/vllm/rules.h"

#include "engines/vllm/settings.h"

namespace metronome {

VllmRules vllm_rules(const VllmConfig& config) {
  const int minor = config.minor();
  return {.lone_request_ignores_threshold = minor >= 31,
          .continues_after_own_preemption = minor >= 33,
          .moves_back_by_position = minor >= 28,
          .retains_boundaries_only = minor >= 29,
          .retains_shared_prefixes = minor >= 26,
          .caches_one_token_windows = minor < 23,
          .releases_computed_windows = minor >= 26,
          .caps_window_admission = minor >= 20,
          .caps_windows_by_steps_in_flight = minor >= 26,
          .reuses_unhashed_windows_first = minor == 23,
          .reuses_unhashed_first = minor >= 24,
          .reuses_first_without_caching = minor >= 24 && minor != 27};
}

}  // namespace metronome
