// SPDX-License-Identifier: Apache-2.0
#include "serve/server/schema_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "core/base/clip.h"
#include "core/base/names.h"
#include "models/text/utf8.h"
#include "serve/server/pattern_text.h"

namespace metronome {
namespace {

constexpr int kMaxChecked = 256;  // of schemas in schemas, $ref included

std::int64_t num_chars(std::string_view text) {
  std::int64_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(read_utf8(text).num_bytes);
  return count;
}

bool is_whole(const Json& value) {
  return value.is_number() && std::trunc(value.get<double>()) == value.get<double>();
}

bool has_type(const Json& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_boolean();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return type == "integer" && is_whole(value);
}

bool finds(const std::string& pattern, std::string_view text) {
  try {
    return SchemaPattern(pattern).finds(text);
  } catch (const std::runtime_error&) {
    return false;
  }
}

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}

  bool holds(const Json& schema, const Json& value) {
    if (schema.is_boolean()) return schema.get<bool>();
    if (!schema.is_object()) throw SchemaError("", "is not a schema");
    if (++depth_ > kMaxChecked) throw SchemaError("", "has too many schemas in schemas");
    const bool result = any_value(schema, value) && combined(schema, value) &&
                        (!value.is_number() || number(schema, value)) &&
                        (!value.is_string() || text(schema, value.string())) &&
                        (!value.is_array() || array(schema, value)) &&
                        (!value.is_object() || object(schema, value));
    --depth_;
    return result;
  }

 private:
  static const Json* list_at(const Json& schema, const char* key) {
    const Json* list = schema.find(key);
    return list != nullptr && list->is_array() ? list : nullptr;
  }
  static std::optional<double> number_at(const Json& schema, const char* key) {
    const Json* value = schema.find(key);
    if (value == nullptr || !value->is_number()) return std::nullopt;
    return value->get<double>();
  }
  // Whether a count is within the two limits.
  static bool counts(const Json& schema, const char* least, const char* most, std::int64_t count) {
    const auto number = static_cast<double>(count);
    return number >= number_at(schema, least).value_or(0) &&
           number <= number_at(schema, most).value_or(number);
  }
  bool holds_at(const Json& schema, const char* key, const Json& value) {
    const Json* found = schema.find(key);
    return found == nullptr || holds(*found, value);
  }

  bool any_value(const Json& schema, const Json& value) {
    if (const Json* type = schema.find("type")) {
      if (type->is_string() && !has_type(value, type->string())) return false;
      if (type->is_array() && std::none_of(type->begin(), type->end(), [&](const Json& name) {
            return name.is_string() && has_type(value, name.string());
          })) {
        return false;
      }
    }
    const Json* constant = schema.find("const");
    if (constant != nullptr && !(*constant == value)) return false;
    const Json* list = list_at(schema, "enum");
    return list == nullptr || std::any_of(list->begin(), list->end(),
                                          [&](const Json& entry) { return entry == value; });
  }

  bool combined(const Json& schema, const Json& value) {
    const auto holds_in = [&](const Json& entry) { return holds(entry, value); };
    if (const Json* name = schema.find("$ref")) {
      if (!holds(named_schema(root_, *name, ""), value)) return false;
    }
    if (const Json* list = list_at(schema, "allOf")) {
      if (!std::all_of(list->begin(), list->end(), holds_in)) return false;
    }
    if (const Json* list = list_at(schema, "anyOf")) {
      if (std::none_of(list->begin(), list->end(), holds_in)) return false;
    }
    if (const Json* list = list_at(schema, "oneOf")) {
      if (std::count_if(list->begin(), list->end(), holds_in) != 1) return false;
    }
    if (const Json* other = schema.find("not"); other != nullptr && holds(*other, value)) {
      return false;
    }
    if (const Json* condition = schema.find("if")) {
      return holds_at(schema, holds(*condition, value) ? "then" : "else", value);
    }
    return true;
  }

  static bool number(const Json& schema, const Json& value) {
    const auto number = value.get<double>();
    const std::optional<double> step = number_at(schema, "multipleOf");
    // As Python's jsonschema has it.
    if (step && *step > 0 && std::trunc(number / *step) != number / *step) return false;
    return number >= number_at(schema, "minimum").value_or(number) &&
           number <= number_at(schema, "maximum").value_or(number) &&
           number > number_at(schema, "exclusiveMinimum").value_or(-INFINITY) &&
           number < number_at(schema, "exclusiveMaximum").value_or(INFINITY);
  }

