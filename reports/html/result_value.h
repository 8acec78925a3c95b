// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "core/base/json.h"

namespace metronome {

// A number of a result file; NaN where it has none of this name.
inline double number_at(const Json& result, const char* key) {
  const Json* found = result.find(key);
  return found != nullptr && found->is_number() ? found->get<double>() : std::nan("");
}

}  // namespace metronome
