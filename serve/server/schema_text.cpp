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
#include "serve/server/pattern_text.h"

namespace metronome {
namespace {

constexpr int kMaxDepth = 64;             // of schemas in schemas, $ref included
constexpr int kShortDepth = 8;            // below it only what is required
constexpr std::size_t kMaxPieces = 4096;  // also how many schemas are looked at
constexpr int kMaxMerged = 1024;          // schemas that are copied into others
constexpr std::size_t kMaxSchemaBytes = 64 * 1024;
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

using Names = std::map<std::string, bool, std::less<>>;  // whether each is written

class Writer {
 public:
  Writer(const Json& root, const SchemaChoices& choices) : root_(root), choices_(choices) {}

  std::vector<SchemaPiece> write() {
    value(root_, "", 0, 0);
    if (!satisfies(root_, root_, written(0))) {
      throw SchemaError("", "has limits that no simulated answer was found for");
    }
    return joined();
  }

 private:
  // `place` says where the schema is, `depth` how deep; `item` numbers items that differ, from 1.
  void value(const Json& schema, const std::string& place, int depth, std::uint64_t item);
  bool composed(const Json& schema, const std::string& place, int depth, std::uint64_t item);
  void typed(const Json& schema, const std::string& place, int depth, std::uint64_t item);
  void object(const Json& schema, const std::string& place, int depth);
  Json member_schema(const Json& schema, const std::string& name) const;
  std::string new_name(const Json& schema, std::int64_t number, const std::string& place) const;
  Names required_names(const Json& schema) const;
  void array(const Json& schema, const std::string& place, int depth);
  void string(const Json& schema, const std::string& place, std::uint64_t item);
  bool patterned(const Json& schema, const std::string& place, std::uint64_t item);
  void number(const Json& schema, bool is_integer, const std::string& place, std::uint64_t item);
  void one_of(const Json& schema, const Json& values, const std::string& place, std::uint64_t item);
  void first_of(const Json& schema, const char* key, const std::string& place, int depth,
                std::uint64_t item);
  Json merged(const Json& schema, const std::string& place);
  std::string type_of(const Json& schema) const;
  bool is_spent() const { return num_schemas_ > kMaxPieces || num_merged_ > kMaxMerged; }
  std::uint64_t draw() { return mix64(choices_.seed ^ mix64(++num_draws_)); }
  void text(std::string_view more);
  void constant(const Json& value) { text(value.dump(JsonStyle{.replaces_bad_utf8 = true})); }
  Json written(std::size_t begin) const;
  std::vector<SchemaPiece> joined() const;

