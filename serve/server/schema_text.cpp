// SPDX-License-Identifier: Apache-2.0
#include "serve/server/schema_text.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/clip.h"
#include "core/base/names.h"
#include "core/base/rng.h"

namespace metronome {
namespace {

constexpr int kMaxDepth = 24;             // of schemas in schemas, $ref included
constexpr std::size_t kMaxPieces = 4096;  // also how many schemas are looked at
constexpr int kMaxMerged = 256;           // schemas that are copied into others
constexpr std::size_t kMaxSchemaBytes = 64 * 1024;

// Keywords that restrict a value and that the writer does not know.
constexpr std::string_view kUnknown[] = {
    "pattern",          "not",           "if",          "dependentRequired",
    "dependentSchemas", "propertyNames", "contains",    "unevaluatedProperties",
    "unevaluatedItems", "$dynamicRef",   "dependencies"};

// Examples of formats. A text of another format has any letters.
constexpr std::pair<std::string_view, std::string_view> kFormats[] = {
    {"date-time", "2025-01-31T12:00:00Z"},
    {"date", "2025-01-31"},
    {"time", "12:00:00Z"},
    {"duration", "PT1H"},
    {"email", "ada@example.com"},
    {"idn-email", "ada@example.com"},
    {"hostname", "example.com"},
    {"idn-hostname", "example.com"},
    {"ipv4", "192.0.2.1"},
    {"ipv6", "2001:db8::1"},
    {"uri", "https://example.com/a"},
    {"uri-reference", "https://example.com/a"},
    {"iri", "https://example.com/a"},
    {"url", "https://example.com/a"},
    {"uuid", "123e4567-e89b-12d3-a456-426614174000"},
    {"json-pointer", "/a"},
    {"regex", "a"}};

class Writer {
 public:
  Writer(const Json& root, const SchemaChoices& choices) : root_(root), choices_(choices) {}

  std::vector<SchemaPiece> write() {
    value(root_, "", 0, 0);
    return std::move(pieces_);
  }

 private:
  // `place` says where the schema is, `depth` how deep; `item` numbers items that differ, from 1.
  void value(const Json& schema, const std::string& place, int depth, std::uint64_t item);
  void object(const Json& schema, const std::string& place, int depth);
  void array(const Json& schema, const std::string& place, int depth);
  void string(const Json& schema, std::uint64_t item);
  void number(const Json& schema, bool is_integer, const std::string& place, std::uint64_t item);
  bool first_of(const Json& schema, const char* key, const std::string& place, int depth,
                std::uint64_t item);
  const Json& resolved(const Json& schema, const std::string& place) const;
  Json merged(const Json& schema, const std::string& place);
  std::string type_of(const Json& schema) const;
  void check_keywords(const Json& schema, const std::string& place) const;
  std::uint64_t draw() { return mix64(choices_.seed ^ mix64(++num_draws_)); }
  void text(std::string_view more);