  static bool text(const Json& schema, const std::string& value) {
    if (!counts(schema, "minLength", "maxLength", num_chars(value))) return false;
    const Json* pattern = schema.find("pattern");
    return pattern == nullptr || !pattern->is_string() || finds(pattern->string(), value);
  }

  bool array(const Json& schema, const Json& value) {
    const auto count = static_cast<std::int64_t>(value.size());
    if (!counts(schema, "minItems", "maxItems", count)) return false;
    const Json* first = list_at(schema, "prefixItems");
    const std::size_t num_first = first == nullptr ? 0 : first->size();
    for (std::size_t i = 0; i < value.size(); ++i) {
      if (i < num_first ? !holds((*first)[i], value[i]) : !holds_at(schema, "items", value[i])) {
        return false;
      }
      const Json* unique = schema.find("uniqueItems");
      if (unique == nullptr || !(*unique == Json(true))) continue;
      for (std::size_t k = 0; k < i; ++k) {
        if (value[k] == value[i]) return false;
      }
    }
    const Json* wanted = schema.find("contains");
    if (wanted == nullptr) return true;
    const auto found = static_cast<double>(std::count_if(
        value.begin(), value.end(), [&](const Json& item) { return holds(*wanted, item); }));
    return found >= number_at(schema, "minContains").value_or(1) &&
           found <= number_at(schema, "maxContains").value_or(found);
  }

  bool member(const Json& schema, const std::string& name, const Json& value) {
    bool is_known = false;
    const Json* properties = schema.find("properties");
    if (const Json* own = properties != nullptr ? properties->find(name) : nullptr) {
      is_known = true;
      if (!holds(*own, value)) return false;
    }
    if (const Json* patterns = schema.find("patternProperties")) {
      for (const Json::Member& entry : patterns->items()) {
        if (!finds(entry.key, name)) continue;
        is_known = true;
        if (!holds(entry.value, value)) return false;
      }
    }
    return is_known || holds_at(schema, "additionalProperties", value);
  }

  bool object(const Json& schema, const Json& value) {
    const auto count = static_cast<std::int64_t>(value.size());
    if (!counts(schema, "minProperties", "maxProperties", count)) return false;
    const auto has_all = [&](const Json& names) {
      return std::all_of(names.begin(), names.end(), [&](const Json& name) {
        return !name.is_string() || value.contains(name.string());
      });
    };
    if (const Json* names = list_at(schema, "required"); names != nullptr && !has_all(*names)) {
      return false;
    }
    for (const Json::Member& entry : value.items()) {
      if (!member(schema, entry.key, entry.value)) return false;
      if (!holds_at(schema, "propertyNames", Json(entry.key))) return false;
    }
    for (const char* key : {"dependentRequired", "dependentSchemas", "dependencies"}) {
      const Json* needs = schema.find(key);
      if (needs == nullptr) continue;
      for (const Json::Member& need : needs->items()) {
        if (!value.contains(need.key)) continue;
        if (need.value.is_array() ? !has_all(need.value) : !holds(need.value, value)) return false;
      }
    }
    return true;
  }

  const Json& root_;
  int depth_ = 0;
};

// ---- Two schemas in one ----

// Both schemas, one behind the other; those that allow everything are left out.
Json all_of(const Json& one, const Json& other) {
  if (one == other || one == Json(true)) return other;
  if (other == Json(true)) return one;
  if (one == Json(false) || other == Json(false)) return Json(false);
  return Json{{"allOf", Json::array({one, other})}};
}

Json type_list(const Json& type) { return type.is_array() ? type : Json::array({type}); }

Json both_types(const Json& one, const Json& other, const std::string& place) {
  Json types = Json::array();
  for (const Json& a : type_list(one)) {
    for (const Json& b : type_list(other)) {
      const bool are_numbers = (a == Json("integer") && b == Json("number")) ||
                               (a == Json("number") && b == Json("integer"));
      if (a == b) types.push_back(a);
      if (are_numbers) types.push_back("integer");
    }
  }
  if (types.empty()) {
    throw SchemaError(schema_place(place, "type"), "is of two schemas that have none in common");
  }
  return types.size() == 1 ? types[0] : types;
}

