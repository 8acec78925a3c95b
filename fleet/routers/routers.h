// SPDX-License-Identifier: Apache-2.0
// The rows of the routers, and the settings that each file of this folder reads.
#pragma once

#include "fleet/router_registry.h"

namespace metronome {

// Routers with a file in this folder, in the order they are listed.
std::span<const RouterInfo> our_routers();

// " FLAG VALUE" of a command; empty if the program has that value without the flag.
std::string flag_unless_default(std::string_view flag, double value, double otherwise);

extern const RouterInfo kRoundRobin;
extern const RouterInfo kRandomRouter;
extern const RouterInfo kLeastLoaded;
extern const RouterInfo kPowerOfTwo;
extern const RouterInfo kSessionRouter;
extern const RouterInfo kSglangRouter;
extern const RouterInfo kVllmRouter;
extern const RouterInfo kDynamoRouter;
extern const RouterInfo kVllmDataParallel;
extern const RouterInfo kLlmDRouter;
extern const RouterInfo kProductionStack;
extern const RouterInfo kAibrixRouter;

}  // namespace metronome
