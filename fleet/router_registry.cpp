// SPDX-License-Identifier: Apache-2.0
#include "fleet/router_registry.h"

#include <algorithm>

namespace metronome {

const RouterInfo* find_router(std::string_view name) {
  const auto all = all_routers();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [name](const RouterInfo& router) { return router.name == name; });
  return found != all.end() ? &*found : nullptr;
}

}  // namespace metronome
