// SPDX-License-Identifier: Apache-2.0
// The keys of a published config.json for the numbers of a ModelConfig.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/model/shape_bounds.h"

namespace metronome {

// A sentence about a ModelConfig (its shape_error(), for instance) in the keys of the file that it
// was read from: of several that mean the same, the one that the file has.
std::string in_keys_of(const Json& file, std::string_view sentence);

// The range of a dotted key of a file; nullopt: none, or one that depends on other keys. A number
// that may be left out counts from its smallest.
std::optional<IntegerRange> config_key_range(std::string_view dotted_key);

}  // namespace metronome