  const Json& root_;
  SchemaChoices choices_;
  std::vector<SchemaPiece> pieces_;
  std::uint64_t num_draws_ = 0;
  std::size_t num_schemas_ = 0;
  int num_merged_ = 0;
};

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

const Json* list_at(const Json& schema, const char* key) {
  const Json* value = schema.find(key);
  return value != nullptr && value->is_array() && !value->empty() ? value : nullptr;
}

// The schema of what is not named: of properties, of items.
const Json* rest_of(const Json& schema, const char* key, const char* unevaluated) {
  const Json* rest = schema.find(key);
  return rest != nullptr ? rest : schema.find(unevaluated);
}

// Keywords that restrict a value and that neither the writer nor the check knows.
void check_keywords(const Json& schema, const std::string& place) {
  for (const char* key : {"$dynamicRef", "$recursiveRef"}) {
    if (!schema.contains(key)) continue;
    throw SchemaError(schema_place(place, key),
                      "is not supported by simulated answers; allowed: a schema without it");
  }
}

void Writer::text(std::string_view more) {
  if (pieces_.empty() || pieces_.back().is_free) pieces_.emplace_back();
  pieces_.back().text += more;
}

// The value that the pieces from `begin` on say, with free pieces as short as they can be.
Json Writer::written(std::size_t begin) const {
  constexpr std::int64_t kMost = 1 << 20;
  std::string all;
  for (std::size_t i = begin; i < pieces_.size(); ++i) {
    all += pieces_[i].text;
    if (!pieces_[i].is_free) continue;
    all.append(static_cast<std::size_t>(std::min(pieces_[i].min_chars, kMost)), 'a');
  }
  return Json::parse(all);
}

// Texts side by side as one piece.
std::vector<SchemaPiece> Writer::joined() const {
  std::vector<SchemaPiece> pieces;
  for (const SchemaPiece& piece : pieces_) {
    if (!piece.is_free && piece.text.empty()) continue;
    if (piece.is_free || pieces.empty() || pieces.back().is_free) {
      pieces.push_back(piece);
    } else {
      pieces.back().text += piece.text;
    }
  }
  return pieces;
}

// The schema with those of allOf and $ref in it.
Json Writer::merged(const Json& schema, const std::string& place) {
  if (++num_merged_ > kMaxMerged) throw SchemaError(place, "has too many schemas in schemas");
  Json result = schema;
  Json parts = schema.value("allOf", Json::array());
  if (const Json* name = schema.find("$ref")) parts.push_back(named_schema(root_, *name, place));
  result.erase("allOf");
  result.erase("$ref");
  for (const Json& part : parts) {
    if (part == Json(true)) continue;
    if (!part.is_object()) {
      throw SchemaError(place, "is not a schema; allowed: an object that a value can satisfy");
    }
    check_keywords(part, place);
    // The next call follows a reference in the schema that it refers to.
    Json rest = part;
    if (const Json* name = part.find("$ref")) {
      Json inner = part.value("allOf", Json::array());
      inner.push_back(named_schema(root_, *name, place));
      rest.erase("$ref");
      rest["allOf"] = std::move(inner);
    }
    result = both_schemas(result, rest, place);
  }
  return result;
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
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {"properties", "object"},        {"required", "object"},
      {"patternProperties", "object"}, {"additionalProperties", "object"},
      {"minProperties", "object"},     {"items", "array"},
      {"prefixItems", "array"},        {"contains", "array"},
      {"minItems", "array"},           {"minimum", "number"},
      {"maximum", "number"},           {"exclusiveMinimum", "number"},
      {"exclusiveMaximum", "number"},  {"multipleOf", "number"}};
  for (const auto& [key, name] : kTypes) {
    if (schema.contains(key)) return std::string(name);
  }
  return "string";
}

// The first schema of a list that can be satisfied; exactly one of the list, for oneOf.
void Writer::first_of(const Json& schema, const char* key, const std::string& place, int depth,
                      std::uint64_t item) {
  const std::vector<SchemaPiece> before = pieces_;
  std::optional<SchemaError> first;
  Json rest = schema;
  rest.erase(key);
  for (const Json& entry : *schema.find(key)) {
    try {
      const std::size_t begin = pieces_.size();
      pieces_.emplace_back();  // so that its text begins with a piece
      Json both = rest;
      Json parts = rest.value("allOf", Json::array());
      parts.push_back(entry);
      both["allOf"] = std::move(parts);
      value(both, schema_place(place, key), depth + 1, item);
      const Json choice = {{key, *schema.find(key)}};
      if (satisfies(root_, choice, written(begin))) return;
      throw SchemaError(schema_place(place, key), "has no schema that alone can be satisfied");
    } catch (const SchemaError& error) {
      if (is_spent()) throw;
      if (!first) first = error;
      pieces_ = before;
    }
  }
  throw SchemaError(*first);
}

// The schema of a member: that of its name and of each pattern, or of members without.
Json Writer::member_schema(const Json& schema, const std::string& name) const {
  Json parts = Json::array();
  if (const Json* properties = object_at(schema, "properties")) {
    if (const Json* own = properties->find(name)) parts.push_back(*own);
  }
  if (const Json* patterns = object_at(schema, "patternProperties")) {
    for (const Json::Member& entry : patterns->items()) {
      const Json matching = {{"pattern", entry.key}};
      if (satisfies(root_, matching, Json(name))) parts.push_back(entry.value);
    }
  }
  const Json* more = rest_of(schema, "additionalProperties", "unevaluatedProperties");
  if (parts.empty() && more != nullptr) parts.push_back(*more);
  if (parts.empty() || parts[0] == Json(true)) return Json{{"type", "string"}};
  return parts.size() == 1 ? parts[0] : Json{{"allOf", parts}};
}

// A name for a member that the schema does not name: one that its patterns and limits allow.
std::string Writer::new_name(const Json& schema, std::int64_t number,
                             const std::string& place) const {
  std::string plain = fmt::format("key{}", number);
  const Json* rule = schema.find("propertyNames");
  const auto is_allowed = [&](const std::string& name) {
    return (rule == nullptr || satisfies(root_, *rule, Json(name))) &&
           !(member_schema(schema, name) == Json(false));
  };
  if (is_allowed(plain)) return plain;
  std::vector<std::string> patterns;
  if (rule != nullptr && rule->is_object()) {
    if (const Json* list = list_at(*rule, "enum")) {
      const auto at = static_cast<std::size_t>(number - 1);
      if (at < list->size() && (*list)[at].is_string()) return (*list)[at].string();
    }
    const Json* pattern = rule->find("pattern");
    if (pattern != nullptr && pattern->is_string()) patterns.push_back(pattern->string());
  }
  if (const Json* named = object_at(schema, "patternProperties")) {
    for (const Json::Member& entry : named->items()) patterns.push_back(entry.key);
  }
  for (const std::string& pattern : patterns) {
    try {
      const std::optional<std::string> name =
          SchemaPattern(pattern).example(1, 64, choices_.seed + static_cast<std::uint64_t>(number));
      if (name && is_allowed(*name)) return *name;
    } catch (const std::runtime_error&) {
      continue;
    }
  }
  throw SchemaError(schema_place(place, "minProperties"), "is more than there are properties");
}

// With those that others need.
Names Writer::required_names(const Json& schema) const {
  Names names;
  if (const Json* list = list_at(schema, "required")) {
    for (const Json& name : *list) {
      if (name.is_string()) names[name.string()] = false;
    }
  }
  const Json* needs = object_at(schema, "dependentRequired");
  if (needs == nullptr) return names;
  for (std::size_t before = SIZE_MAX; before != names.size();) {
    before = names.size();
    for (const Json::Member& need : needs->items()) {
      const Json* properties = object_at(schema, "properties");
      const bool is_there = names.contains(need.key) ||
                            (choices_.has_optional && properties && properties->contains(need.key));
      if (!is_there) continue;
      for (const Json& name : need.value) {
        if (name.is_string()) names.emplace(name.string(), false);
      }
    }
  }
  return names;
}

void Writer::object(const Json& schema, const std::string& place, int depth) {
  Names required = required_names(schema);
  text("{");
  std::int64_t count = 0;
  const std::int64_t least = limit_of(schema, "minProperties", 0);
  const std::int64_t most = limit_of(schema, "maxProperties", INT64_MAX);
  const auto member = [&](const std::string& name, const Json& of_member,
                          const std::string& where) {
    text((count > 0 ? ", " : "") + Json(name).dump(JsonStyle{.replaces_bad_utf8 = true}) + ": ");
    value(of_member, where, depth + 1, 0);
    ++count;
  };
  // A schema that contains itself ends where nothing more is required.
  const bool has_optional = choices_.has_optional && depth < kShortDepth;
  Names taken;
  if (const Json* properties = object_at(schema, "properties")) {
    const std::string above = schema_place(place, "properties");
    std::int64_t room = most - static_cast<std::int64_t>(required.size());
    for (const Json::Member& entry : properties->items()) {
      const Json of_member = member_schema(schema, entry.key);
      const auto found = required.find(entry.key);
      if (found != required.end()) {
        found->second = true;
        taken[entry.key] = true;
        member(entry.key, of_member, schema_place(above, entry.key));
        continue;
      }
      const bool is_needed = count + room < least;
      if ((!has_optional && !is_needed) || room <= 0 || of_member == Json(false)) continue;
      const std::vector<SchemaPiece> before = pieces_;
      try {
        member(entry.key, of_member, schema_place(above, entry.key));
        taken[entry.key] = true;
        --room;
      } catch (const SchemaError&) {
        if (is_spent()) throw;
        pieces_ = before;
      }
    }
  }
  for (const auto& [name, is_there] : required) {
    if (is_there) continue;
    taken[name] = true;
    const Json of_member = member_schema(schema, name);
    if (of_member == Json(false)) {
      throw SchemaError(schema_place(place, "required"), "has a name that is no property");
    }
    member(name, of_member, schema_place(place, "additionalProperties"));
  }
  const Json* more = schema.find("additionalProperties");
  const bool takes_more = choices_.num_items > 0 && depth < kShortDepth;
  const bool is_map = takes_more && more != nullptr && more->is_object();
  const std::int64_t wanted = std::max<std::int64_t>(least, is_map ? 1 : 0);
  std::int64_t i = 0;
  while (count < wanted && count < most) {
    if (++i > 2 * wanted + 64) {
      throw SchemaError(schema_place(place, "minProperties"), "is more than there are properties");
    }
    const std::string name = new_name(schema, i, place);
    if (!taken.emplace(name, true).second) continue;
    member(name, member_schema(schema, name), schema_place(place, "additionalProperties"));
  }
  text("}");
}

void Writer::array(const Json& schema, const std::string& place, int depth) {
  const std::int64_t least = limit_of(schema, "minItems", 0);
  const std::int64_t most = limit_of(schema, "maxItems", INT64_MAX);
  const Json* items = rest_of(schema, "items", "unevaluatedItems");
  const Json* first = list_at(schema, "prefixItems");
  const std::size_t num_first = first != nullptr ? first->size() : 0;
  if (items != nullptr && items->is_array()) {
    throw SchemaError(schema_place(place, "items"),
                      "is a list; allowed: an object, or prefixItems");
  }
  const Json* contained = schema.find("contains");
  const std::int64_t num_contained = contained == nullptr ? 0 : limit_of(schema, "minContains", 1);
  const bool has_more = items == nullptr || !(*items == Json(false));
  const auto begun = static_cast<std::int64_t>(num_first);
  std::int64_t count = std::max<std::int64_t>(choices_.num_items, begun + num_contained);
  if (depth >= kShortDepth) count = begun + num_contained;
  if (!has_more) count = begun;
  count = std::min(std::max(count, least), most);
  const bool differ = schema.contains("uniqueItems") && schema["uniqueItems"] == Json(true);
  text("[");
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) text(", ");
    const auto number = differ ? static_cast<std::uint64_t>(i + 1) : 0;
    if (i < begun) {
      value((*first)[static_cast<std::size_t>(i)], schema_place(place, "prefixItems"), depth + 1,
            number);
      continue;
    }
    if (!has_more) {
      throw SchemaError(schema_place(place, "minItems"), "is more than there are items");
    }
    Json of_item = items != nullptr && items->is_object() ? *items : Json{{"type", "string"}};
    if (i < begun + num_contained) {
      of_item = items != nullptr ? Json{{"allOf", Json::array({of_item, *contained})}} : *contained;
    }
    value(of_item, schema_place(place, "items"), depth + 1, number);
  }
  text("]");
}

