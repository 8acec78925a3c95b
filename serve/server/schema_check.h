// SPDX-License-Identifier: Apache-2.0
// Whether a value satisfies a JSON Schema, and what two schemas ask for together.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "core/base/json.h"

namespace metronome {

// A schema that cannot be used: a keyword that is not known, or nothing satisfies it.
struct SchemaError : std::runtime_error {
  SchemaError(const std::string& where, const std::string& message)
      : std::runtime_error(message), place(where) {}

  std::string place;  // "properties.a.pattern"
};

// "a.b", with a name that can be printed.
std::string schema_place(const std::string& place, std::string_view key);

// The schema that a `$ref` names: "#/$defs/NAME" within `root`. Throws SchemaError.
const Json& named_schema(const Json& root, const Json& name, const std::string& place);

// Draft 2020-12 but for unevaluatedProperties, unevaluatedItems and $dynamicRef, which are left
// out; as in that draft, `format` does not restrict. Throws SchemaError for a `$ref` that names
// nothing, and for schemas that are too deep.
bool satisfies(const Json& root, const Json& schema, const Json& value);

// The schema whose values satisfy both: limits are narrowed, properties and items have both
// schemas. Throws SchemaError where one schema cannot say both.
Json both_schemas(const Json& one, const Json& other, const std::string& place);

}  // namespace metronome
