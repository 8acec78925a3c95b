// SPDX-License-Identifier: Apache-2.0
// The form of one router's recorded decisions. Each file of fleet/routers has its own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/json_place.h"
#include "fleet/router.h"

namespace metronome {

struct RouterCaseFormat {
  std::string_view choice_key = "worker";     // of an arrival
  std::string_view replicas_key = "workers";  // of a case
  // The router's settings, by their keys. Throws ConfigError.
  Json (*settings)(const JsonPlace& c) = nullptr;
  // The tokens by which the router compares prompts; nullptr: it does not. Throws ConfigError.
  std::vector<std::uint64_t> (*read_prompt)(const JsonPlace& event) = nullptr;
  // Fields of an arrival that say what the router knew before; nullptr: none.
  Json (*known)(Router& router, const RoutedRequest& request, const JsonPlace& c) = nullptr;
};

// The characters of an event's `text`.
std::vector<std::uint64_t> read_characters(const JsonPlace& event);

}  // namespace metronome
