// SPDX-License-Identifier: Apache-2.0
#include "study/sweep/sweep_points.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fmt/core.h>
#include <optional>
#include <set>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/config/catalogue.h"
#include "core/config/config_reader.h"
#include "core/config/config_writer.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxPoints = 100'000;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

// Splits at commas outside brackets and quotes.
std::vector<std::string_view> split_values(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  char quote = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    const bool is_end = i == text.size();
    if (!is_end && quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && (depth <= 0 || is_end)) {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
    }
  }
  return parts;
}

// ---- ranges ----

// A decimal number as digits * 10^-num_decimals.
struct Decimal {
  std::int64_t digits = 0;
  int num_decimals = 0;
};

std::optional<Decimal> parse_decimal(std::string_view text) {
  constexpr std::size_t kMaxLength = 16;  // fits the digits of a double, and sums fit 64 bits
  const std::size_t point = text.find('.');
  std::string digits(text.substr(0, point));
  Decimal number;
  if (point != std::string_view::npos) {
    const std::string_view rest = text.substr(point + 1);
    if (rest.empty() || rest.front() == '-') return std::nullopt;
    number.num_decimals = static_cast<int>(rest.size());
    digits.append(rest);
  }
  if (digits.empty() || digits.size() > kMaxLength) return std::nullopt;
  const char* end = digits.data() + digits.size();
  const auto [last, error] = std::from_chars(digits.data(), end, number.digits);
  if (error != std::errc() || last != end) return std::nullopt;
  return number;
}

// Brings numbers to one scale; false if they would not fit.
bool align(std::span<Decimal* const> numbers) {
  constexpr std::int64_t kMaxDigits = 1'000'000'000'000'000'000 / 10;
  int scale = 0;
  for (const Decimal* number : numbers) scale = std::max(scale, number->num_decimals);
  for (Decimal* number : numbers) {
    while (number->num_decimals < scale) {
      if (std::abs(number->digits) > kMaxDigits) return false;
      number->digits *= 10;
      ++number->num_decimals;
    }
  }
  return true;
}

std::string decimal_text(Decimal number) {
  while (number.num_decimals > 0 && number.digits % 10 == 0) {
    number.digits /= 10;
    --number.num_decimals;
  }
  const bool is_negative = number.digits < 0;
  std::string text = std::to_string(is_negative ? -number.digits : number.digits);
  const auto decimals = static_cast<std::size_t>(number.num_decimals);
  if (decimals > 0) {
    if (text.size() <= decimals) text.insert(0, decimals + 1 - text.size(), '0');
    text.insert(text.size() - decimals, ".");
  }
  return (is_negative ? "-" : "") + text;
}

[[noreturn]] void refuse_range(const std::string& where, std::string_view text) {
  throw UsageError(fmt::format(
      "{}: '{}' is not a range; allowed: START:STOP:STEP with STEP > 0, or START:STOP:xFACTOR with "
      "START > 0 and FACTOR > 1, and at most {} values from START up to STOP",
      where, text, kMaxPoints));
}

std::vector<std::string> geometric_range(Decimal start, Decimal stop, Decimal factor,
                                         const std::string& where, std::string_view text) {
  constexpr double kMaxExact = 9e15;
  const double ratio = static_cast<double>(factor.digits) / std::pow(10.0, factor.num_decimals);
  Decimal* const both[] = {&start, &stop};
  if (!align(both) || start.digits <= 0 || stop.digits < start.digits || ratio <= 1) {
    refuse_range(where, text);
  }
  std::vector<std::string> values;
  // Rounded to the decimals of START and STOP: 1, 1.5, 2.25 -> 1, 2, 2 in whole numbers.
  for (double next = static_cast<double>(start.digits);
       next < kMaxExact && std::llround(next) <= stop.digits; next *= ratio) {
    std::string value = decimal_text({std::llround(next), start.num_decimals});
    if (values.empty() || values.back() != value) values.push_back(std::move(value));
    if (values.size() > kMaxPoints) refuse_range(where, text);
  }
  return values;
}

