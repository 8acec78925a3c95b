// SPDX-License-Identifier: Apache-2.0
// A text of JSON that satisfies a JSON Schema, with places for letters that make it longer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "serve/server/schema_check.h"

namespace metronome {

// A part of the text.
struct SchemaPiece {
  std::string text;
  // In the place of a text: letters, blanks, digits and marks that JSON does not escape.
  bool is_free = false;
  std::int64_t min_chars = 0, max_chars = INT64_MAX;
};

// The choices that a schema leaves.
struct SchemaChoices {
  std::uint64_t seed = 0;      // of enum, of numbers, and of what is true
  bool has_optional = true;    // properties that are not required are there
  std::int64_t num_items = 1;  // of arrays, within their limits
};

// The pieces of a text that satisfies the schema. Of anyOf and oneOf the first schema is taken that
// can be satisfied. Keywords of draft 2020-12 that only exclude values (`not`, `contains`,
// `dependentSchemas`, ...) are left to the check in the end: the text with its free pieces as short
// as they can be satisfies the schema. Throws SchemaError.
std::vector<SchemaPiece> schema_pieces(const Json& schema, const SchemaChoices& choices);

}  // namespace metronome