// A text that a pattern finds; false: there is no pattern.
bool Writer::patterned(const Json& schema, const std::string& place, std::uint64_t item) {
  const Json* pattern = schema.find("pattern");
  if (pattern == nullptr || !pattern->is_string()) return false;
  const auto refuse = [&](const std::string& what) {
    throw SchemaError(schema_place(place, "pattern"),
                      what + "; allowed: a pattern without look-around, \\b and \\p");
  };
  try {
    const SchemaPattern known(pattern->string());
    const std::uint64_t seed = item > 0 ? mix64(choices_.seed) + item : draw();
    for (std::uint64_t attempt = 0; attempt < 16; ++attempt) {
      const std::optional<std::string> example =
          known.example(limit_of(schema, "minLength", 0), limit_of(schema, "maxLength", INT64_MAX),
                        seed + attempt * 1000);
      if (!example) continue;
      constant(Json(*example));
      return true;
    }
  } catch (const SchemaError&) {
    throw;
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  refuse("was found in no text of simulated answers");
  return true;
}

void Writer::string(const Json& schema, const std::string& place, std::uint64_t item) {
  if (const Json* format = schema.find("format"); format != nullptr && format->is_string()) {
    for (const auto& [name, example] : kFormats) {
      const Json value((std::string(example)));
      if (name != format->string() || item > 1) continue;
      if (satisfies(root_, schema, value)) return constant(value);
    }
  }
  if (patterned(schema, place, item)) return;
  text("\"");
  // Items that have to differ begin with their numbers.
  const std::string begin = item == 0 ? "" : fmt::format("{} ", item);
  text(begin);
  const auto num_begun = static_cast<std::int64_t>(begin.size());
  SchemaPiece& free = pieces_.emplace_back();
  free.is_free = true;
  free.min_chars = std::max<std::int64_t>(limit_of(schema, "minLength", 0) - num_begun, 0);
  free.max_chars = std::max<std::int64_t>(limit_of(schema, "maxLength", INT64_MAX) - num_begun, 0);
  if (free.min_chars > free.max_chars) {
    throw SchemaError(schema_place(place, "minLength"), "is more than maxLength");
  }
  text("\"");
}

void Writer::number(const Json& schema, bool is_integer, const std::string& place,
                    std::uint64_t item) {
  constexpr double kMost = 4e18;  // integers of 64 bits
  constexpr std::uint64_t kMostTried = 100;
  const auto bound = [&](const char* key) -> std::optional<double> {
    const Json* value = schema.find(key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return std::clamp(value->get<double>(), -kMost, kMost);
  };
  const double low =
      std::max(bound("minimum").value_or(-kMost), bound("exclusiveMinimum").value_or(-kMost));
  const double high =
      std::min(bound("maximum").value_or(kMost), bound("exclusiveMaximum").value_or(kMost));
  const double step = std::max(bound("multipleOf").value_or(0), is_integer ? 1.0 : 0.0);
  const double grain = step > 0 ? step : 0.5;
  // Near zero, or the end of the range that is nearer to it.
  const double begin =
      low > 0 ? low : (high <= 0 ? std::max(high - 99 * grain, low) : std::max(0.0, low));
  const double first = std::ceil(begin / grain) * grain;
  std::vector<Json> values;
  const auto try_value = [&](double number) {
    const bool is_whole = std::trunc(number) == number;
    const Json value = is_whole ? Json(static_cast<std::int64_t>(number)) : Json(number);
    if (satisfies(root_, schema, value)) values.push_back(value);
  };
  for (std::uint64_t i = 0; i < kMostTried + item; ++i) {
    try_value(first + static_cast<double>(i) * grain);
  }
  if (values.empty() && step == 0) {  // a range without a half
    for (const double share : {0.5, 0.25, 0.75, 0.0, 1.0}) {
      try_value(low + share * (high - low));
    }
  }
  if (values.empty()) throw SchemaError(place, "no number is within its limits");
  if (item > values.size()) {
    throw SchemaError(place, "has fewer numbers than items that differ");
  }
  constant(values[item > 0 ? item - 1 : draw() % values.size()]);
}

// One of the values that the whole schema allows.
void Writer::one_of(const Json& schema, const Json& values, const std::string& place,
                    std::uint64_t item) {
  std::vector<const Json*> allowed;
  for (const Json& value : values) {
    if (satisfies(root_, schema, value)) allowed.push_back(&value);
  }
  if (allowed.empty()) {
    throw SchemaError(schema_place(place, "enum"), "has no value that the schema allows");
  }
  if (item > allowed.size()) {
    throw SchemaError(schema_place(place, "enum"), "has fewer values than items that differ");
  }
  constant(*allowed[item > 0 ? item - 1 : draw() % allowed.size()]);
}

// A schema that is of others. False: it is not.
bool Writer::composed(const Json& schema, const std::string& place, int depth, std::uint64_t item) {
  if (schema.contains("$ref") || list_at(schema, "allOf") != nullptr) {
    value(merged(schema, place), place, depth + 1, item);
    return true;
  }
  if (const Json* condition = schema.find("if")) {
    Json rest = schema;
    for (const char* key : {"if", "then", "else"}) rest.erase(key);
    const Json then = Json{{"allOf", Json::array({*condition, schema.value("then", Json(true))})}};
    const Json otherwise =
        Json{{"allOf", Json::array({Json{{"not", *condition}}, schema.value("else", Json(true))})}};
    rest = both_schemas(rest, Json{{"anyOf", Json::array({then, otherwise})}}, place);
    value(rest, place, depth + 1, item);
    return true;
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    if (list_at(schema, key) == nullptr) continue;
    first_of(schema, key, place, depth, item);
    return true;
  }
  return false;
}

void Writer::value(const Json& schema, const std::string& place, int depth, std::uint64_t item) {
  if (depth > kMaxDepth || ++num_schemas_ > kMaxPieces || pieces_.size() > kMaxPieces) {
    throw SchemaError(place, "is too large or contains itself without an end");
  }
  if (schema == Json(true)) return string(Json::object(), place, item);
  if (!schema.is_object()) {
    throw SchemaError(place, "is not a schema; allowed: an object that a value can satisfy");
  }
  check_keywords(schema, place);
  if (const Json* constant = schema.find("const")) {
    return one_of(schema, Json::array({*constant}), place, item > 1 ? item : 0);
  }
  if (const Json* list = schema.find("enum"); list != nullptr && list->is_array()) {
    return one_of(schema, *list, place, item);
  }
  if (!composed(schema, place, depth, item)) typed(schema, place, depth, item);
}

void Writer::typed(const Json& schema, const std::string& place, int depth, std::uint64_t item) {
  const std::string type = type_of(schema);
  const std::size_t begin = pieces_.size();
  if (schema.contains("not")) pieces_.emplace_back();
  if (type == "object") {
    object(schema, place, depth);
  } else if (type == "array") {
    array(schema, place, depth);
  } else if (type == "string") {
    string(schema, place, item);
  } else if (type == "integer" || type == "number") {
    number(schema, type == "integer", place, item);
  } else if (type == "boolean") {
    one_of(schema, Json::array({true, false}), place, item);
  } else if (type == "null") {
    text("null");
  } else {
    throw SchemaError(
        schema_place(place, "type"),
        clipped(printable(type)) +
            " is no type; allowed: object, array, string, integer, number, boolean, null");
  }
  if (!schema.contains("not") || satisfies(root_, schema, written(begin))) return;
  throw SchemaError(schema_place(place, "not"), "excludes the answers that are simulated");
}

}  // namespace

std::vector<SchemaPiece> schema_pieces(const Json& schema, const SchemaChoices& choices) {
  if (schema.dump(JsonStyle{.replaces_bad_utf8 = true}).size() > kMaxSchemaBytes) {
    throw SchemaError("", fmt::format("has more than {} bytes", kMaxSchemaBytes));
  }
  return Writer(schema, choices).write();
}

}  // namespace metronome