// nullopt if the text is not a range.
std::optional<std::vector<std::string>> parse_range(std::string_view text,
                                                    const std::string& where) {
  const std::size_t first = text.find(':');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = text.find(':', first + 1);
  if (second == std::string_view::npos) {
    if (parse_decimal(text.substr(0, first)) && parse_decimal(text.substr(first + 1))) {
      refuse_range(where, text);
    }
    return std::nullopt;
  }
  std::string_view step_text = text.substr(second + 1);
  const bool is_geometric = step_text.starts_with('x');
  if (is_geometric) step_text.remove_prefix(1);
  std::optional<Decimal> start = parse_decimal(text.substr(0, first));
  std::optional<Decimal> stop = parse_decimal(text.substr(first + 1, second - first - 1));
  std::optional<Decimal> step = parse_decimal(step_text);
  if (!start || !stop || !step) return std::nullopt;
  if (is_geometric) return geometric_range(*start, *stop, *step, where, text);
  Decimal* const all[] = {&*start, &*stop, &*step};
  if (!align(all) || step->digits <= 0 || stop->digits < start->digits ||
      (stop->digits - start->digits) / step->digits >= static_cast<std::int64_t>(kMaxPoints)) {
    refuse_range(where, text);
  }
  std::vector<std::string> values;
  for (std::int64_t next = start->digits; next <= stop->digits; next += step->digits) {
    values.push_back(decimal_text({next, start->num_decimals}));
  }
  return values;
}

// Rejects "1..3", a notation for ranges in other tools.
void refuse_dots(std::string_view text, const std::string& where) {
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return;
  const std::string_view stop = text.substr(dots + 2);
  if (!parse_decimal(text.substr(0, dots)) || !parse_decimal(stop)) return;
  throw UsageError(where + ": '" + std::string(text) +
                   "' is neither a value nor a range; allowed: START:STOP:STEP, as in " +
                   std::string(text.substr(0, dots)) + ":" + std::string(stop) + ":1");
}

// ---- the section ----

std::string location_text(const ConfigNode& node, const std::string& key) {
  return printable(node.where.to_string() + ": " + key);
}

// Whether a key of a scenario, or of one of its variants, has a path as this value.
bool is_path(std::string_view key, const std::string& value) {
  Scenario defaults;
  std::vector<PathField> fields = path_fields(defaults);
  fields.push_back({"workload.trace", nullptr});  // short for workload.trace.file
  return std::any_of(fields.begin(), fields.end(), [&](const PathField& field) {
    const bool is_key =
        key == field.key || (key.starts_with("variants.") && key.ends_with("." + field.key));
    return is_key && (!field.may_be_name || looks_like_path(value));
  });
}

// A relative path in the file is relative to the file; an assigned one is relative to the current
// folder.
std::string placed_value(const std::string& key, const ConfigNode& node,
                         const std::string& base_dir) {
  const bool is_relative = node.kind == ConfigNode::Kind::Scalar && !node.scalar.empty() &&
                           fs::path(node.scalar).is_relative();
  if (!is_path(key, node.scalar) || !is_relative || base_dir.empty()) return yaml_text(node);
  ConfigNode placed = node;
  placed.scalar = (fs::path(base_dir) / node.scalar).lexically_normal().string();
  const bool is_repository = !catalogue_name(node.scalar).empty() && !path_exists(placed.scalar);
  return yaml_text(is_repository ? node : placed);
}

std::vector<std::string> values_of(const std::string& key, const ConfigNode& node,
                                   const std::string& base_dir, const std::string& where) {
  if (node.kind == ConfigNode::Kind::Scalar && !node.is_quoted) {
    if (auto range = parse_range(node.scalar, where)) return *range;
  }
  if (node.kind != ConfigNode::Kind::Sequence) {
    throw ConfigError(where + ": must be a list of values, got " + printable(node.describe()) +
                      "; allowed: [VALUE, ...], START:STOP:STEP or START:STOP:xFACTOR");
  }
  std::vector<std::string> values;
  for (const ConfigNode& item : node.items) values.push_back(placed_value(key, item, base_dir));
  return values;
}

