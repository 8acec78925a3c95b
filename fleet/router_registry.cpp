// SPDX-License-Identifier: Apache-2.0
#include "fleet/router_registry.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/scenario/fleet_config.h"

namespace metronome {

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
