// SPDX-License-Identifier: Apache-2.0
#include "fleet/router_registry.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/scenario/fleet_config.h"
#include "fleet/routers/routers.h"

namespace metronome {
namespace {

std::vector<RouterInfo>& known_routers() {
  static std::vector<RouterInfo> routers = [] {
    std::vector<RouterInfo> ours;
    ours.reserve(kMostRouters);
    ours.assign(our_routers().begin(), our_routers().end());
    return ours;
  }();
  return routers;
}

}  // namespace

std::span<const RouterInfo> all_routers() { return known_routers(); }

void register_router(const RouterInfo& router) {
  METRONOME_CHECK(known_routers().size() < kMostRouters, "there is room for one more router");
  known_routers().push_back(router);
  register_routers();
}

void register_routers() {
  std::vector<RouterKeys> keys;
  for (const RouterInfo& router : all_routers()) {
    keys.push_back({router.name, router.summary, router.visit});
  }
  register_router_keys(std::move(keys));
}

const RouterInfo* find_router(std::string_view name) {
  const auto all = all_routers();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const RouterInfo& router) { return router.name == name; });
  return found != all.end() ? &*found : nullptr;
}

}  // namespace metronome
