// SPDX-License-Identifier: Apache-2.0
// A text of JSON that satisfies a JSON Schema, with places for letters that make it longer.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/json.h"

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

// A schema that the writer cannot satisfy: a keyword that it does not know, or nothing satisfies
// it.
struct SchemaError : std::runtime_error {
  SchemaError(const std::string& where, const std::string& message)
      : std::runtime_error(message), place(where) {}

  std::string place;  // "properties.a.pattern"
};

// Knows type, enum, const, properties, required, additionalProperties, items, prefixItems, anyOf,
// oneOf, allOf, $ref within the schema, format, and limits of lengths and numbers. Of anyOf and
// oneOf the first schema is taken that can be satisfied. Throws SchemaError.
std::vector<SchemaPiece> schema_pieces(const Json& schema, const SchemaChoices& choices);

}  // namespace metronome