Json both_enums(const Json& one, const Json& other, const std::string& place) {
  Json values = Json::array();
  for (const Json& a : one) {
    if (std::find(other.begin(), other.end(), a) != other.end()) values.push_back(a);
  }
  if (values.empty()) {
    throw SchemaError(schema_place(place, "enum"), "is of two schemas that have none in common");
  }
  return values;
}

// One of `one` and one of `other`: every pair. Exactly one pair holds if exactly one of each does.
Json both_choices(const Json& one, const Json& other, const std::string& place) {
  constexpr std::size_t kMostPairs = 256;
  if (one.size() * other.size() > kMostPairs) {
    throw SchemaError(place, "has too many schemas in schemas");
  }
  Json pairs = Json::array();
  for (const Json& a : one) {
    for (const Json& b : other) pairs.push_back(all_of(a, b));
  }
  return pairs;
}

// Members of both; a name that both have keeps both schemas.
Json both_members(const Json& one, const Json& other) {
  Json result = one;
  for (const Json::Member& member : other.items()) {
    Json* own = result.find(member.key);
    if (own == nullptr) {
      result[member.key] = member.value;
    } else if (own->is_array() && member.value.is_array()) {  // of dependentRequired
      for (const Json& name : member.value) own->push_back(name);
    } else {
      *own = all_of(*own, member.value);
    }
  }
  return result;
}

Json larger(const Json& one, const Json& other) {
  return one.get<double>() >= other.get<double>() ? one : other;
}
Json smaller(const Json& one, const Json& other) {
  return one.get<double>() <= other.get<double>() ? one : other;
}

Json both_steps(const Json& one, const Json& other, const std::string& place) {
  const Json most = larger(one, other), least = smaller(one, other);
  const double ratio = most.get<double>() / least.get<double>();
  if (std::trunc(ratio) == ratio) return most;
  if (is_whole(one) && is_whole(other)) {
    const auto a = one.get<std::int64_t>(), b = other.get<std::int64_t>();
    return Json(a / std::gcd(a, b) * b);
  }
  throw SchemaError(schema_place(place, "multipleOf"), "is of two schemas that cannot be joined");
}

constexpr std::string_view kLowerLimits[] = {"minimum",  "exclusiveMinimum", "minLength",
                                             "minItems", "minProperties",    "minContains"};
constexpr std::string_view kUpperLimits[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                             "maxItems", "maxProperties",    "maxContains"};
// Keywords that say something about a schema, but not which values satisfy it.
constexpr std::string_view kNotes[] = {
    "title",     "description",   "default",          "examples",        "$comment",   "$id",
    "$schema",   "$defs",         "definitions",      "$anchor",         "deprecated", "readOnly",
    "writeOnly", "discriminator", "contentMediaType", "contentEncoding", "nullable",   "strict"};

template <std::size_t count>
bool is_one_of(std::string_view key, const std::string_view (&list)[count]) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

// A condition as a choice, so that two can be joined.
Json without_condition(Json schema) {
  const Json* condition = schema.find("if");
  if (condition == nullptr) return schema;
  const Json then = all_of(*condition, schema.value("then", Json(true)));
  const Json otherwise = all_of(Json{{"not", *condition}}, schema.value("else", Json(true)));
  for (const char* key : {"if", "then", "else"}) schema.erase(key);
  Json choice = Json::array({then, otherwise});
  const Json* own = schema.find("anyOf");
  schema["anyOf"] = own == nullptr ? choice : both_choices(*own, choice, "");
  return schema;
}

Json both_values(std::string_view key, const Json& one, const Json& other,
                 const std::string& place) {
  if (one == other || is_one_of(key, kNotes)) return one;
  const bool are_numbers = one.is_number() && other.is_number();
  if (is_one_of(key, kLowerLimits) && are_numbers) return larger(one, other);
  if (is_one_of(key, kUpperLimits) && are_numbers) return smaller(one, other);
  if (key == "multipleOf" && are_numbers) return both_steps(one, other, place);
  if (key == "type") return both_types(one, other, place);
  const bool are_lists = one.is_array() && other.is_array();
  if (key == "enum" && are_lists) return both_enums(one, other, place);
  if ((key == "anyOf" || key == "oneOf") && are_lists) return both_choices(one, other, place);
  if ((key == "required" || key == "allOf") && are_lists) {
    Json all = one;
    for (const Json& entry : other) all.push_back(entry);
    return all;
  }
  if (key == "uniqueItems") return Json(one == Json(true) || other == Json(true));
  if (key == "not") return Json{{"anyOf", Json::array({one, other})}};
  if (key == "items" || key == "propertyNames" || key == "additionalProperties" ||
      key == "unevaluatedProperties" || key == "unevaluatedItems") {
    return all_of(one, other);
  }
  if ((key == "patternProperties" || key == "dependentRequired" || key == "dependentSchemas" ||
       key == "properties") &&
      one.is_object() && other.is_object()) {
    return both_members(one, other);
  }
  throw SchemaError(
      schema_place(place, "allOf"),
      "has two of " + clipped(printable(std::string(key))) + "; allowed: one, or equal ones");
}

