// SPDX-License-Identifier: Apache-2.0
// The choices of the sections `engine` and `kv_cache`, for headers that do not need the sections:
// what includes them is compiled again for each new key.
#pragma once

#include <cstdint>

namespace metronome {

enum class StepShape : std::uint8_t { Auto, Mixed, Separate };
enum class KvBackend : std::uint8_t { Paged, Slotted };
enum class KvAllocation : std::uint8_t { Incremental, Eager };

}  // namespace metronome
