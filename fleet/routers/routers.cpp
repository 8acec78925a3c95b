// SPDX-License-Identifier: Apache-2.0
#include "fleet/routers/routers.h"

#include <array>

namespace metronome {

std::span<const RouterInfo> our_routers() {
  static const std::array kRouters = {
      kRoundRobin, kRandomRouter, kLeastLoaded,      kPowerOfTwo, kSessionRouter,   kSglangRouter,
      kVllmRouter, kDynamoRouter, kVllmDataParallel, kLlmDRouter, kProductionStack, kAibrixRouter};
  return kRouters;
}

}  // namespace metronome