  const Json& root_;
  SchemaChoices choices_;
  std::vector<SchemaPiece> pieces_;
  std::uint64_t num_draws_ = 0;
  std::size_t num_schemas_ = 0;
  int num_merged_ = 0;
};

std::string below(const std::string& place, std::string_view key) {
  return (place.empty() ? "" : place + ".") + clipped(printable(std::string(key)));
}

std::int64_t limit_of(const Json& schema, const char* key, std::int64_t otherwise) {
  const Json* value = schema.find(key);
  if (value == nullptr || !value->is_number()) return otherwise;
  const auto number = value->get<double>();
  return static_cast<std::int64_t>(std::clamp(number, 0.0, 1e15));
}

const Json* object_at(const Json& schema, const char* key) {
  const Json* value = schema.find(key);
  return value != nullptr && value->is_object() ? value : nullptr;
}

void Writer::text(std::string_view more) {
  if (pieces_.empty() || pieces_.back().is_free) pieces_.emplace_back();
  pieces_.back().text += more;
}

// The schema that a $ref within this one names.
const Json& Writer::resolved(const Json& schema, const std::string& place) const {
  const Json* found = &schema;
  for (int i = 0; found->find("$ref") != nullptr; ++i) {
    const Json& name = (*found)["$ref"];
    const std::string path = name.is_string() ? name.string() : "";
    if (i == kMaxDepth || !path.starts_with("#")) {
      throw SchemaError(below(place, "$ref"), "is not supported; allowed: \"#/$defs/NAME\"");
    }
    found = &root_;
    for (std::size_t at = 1; at < path.size();) {
      const std::size_t end = std::min(path.find('/', at + 1), path.size());
      std::string key = path.substr(at + 1, end - at - 1);
      for (const auto& [escape, character] : {std::pair{"~1", "/"}, std::pair{"~0", "~"}}) {
        for (std::size_t k = 0; (k = key.find(escape, k)) != std::string::npos; ++k) {
          key.replace(k, 2, character);
        }
      }
      found = found->find(key);
      if (found == nullptr) throw SchemaError(below(place, "$ref"), "names nothing in the schema");
      at = end;
    }
    if (!found->is_object()) return *found;
  }
  return *found;
}

// The schema with those of allOf in it.
Json Writer::merged(const Json& schema, const std::string& place) {
  if (++num_merged_ > kMaxMerged) throw SchemaError(place, "has too many schemas in schemas");
  Json result = schema;
  result.erase("allOf");
  for (const Json& part : *schema.find("allOf")) {
    const Json& other = resolved(part, place);
    for (const Json::Member& member : other.items()) {
      Json* own = result.find(member.key);
      if (own == nullptr || member.key == "type") {
        result[member.key] = member.value;
      } else if (own->is_object() && member.value.is_object()) {
        own->update(member.value);
      } else if (own->is_array() && member.value.is_array() && member.key == "required") {
        for (const Json& name : member.value) own->push_back(name);
      } else if (!(*own == member.value)) {
        if (member.key == "title" || member.key == "description") continue;
        throw SchemaError(below(place, "allOf"), "has two of " + clipped(printable(member.key)) +
                                                     "; allowed: one, or equal ones");
      }
    }
  }
  return result;
}

void Writer::check_keywords(const Json& schema, const std::string& place) const {
  for (const std::string_view key : kUnknown) {
    const Json* value = schema.find(key);
    if (value == nullptr || *value == Json(true)) continue;
    throw SchemaError(below(place, key),
                      "is not supported by simulated answers; allowed: a schema without it");
  }
}

std::string Writer::type_of(const Json& schema) const {
  const Json* type = schema.find("type");
  if (type != nullptr && type->is_string()) return type->string();
  if (type != nullptr && type->is_array()) {
    for (const Json& entry : *type) {
      if (entry.is_string() && entry.string() != "null") return entry.string();
    }
    return "null";
  }
  if (schema.contains("properties") || schema.contains("required")) return "object";
  if (schema.contains("items") || schema.contains("prefixItems")) return "array";
  if (schema.contains("minimum") || schema.contains("maximum")) return "number";
  return "string";
}

// The first schema of a list that can be satisfied. False: there is no such list.
bool Writer::first_of(const Json& schema, const char* key, const std::string& place, int depth,
                      std::uint64_t item) {
  const Json* list = schema.find(key);
  if (list == nullptr || !list->is_array() || list->empty()) return false;
  const std::vector<SchemaPiece> before = pieces_;
  std::optional<SchemaError> first;
  for (const Json& entry : *list) {
    try {
      const Json& chosen = resolved(entry, place);
      if (!chosen.is_object()) {
        value(chosen, below(place, key), depth + 1, item);
        return true;
      }
      Json both = schema;
      both.erase(key);
      both["allOf"] = Json::array({chosen});
      value(merged(both, place), below(place, key), depth + 1, item);
      return true;
    } catch (const SchemaError& error) {
      if (num_schemas_ > kMaxPieces || num_merged_ > kMaxMerged) throw;
      if (!first) first = error;
      pieces_ = before;
    }
  }
  throw SchemaError(*first);
}

void Writer::object(const Json& schema, const std::string& place, int depth) {
  std::map<std::string, bool, std::less<>> required;
  if (const Json* names = schema.find("required"); names != nullptr && names->is_array()) {
    for (const Json& name : *names) {
      if (name.is_string()) required[name.string()] = false;
    }
  }
  text("{");
  std::int64_t count = 0;
  const std::int64_t least = limit_of(schema, "minProperties", 0);
  const std::int64_t most = limit_of(schema, "maxProperties", INT64_MAX);
  const auto begin_member = [&](const std::string& name) {
    text((count++ > 0 ? ", " : "") + Json(name).dump(JsonStyle{.replaces_bad_utf8 = true}) + ": ");
  };
  // A schema that contains itself ends where nothing more is required.
  const bool has_optional = choices_.has_optional && depth < kMaxDepth / 4;
  if (const Json* properties = object_at(schema, "properties")) {
    const auto num_required = static_cast<std::int64_t>(required.size());
    std::int64_t room = most - num_required;
    for (const Json::Member& member : properties->items()) {
      const auto found = required.find(member.key);
      if (found != required.end()) {
        found->second = true;
      } else if (!has_optional || room-- <= 0 || member.value == Json(false)) {
        continue;
      }
      begin_member(member.key);
      value(member.value, below(place + (place.empty() ? "" : ".") + "properties", member.key),
            depth + 1, 0);
    }
  }
  const Json* more = schema.find("additionalProperties");
  const Json any = Json{{"type", "string"}};
  const Json& of_others = more != nullptr && more->is_object() && !more->empty() ? *more : any;
  for (const auto& [name, is_there] : required) {
    if (is_there) continue;
    if (more != nullptr && *more == Json(false)) {
      throw SchemaError(below(place, "required"), "has a name that is no property");
    }
    begin_member(name);
    value(of_others, below(place, "additionalProperties"), depth + 1, 0);
  }
  const bool is_map = more != nullptr && more->is_object() && choices_.num_items > 0;
  for (std::int64_t i = 0; count < std::max<std::int64_t>(least, is_map ? 1 : 0) && count < most;
       ++i) {
    if (more != nullptr && *more == Json(false)) {
      throw SchemaError(below(place, "minProperties"), "is more than there are properties");
    }
    begin_member(fmt::format("key{}", i + 1));
    value(of_others, below(place, "additionalProperties"), depth + 1, 0);
  }
  text("}");
}

void Writer::array(const Json& schema, const std::string& place, int depth) {
  const std::int64_t least = limit_of(schema, "minItems", 0);
  const std::int64_t most = limit_of(schema, "maxItems", INT64_MAX);
  const Json* items = schema.find("items");
  const Json* first = schema.find("prefixItems");
  const std::size_t num_first = first != nullptr && first->is_array() ? first->size() : 0;
  if (items != nullptr && items->is_array()) {
    throw SchemaError(below(place, "items"), "is a list; allowed: an object, or prefixItems");
  }
  const bool has_more = items == nullptr || !(*items == Json(false));
  std::int64_t count =
      std::max<std::int64_t>(choices_.num_items, static_cast<std::int64_t>(num_first));
  if (depth >= kMaxDepth / 4) count = static_cast<std::int64_t>(num_first);
  if (!has_more) count = static_cast<std::int64_t>(num_first);
  count = std::min(std::max(count, least), most);
  const Json any = Json{{"type", "string"}};
  text("[");
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) text(", ");
    const auto at = static_cast<std::size_t>(i);
    if (at < num_first) {
      value((*first)[at], below(place, "prefixItems"), depth + 1, 0);
    } else if (!has_more) {
      throw SchemaError(below(place, "minItems"), "is more than there are items");
    } else {
      const bool differ =
          schema.find("uniqueItems") != nullptr && *schema.find("uniqueItems") == Json(true);
      const Json& of_item = items != nullptr && items->is_object() ? *items : any;
      value(of_item, below(place, "items"), depth + 1,
            differ ? static_cast<std::uint64_t>(i + 1) : 0);
    }
  }
  text("]");
}