void require_map(const ConfigNode& node, const std::string& key, const char* allowed) {
  if (node.kind == ConfigNode::Kind::Map) return;
  fail_config(node.where, key,
              "must be a mapping, got " + node.describe() + "; allowed: " + allowed);
}

void read_points(const ConfigNode& node, const std::string& base_dir, SweepSpec& spec) {
  spec.points_where = location_text(node, "sweep.points");
  if (node.kind != ConfigNode::Kind::Sequence || node.items.empty()) {
    throw ConfigError(spec.points_where + ": must be a list of points, got " +
                      printable(node.describe()) + "; allowed: [{KEY: VALUE, ...}, ...]");
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const ConfigNode& item = node.items[i];
    require_map(item, fmt::format("sweep.points.{}", i), "{KEY: VALUE, ...}");
    std::vector<Assignment>& point = spec.points.emplace_back();
    for (const ConfigNode::Entry& entry : item.entries) {
      point.emplace_back(entry.key, placed_value(entry.key, entry.value, base_dir));
    }
  }
}

SweepSpec read_section(const ConfigNode& section, const std::string& base_dir) {
  SweepSpec spec;
  if (section.kind == ConfigNode::Kind::Null && section.where.file == nullptr) return spec;
  require_map(section, "sweep", "keys over, points");
  ConfigReader reader(section, "sweep");
  const ConfigNode* over = reader.take("over");
  const ConfigNode* points = reader.take("points");
  reader.finish();
  if (over != nullptr) {
    require_map(*over, "sweep.over", "KEY: [VALUE, ...]");
    for (const ConfigNode::Entry& entry : over->entries) {
      const std::string where = location_text(entry.value, "sweep.over." + entry.key);
      spec.over.push_back({entry.key, values_of(entry.key, entry.value, base_dir, where), where});
    }
  }
  if (points != nullptr) read_points(*points, base_dir, spec);
  return spec;
}

void add_option(const std::string& option, SweepSpec& spec) {
  const std::size_t equals = option.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw UsageError("--over " + printable(option) +
                     ": has no values; allowed: KEY=A,B,C, as in scheduler.policy=chunked,vllm");
  }
  const std::string key = option.substr(0, equals);
  const std::string where = "--over " + printable(key);
  SweptKey swept = {key, parse_values(std::string_view(option).substr(equals + 1), where), where};
  for (SweptKey& known : spec.over) {
    if (known.key != key) continue;
    if (known.where == where) throw UsageError(where + ": is given twice; allowed: once");
    known = std::move(swept);
    return;
  }
  spec.over.push_back(std::move(swept));
}

void check_values(const SweptKey& swept) {
  if (swept.values.empty()) {
    throw ConfigError(swept.where + ": has no values; allowed: at least one");
  }
  for (std::size_t i = 0; i < swept.values.size(); ++i) {
    if (std::find(swept.values.begin(), swept.values.begin() + static_cast<std::ptrdiff_t>(i),
                  swept.values[i]) == swept.values.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;
    }
    throw ConfigError(swept.where + ": has " + printable(swept.values[i]) +
                      " twice; allowed: each value once");
  }
}

// In the same words as values, whatever the order of the keys.
void check_points(const SweepSpec& spec) {
  std::set<std::vector<Assignment>> seen;
  for (std::vector<Assignment> point : spec.points) {
    std::sort(point.begin(), point.end());
    if (seen.insert(point).second) continue;
    std::string text;
    for (const auto& [key, value] : point) text += (text.empty() ? "" : ", ") + key + ": " + value;
    throw ConfigError(spec.points_where + ": has {" + printable(text) +
                      "} twice; allowed: each point once");
  }
}

