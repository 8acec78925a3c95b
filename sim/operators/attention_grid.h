// SPDX-License-Identifier: Apache-2.0
// Chooses the measured attention that is nearest to a model's.
//
// The first choice is the engine's own kernel with the model's heads. Then follow, in this order:
// the same query heads per KV head, or else the same KV heads, scaled by the query heads; another
// engine; KV of another type.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cost/grid.h"
#include "sim/operators/operator_tables.h"

namespace metronome {

enum class AttentionPhase : std::uint8_t { Prompts, Decodes };

struct AttentionWanted {
  std::int64_t heads = 0;  // of one device
  std::int64_t kv_heads = 0;
  std::int64_t window = 0;  // 0: none
  std::string kv_dtype;     // bfloat16 or fp8
};

// Sequences in rows; in columns their tokens, or their contexts with the decoded token. Cleaned by
// the rules of operator_rows.h. Appends to `remarks` what is not as wanted. nullopt if no table has
// this window.
std::optional<Grid> attention_grid(const OperatorTables& tables, AttentionPhase phase,
                                   const AttentionWanted& wanted,
                                   std::vector<std::string>& remarks);

}  // namespace metronome