// The properties of a schema, with those that only the other one names: for these its
// additionalProperties hold.
Json properties_beside(const Json& schema, const Json& other) {
  Json properties = schema.value("properties", Json::object());
  const Json* more = schema.find("additionalProperties");
  const Json* others = other.find("properties");
  // Names may be of a pattern: the whole answer is checked in the end.
  if (more == nullptr || others == nullptr || schema.contains("patternProperties")) {
    return properties;
  }
  for (const Json::Member& member : others->items()) {
    if (!properties.contains(member.key)) properties[member.key] = *more;
  }
  return properties;
}

// The first items of a schema, as many as the other one has; its `items` stand for the others.
Json first_items_beside(const Json& schema, const Json& other) {
  Json items = schema.value("prefixItems", Json::array());
  const Json* others = other.find("prefixItems");
  for (std::size_t i = items.size(); others != nullptr && i < others->size(); ++i) {
    items.push_back(schema.value("items", Json(true)));
  }
  return items;
}

}  // namespace

std::string schema_place(const std::string& place, std::string_view key) {
  return (place.empty() ? "" : place + ".") + clipped(printable(std::string(key)));
}

const Json& named_schema(const Json& root, const Json& name, const std::string& place) {
  const std::string path = name.is_string() ? name.string() : "";
  if (!path.starts_with('#')) {
    throw SchemaError(schema_place(place, "$ref"), "is not supported; allowed: \"#/$defs/NAME\"");
  }
  const Json* found = &root;
  for (std::size_t at = 1; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    std::string key = path.substr(at + 1, end - at - 1);
    for (const auto& [escape, character] : {std::pair{"~1", "/"}, std::pair{"~0", "~"}}) {
      for (std::size_t k = 0; (k = key.find(escape, k)) != std::string::npos; ++k) {
        key.replace(k, 2, character);
      }
    }
    const Json* inner = found->find(key);
    if (inner == nullptr && found->is_array() && !key.empty() && key.size() < 6 &&
        key.find_first_not_of("0123456789") == std::string::npos) {
      const auto place_in = static_cast<std::size_t>(std::stoul(key));
      if (place_in < found->size()) inner = &(*found)[place_in];
    }
    if (inner == nullptr) {
      throw SchemaError(schema_place(place, "$ref"), "names nothing in the schema");
    }
    found = inner;
    at = end;
  }
  return *found;
}

bool satisfies(const Json& root, const Json& schema, const Json& value) {
  return Checker(root).holds(schema, value);
}

Json both_schemas(const Json& one, const Json& other, const std::string& place) {
  Json a = one, b = other;
  if (a.contains("if") && b.contains("if")) {
    a = without_condition(std::move(a));
    b = without_condition(std::move(b));
  }
  if (a.contains("properties") || b.contains("properties")) {
    const Json own = properties_beside(a, b), others = properties_beside(b, a);
    a["properties"] = own;
    b["properties"] = others;
  }
  if (a.contains("prefixItems") || b.contains("prefixItems")) {
    const Json own = first_items_beside(a, b), others = first_items_beside(b, a);
    Json items = Json::array();
    for (std::size_t i = 0; i < own.size(); ++i) items.push_back(all_of(own[i], others[i]));
    a["prefixItems"] = items;
    b.erase("prefixItems");
  }
  for (const Json::Member& member : b.items()) {
    Json* value = a.find(member.key);
    if (value == nullptr) {
      a[member.key] = member.value;
    } else {
      *value = both_values(member.key, *value, member.value, place);
    }
  }
  return a;
}

}  // namespace metronome
