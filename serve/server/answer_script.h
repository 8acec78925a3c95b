// SPDX-License-Identifier: Apache-2.0
// The tokens of a simulated answer that has a form.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/types.h"

namespace metronome {

class Tokenizer;

// `count` tokens of plausible text.
std::vector<TokenId> text_tokens(const Tokenizer& tokenizer, std::uint64_t seed,
                                 std::int32_t count);

// JSON that satisfies a schema, as near to `num_tokens` as it can be: its texts and lists are as
// long as that takes. It has more than `most_tokens` only if every form of it has. Throws
// SchemaError.
std::vector<TokenId> schema_tokens(const Tokenizer& tokenizer, const Json& schema,
                                   std::uint64_t seed, std::int32_t num_tokens,
                                   std::int32_t most_tokens);

}  // namespace metronome
