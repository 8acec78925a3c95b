// SPDX-License-Identifier: Apache-2.0
#include "fleet/routers/routers.h"

#include <array>
#include <fmt/core.h>

#include "core/config/config_reader.h"

namespace metronome {

std::span<const RouterInfo> our_routers() {
  static const std::array kRouters = {
      kRoundRobin, kRandomRouter, kLeastLoaded,      kPowerOfTwo, kSessionRouter,   kSglangRouter,
      kVllmRouter, kDynamoRouter, kVllmDataParallel, kLlmDRouter, kProductionStack, kAibrixRouter};
  return kRouters;
}

std::string flag_unless_default(std::string_view flag, double value, double otherwise) {
  return value == otherwise ? std::string() : fmt::format(" {} {}", flag, format_double(value));
}

}  // namespace metronome
