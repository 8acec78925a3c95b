// SPDX-License-Identifier: Apache-2.0
#include "core/config/config_reader.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>

#include "core/base/clip.h"
#include "core/base/error.h"
#include "core/base/number_chars.h"

namespace metronome {
namespace {

enum class Parse { Ok, WrongType, OutOfRange };

template <class Number>
Parse parse_plain(const ConfigNode& node, Number& value) {
  if (node.kind != ConfigNode::Kind::Scalar || node.is_quoted) return Parse::WrongType;
  const char* begin = node.scalar.data();
  const char* end = begin + node.scalar.size();
  const auto [rest, error] = read_number(begin, end, value);
  if (rest != end || begin == end) return Parse::WrongType;
  if (error == std::errc::result_out_of_range) return Parse::OutOfRange;
  return error == std::errc() ? Parse::Ok : Parse::WrongType;
}

[[noreturn]] void fail_type(const ConfigNode& node, std::string_view key,
                            const std::string& expected, const std::string& allowed) {
  fail_config(node.where, key,
              "must be " + expected + ", got " + node.describe() + "; allowed: " + allowed);
}

[[noreturn]] void fail_range(const ConfigNode& node, std::string_view key,
                             const std::string& allowed) {
  fail_config(node.where, key, clipped(node.scalar) + " is out of range; allowed: " + allowed);
}

std::int64_t read_integer(const ConfigNode& node, std::string_view key, std::int64_t min,
                          std::int64_t max, const std::string& also_allowed = "") {
  const std::string allowed = describe_range(min, max) + also_allowed;
  std::int64_t value = 0;
  const Parse parse = parse_plain(node, value);
  if (parse == Parse::WrongType) fail_type(node, key, "an integer", allowed);
  if (parse == Parse::OutOfRange || value < min || value > max) {
    // describe_range() may omit the maximum; this error shows both limits.
    fail_range(node, key, fmt::format("{} to {}{}", min, max, also_allowed));
  }
  return value;
}

double number_in(const ConfigNode& node, std::string_view key, double min, double max,
                 const std::string& also_allowed = "") {
  const std::string allowed = describe_range(min, max) + also_allowed;
  double value = 0;
  Parse parse = parse_plain(node, value);
  // YAML's `.inf`, or "inf" as in a resolved config, because JSON has no number for infinity.
  const bool is_infinity =
      node.is_quoted ? node.scalar == "inf" && std::isinf(max) : node.scalar == ".inf";
  if (parse == Parse::WrongType && node.kind == ConfigNode::Kind::Scalar && is_infinity) {
    value = std::numeric_limits<double>::infinity();
    parse = Parse::Ok;
  }
  if (parse == Parse::WrongType) fail_type(node, key, "a number", allowed);
  // This form makes NaN fail.
  const bool is_in_range = value >= min && value <= max;
  if (parse == Parse::OutOfRange || !is_in_range) fail_range(node, key, allowed);
  return value;
}

const std::vector<ConfigNode>& read_list(const ConfigNode& node, std::string_view key,
                                         const std::string& items, const std::string& range) {
  if (node.kind != ConfigNode::Kind::Sequence) {
    fail_type(node, key, "a list of " + items, "[" + items + ", each " + range + "]");
  }
  return node.items;
}

std::string item_key(const std::string& key, std::size_t position) {
  return fmt::format("{}.{}", key, position);
}

std::vector<std::int64_t> read_integers(const ConfigNode& node, const std::string& key,
                                        std::int64_t min, std::int64_t max) {
  std::vector<std::int64_t> values;
  for (const ConfigNode& item : read_list(node, key, "integers", describe_range(min, max))) {
    values.push_back(read_integer(item, item_key(key, values.size()), min, max));
  }
  return values;
}

// "unknown key (did you mean 'x'?); allowed: x, y".
std::string unknown_message(const std::string& what, std::string_view word,
                            std::span<const std::string_view> names) {
  const std::string_view nearest = nearest_name(word, names);
  std::string message = "unknown " + what;
  if (!nearest.empty()) message.append(" (did you mean '").append(nearest).append("'?)");
  return message + "; allowed: " + join_names(names);
}

bool ends_with_key(std::string_view assignment, std::string_view key) {
  if (key.empty() || !assignment.ends_with(key)) return false;
  assignment.remove_suffix(key.size());
  return assignment.ends_with(' ') || assignment.ends_with('.');
}

bool read_boolean(const ConfigNode& node, const std::string& key, const std::string& type,
                  const std::string& allowed) {
  const bool is_plain = node.kind == ConfigNode::Kind::Scalar && !node.is_quoted;
  if (!is_plain || (node.scalar != "true" && node.scalar != "false")) {
    fail_type(node, key, type, allowed);
  }
  return node.scalar == "true";
}

// "variants.0.seed" gives "seed", which `--set variants.NAME.seed` names too.
std::string_view below_variant(std::string_view key) {
  constexpr std::string_view kPrefix = "variants.";
  const std::size_t dot = key.starts_with(kPrefix) ? key.find('.', kPrefix.size()) : key.npos;
  return dot == key.npos ? std::string_view() : key.substr(dot + 1);
}

}  // namespace

std::string format_double(double value) {
  constexpr double kExactIntegers = 1e15;  // shows "1000000" instead of "1e+06"
  if (std::fabs(value) < kExactIntegers && value == std::trunc(value)) {
    return std::to_string(static_cast<std::int64_t>(value));
  }
  char buffer[32];
  const auto [end, error] = write_number(buffer, buffer + sizeof buffer, value);
  METRONOME_CHECK(error == std::errc(), "a double fits in 32 characters");
  return std::string(buffer, end);
}

ConfigReader::ConfigReader(const ConfigNode& node, std::string path, PlaceOfKey place_of)
    : place_of_(place_of) {
  if (node.kind != ConfigNode::Kind::Map) fail_type(node, path, "a mapping", "KEY: VALUE");
  levels_.push_back({&node, std::move(path), {}});
}

const ConfigNode* ConfigReader::lookup(const char* key) {
  levels_.back().known.emplace_back(key);
  return levels_.back().node->find(key);
}

std::string ConfigReader::dotted(std::string_view key) const {
  const std::string& path = levels_.back().path;
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

void ConfigReader::integer(const char* key, std::int64_t& value, std::int64_t min, std::int64_t max,
                           const char*) {
  if (const ConfigNode* node = lookup(key)) value = read_integer(*node, dotted(key), min, max);
}

void ConfigReader::number(const char* key, double& value, double min, double max, const char*) {
  if (const ConfigNode* node = lookup(key)) value = number_in(*node, dotted(key), min, max);
}

void ConfigReader::boolean(const char* key, bool& value, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  value = read_boolean(*node, dotted(key), "true or false", "true, false");
}

void ConfigReader::boolean_or_auto(const char* key, std::optional<bool>& value, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  const bool is_auto = node->kind == ConfigNode::Kind::Scalar && node->scalar == "auto";
  value.reset();
  if (!is_auto) {
    value = read_boolean(*node, dotted(key), "true, false or auto", "true, false, auto");
  }
}

void ConfigReader::text(const char* key, std::string& value, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  if (node->kind != ConfigNode::Kind::Scalar) {
    fail_type(*node, dotted(key), "a string", "one word or a quoted string");
  }
  value = node->scalar;
}

void ConfigReader::choice(const char* key, int& value, std::span<const std::string_view> names,
                          const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  if (node->kind != ConfigNode::Kind::Scalar) {
    fail_type(*node, dotted(key), "a name", join_names(names));
  }
  const auto found = std::find(names.begin(), names.end(), node->scalar);
  if (found == names.end()) {
    fail_config(node->where, dotted(key),
                unknown_message("value " + node->describe(), node->scalar, names));
  }
  value = static_cast<int>(found - names.begin());
}

void ConfigReader::integers(const char* key, std::vector<std::int64_t>& value, std::int64_t min,
                            std::int64_t max, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  value = read_integers(*node, dotted(key), min, max);
}

void ConfigReader::numbers(const char* key, std::vector<double>& value, double min, double max,
                           const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  const std::string path = dotted(key);
  value.clear();
  for (const ConfigNode& item : read_list(*node, path, "numbers", describe_range(min, max))) {
    value.push_back(number_in(item, item_key(path, value.size()), min, max));
  }
}

void ConfigReader::integer_rows(const char* key, std::vector<std::vector<std::int64_t>>& value,
                                std::size_t num_columns, std::int64_t min, std::int64_t max,
                                const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  const std::string path = dotted(key);
  const std::string allowed =
      fmt::format("lists of {} integers, {}", num_columns, describe_range(min, max));
  value.clear();
  for (const ConfigNode& row : read_list(*node, path, "lists", allowed)) {
    const std::string row_path = item_key(path, value.size());
    value.push_back(read_integers(row, row_path, min, max));
    if (value.back().size() == num_columns) continue;
    fail_config(row.where, row_path,
                fmt::format("has {} numbers; allowed: {} integers, {}", value.back().size(),
                            num_columns, describe_range(min, max)));
  }
}

bool ConfigReader::open_section(const char* key, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return false;
  std::string path = dotted(key);
  if (node->kind != ConfigNode::Kind::Map) fail_type(*node, path, "a mapping", "KEY: VALUE");
  levels_.push_back({node, std::move(path), {}});
  return true;
}

void ConfigReader::close_section() {
  METRONOME_CHECK(levels_.size() > 1, "close_section without open_section");
  refuse_unknown_keys(levels_.back());
  levels_.pop_back();
}

void ConfigReader::mappings(const char* key, std::vector<Json>& values, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  const std::string path = dotted(key);
  values.clear();
  for (const ConfigNode& item : read_list(*node, path, "mappings", "a list of mappings")) {
    if (item.kind != ConfigNode::Kind::Map) {
      fail_type(item, item_key(path, values.size()), "a mapping", "KEY: VALUE");
    }
    values.push_back(json_of(item));
  }
}

void ConfigReader::integer_or_auto(const char* key, std::optional<std::int64_t>& value,
                                   std::int64_t min, std::int64_t max, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  const bool is_auto = node->kind == ConfigNode::Kind::Scalar && node->scalar == "auto";
  value.reset();
  if (!is_auto) value = read_integer(*node, dotted(key), min, max, ", or auto");
}

void ConfigReader::optional_number(const char* key, std::optional<double>& value, double min,
                                   double max, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  value.reset();
  if (node->kind == ConfigNode::Kind::Null) return;
  value = number_in(*node, dotted(key), min, max, ", or null");
}

void ConfigReader::optional_integer(const char* key, std::optional<std::int64_t>& value,
                                    std::int64_t min, std::int64_t max, const char*) {
  const ConfigNode* node = lookup(key);
  if (node == nullptr) return;
  value.reset();
  if (node->kind == ConfigNode::Kind::Null) return;
  value = read_integer(*node, dotted(key), min, max, ", or null");
}

const ConfigNode* ConfigReader::take(const char* key) { return lookup(key); }

void ConfigReader::finish() {
  METRONOME_CHECK(levels_.size() == 1, "a section is still open");
  refuse_unknown_keys(levels_.back());
}

void ConfigReader::refuse_unknown_keys(const Level& level) const {
  for (const ConfigNode::Entry& entry : level.node->entries) {
    if (std::find(level.known.begin(), level.known.end(), entry.key) != level.known.end()) {
      continue;
    }
    const std::vector<std::string_view> names(level.known.begin(), level.known.end());
    std::string place = place_of_ == nullptr ? std::string() : place_of_(entry.key);
    // A key that was not typed to its end is likelier than one of another section.
    const std::string_view nearest = nearest_name(entry.key, names);
    if (!nearest.empty() && nearest.starts_with(entry.key)) place.clear();
    fail_unknown_key(entry.value.where, dotted(entry.key),
                     place.empty()
                         ? unknown_message("key", entry.key, names)
                         : "unknown key (here it is " + place + "); allowed: " + join_names(names));
  }
}

namespace {

std::string complaint(const SourceLocation& where, std::string_view key, std::string_view message) {
  std::string text = where.to_string();
  const bool repeats_key = where.is_assignment() &&
                           (ends_with_key(text, key) || ends_with_key(text, below_variant(key)));
  // Real keys stay whole, as do the paths of files.
  const auto bounded = [](std::string_view name) {
    return name.size() > 2 * kMaxQuoted ? clipped(name) : std::string(name);
  };
  if (where.is_assignment()) text = bounded(text);
  if (!text.empty()) text += ": ";
  if (!key.empty() && !repeats_key) text.append(bounded(key)).append(": ");
  return printable(text.append(message));
}

}  // namespace

void fail_config(const SourceLocation& where, std::string_view key, std::string_view message) {
  throw ConfigError(complaint(where, key, message));
}

void fail_unknown_key(const SourceLocation& where, std::string_view key, std::string_view message) {
  throw UnknownKeyError(complaint(where, key, message));
}

std::string describe_range(std::int64_t min, std::int64_t max) {
  if (max == std::numeric_limits<std::int64_t>::max()) return fmt::format("at least {}", min);
  return fmt::format("{} to {}", min, max);
}

std::string describe_range(double min, double max) {
  if (max == std::numeric_limits<double>::max()) return "at least " + format_double(min);
  return format_double(min) + " to " + format_double(max);
}

void choose_name(FieldVisitor& visitor, const char* key, std::string& value,
                 std::span<const std::string_view> names, const char* doc) {
  const auto found = std::find(names.begin(), names.end(), value);
  METRONOME_CHECK(found != names.end(), "the struct holds a name that exists");
  int chosen = static_cast<int>(found - names.begin());
  visitor.choice(key, chosen, names, doc);
  value = names[static_cast<std::size_t>(chosen)];
}

}  // namespace metronome