void Writer::string(const Json& schema, std::uint64_t item) {
  if (const Json* format = schema.find("format"); format != nullptr && format->is_string()) {
    for (const auto& [name, example] : kFormats) {
      if (name != format->string()) continue;
      return text("\"" + std::string(example) + "\"");
    }
  }
  text("\"");
  // Items that have to differ begin with their numbers.
  const std::string begin = item == 0 ? "" : fmt::format("{} ", item);
  text(begin);
  const auto num_begun = static_cast<std::int64_t>(begin.size());
  SchemaPiece& free = pieces_.emplace_back();
  free.is_free = true;
  free.min_chars = std::max<std::int64_t>(limit_of(schema, "minLength", 0) - num_begun, 0);
  free.max_chars = std::max<std::int64_t>(limit_of(schema, "maxLength", INT64_MAX) - num_begun, 0);
  text("\"");
}

void Writer::number(const Json& schema, bool is_integer, const std::string& place,
                    std::uint64_t item) {
  constexpr double kMost = 1e15;
  double low = -kMost, high = kMost;
  const auto bound = [&](const char* key) -> std::optional<double> {
    const Json* value = schema.find(key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return std::clamp(value->get<double>(), -kMost, kMost);
  };
  const double step = std::max(bound("multipleOf").value_or(0), is_integer ? 1.0 : 0.0);
  const double grain = step > 0 ? step : 0.5;
  if (const auto least = bound("minimum")) low = *least;
  if (const auto above = bound("exclusiveMinimum"))
    low = std::max(low, *above + (step > 0 ? 1e-9 : 0));
  if (const auto most = bound("maximum")) high = *most;
  if (const auto under = bound("exclusiveMaximum"))
    high = std::min(high, *under - (step > 0 ? 1e-9 : 0));
  // Near zero, or the end of the range that is nearer to it.
  const double begin =
      low > 0 ? low : (high < 0 ? std::max(high - 99 * grain, low) : std::max(0.0, low));
  double first = std::ceil(begin / grain) * grain;
  if (step == 0 && first > high) first = low + (high - low) / 2;  // a range without a half
  const double room = std::floor(std::min((high - first) / grain, 99.0) + 1e-9);
  if (room < 0 || first < low || first > high) {
    throw SchemaError(place, "no number is within its limits");
  }
  const double offset = item > 0
                            ? static_cast<double>(item - 1)
                            : static_cast<double>(draw() % (static_cast<std::uint64_t>(room) + 1));
  if (offset > room && item > 0 && first + offset * grain > high) {
    throw SchemaError(place, "has fewer numbers than items that differ");
  }
  double chosen = first + offset * grain;
  if (step == 0 && (bound("exclusiveMinimum") == chosen || bound("exclusiveMaximum") == chosen)) {
    chosen = low + (high - low) / 2;
  }
  const bool is_whole = std::trunc(chosen) == chosen;
  text(is_whole ? Json(static_cast<std::int64_t>(chosen)).dump() : Json(chosen).dump());
}

void Writer::value(const Json& schema, const std::string& place, int depth, std::uint64_t item) {
  if (depth > kMaxDepth || ++num_schemas_ > kMaxPieces || pieces_.size() > kMaxPieces) {
    throw SchemaError(place, "is too large or contains itself without an end");
  }
  if (schema == Json(true)) return string(Json::object(), item);
  if (!schema.is_object()) {
    throw SchemaError(place, "is not a schema; allowed: an object that a value can satisfy");
  }
  if (schema.contains("$ref")) {
    const Json& named = resolved(schema, place);
    Json both = schema;
    both.erase("$ref");
    if (!named.is_object()) return value(named, place, depth + 1, item);
    both["allOf"] = Json::array({named});
    return value(merged(both, place), place, depth + 1, item);
  }
  check_keywords(schema, place);
  const auto write = [this](const Json& constant) {
    text(constant.dump(JsonStyle{.replaces_bad_utf8 = true}));
  };
  if (const Json* constant = schema.find("const")) return write(*constant);
  if (const Json* list = schema.find("enum"); list != nullptr && list->is_array()) {
    if (list->empty()) throw SchemaError(below(place, "enum"), "is empty");
    if (item > list->size()) {
      throw SchemaError(below(place, "enum"), "has fewer values than items that differ");
    }
    return write((*list)[item > 0 ? item - 1 : draw() % list->size()]);
  }
  if (const Json* parts = schema.find("allOf"); parts != nullptr && parts->is_array()) {
    return value(merged(schema, place), place, depth + 1, item);
  }
  if (first_of(schema, "anyOf", place, depth, item)) return;
  if (first_of(schema, "oneOf", place, depth, item)) return;
  const std::string type = type_of(schema);
  if (type == "object") return object(schema, place, depth);
  if (type == "array") return array(schema, place, depth);
  if (type == "string") return string(schema, item);
  if (type == "integer" || type == "number") {
    return number(schema, type == "integer", place, item);
  }
  if (type == "boolean") return text((item > 0 ? item : draw()) % 2 == 0 ? "true" : "false");
  if (type == "null") return text("null");
  throw SchemaError(
      below(place, "type"),
      clipped(printable(type)) +
          " is no type; allowed: object, array, string, integer, number, boolean, null");
}

}  // namespace

std::vector<SchemaPiece> schema_pieces(const Json& schema, const SchemaChoices& choices) {
  if (schema.dump(JsonStyle{.replaces_bad_utf8 = true}).size() > kMaxSchemaBytes) {
    throw SchemaError("", fmt::format("has more than {} bytes", kMaxSchemaBytes));
  }
  return Writer(schema, choices).write();
}

}  // namespace metronome