void check_spec(const SweepSpec& spec) {
  if (spec.over.empty() && spec.points.empty()) {
    throw UsageError(
        "sweep: nothing to vary; allowed: --over KEY=A,B,C or a section `sweep` in the scenario; "
        "`metronome run` compares variants and the GPUs of --gpu alone");
  }
  check_points(spec);
  std::size_t num_points = std::max<std::size_t>(1, spec.points.size());
  for (const SweptKey& swept : spec.over) {
    check_values(swept);
    for (const std::vector<Assignment>& point : spec.points) {
      const auto has = [&swept](const Assignment& one) { return one.first == swept.key; };
      if (std::none_of(point.begin(), point.end(), has)) continue;
      throw ConfigError(swept.where + ": is also a key of " + spec.points_where +
                        "; allowed: one of them");
    }
    num_points *= std::min(swept.values.size(), kMaxPoints + 1);
    if (num_points > kMaxPoints) {
      throw UsageError(
          fmt::format("sweep: more than {} points; allowed: at most that many", kMaxPoints));
    }
  }
}

}  // namespace

std::string yaml_text(const ConfigNode& node) {
  std::string text;
  switch (node.kind) {
    case ConfigNode::Kind::Null: return "null";
    case ConfigNode::Kind::Scalar: {
      const bool is_plain = !node.is_quoted && !node.scalar.empty() &&
                            node.scalar.find_first_of(",[]{}#:\"'\n") == std::string::npos;
      if (is_plain) return node.scalar;
      return Json(node.scalar).dump({.replaces_bad_utf8 = true});
    }
    case ConfigNode::Kind::Sequence:
      for (const ConfigNode& item : node.items) {
        text += (text.empty() ? "" : ", ") + yaml_text(item);
      }
      return "[" + text + "]";
    case ConfigNode::Kind::Map:
      for (const ConfigNode::Entry& entry : node.entries) {
        text += (text.empty() ? "" : ", ") + entry.key + ": " + yaml_text(entry.value);
      }
      return "{" + text + "}";
  }
  return text;
}

std::vector<std::string> parse_values(std::string_view text, const std::string& where) {
  std::vector<std::string> values;
  for (const std::string_view part : split_values(text)) {
    if (part.empty()) {
      throw UsageError(where +
                       ": has an empty value; allowed: A,B,C, and \"\" for an empty string");
    }
    refuse_dots(part, where);
    if (auto range = parse_range(part, where)) {
      values.insert(values.end(), range->begin(), range->end());
    } else {
      values.emplace_back(part);
    }
  }
  return values;
}

SweepSpec read_sweep(const ScenarioFile& file, const std::vector<std::string>& over_options) {
  SweepSpec spec = read_section(file.sweep, fs::path(file.path).parent_path().string());
  for (const std::string& option : over_options) add_option(option, spec);
  check_spec(spec);
  return spec;
}

std::vector<std::string> swept_keys(const SweepSpec& spec) {
  std::vector<std::string> keys;
  for (const std::vector<Assignment>& point : spec.points) {
    for (const auto& [key, value] : point) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  for (const SweptKey& swept : spec.over) keys.push_back(swept.key);
  return keys;
}

std::vector<std::vector<Assignment>> expand_points(const SweepSpec& spec) {
  std::vector<std::vector<Assignment>> points = spec.points;
  if (points.empty()) points.emplace_back();
  for (const SweptKey& swept : spec.over) {
    std::vector<std::vector<Assignment>> finer;
    finer.reserve(points.size() * swept.values.size());
    for (const std::vector<Assignment>& point : points) {
      for (const std::string& value : swept.values) {
        finer.push_back(point);
        finer.back().emplace_back(swept.key, value);
      }
    }
    points = std::move(finer);
  }
  return points;
}

}  // namespace metronome
