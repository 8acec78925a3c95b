// SPDX-License-Identifier: Apache-2.0
// Chooses the measured kernels of linear attention (Gated DeltaNet) of a model's heads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/operators/operator_tables.h"
#include "sim/operators/operator_times.h"

namespace metronome {

// The convolution and the delta rule of one layer with so many heads on a device, added up: of the
// engine that was asked for, or else of another, which becomes a remark. Of several kernels the
// fastest counts. nullopt if no engine has all four tables of these heads.
std::optional<StateTimes> state_times(const OperatorTables& tables, std::int64_t key_heads,
                                      std::int64_t value_heads, std::vector<std::string>& remarks);

}  // namespace metronome
