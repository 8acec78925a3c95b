// SPDX-License-Identifier: Apache-2.0
// The distributions of lengths: keys, checks and warnings.
#include <cmath>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "core/workload/workload_sections.h"

namespace metronome {

namespace {

using enum LengthDistribution;

constexpr std::string_view kLengthNames[] = {"fixed", "uniform", "normal", "lognormal",
                                             "empirical"};
constexpr KeyUse kLengthUses[] = {
    {"value", bits(Fixed), bits(Fixed)},
    {"min", bits(Uniform, Normal, Lognormal), bits(Uniform)},
    {"max", bits(Uniform, Normal, Lognormal), bits(Uniform)},
    {"mean", bits(Normal, Lognormal), bits(Normal)},
    {"std", bits(Normal, Lognormal), bits(Normal)},
    {"median", bits(Lognormal)},
    {"p99", bits(Lognormal)},
    {"values", bits(Empirical), bits(Empirical)},
    {"weights", bits(Empirical)},
};
constexpr UseTable kLengths = {"distribution", kLengthNames, kLengthUses};

Unused unused_by_distribution(std::string_view name) { return unused_in_table(kLengths, name); }

bool is_zero(std::string_view number) {
  return number.find_first_not_of("0.") == std::string_view::npos;
}

Unused unused_beside(std::string_view number, std::string_view given, std::string_view first,
                     std::string_view second) {
  if (is_zero(number)) return {};
  const std::string complaint =
      "not used beside " + std::string(given) + "; give median and p99, or mean and std";
  return {{{first, complaint}, {second, complaint}}, {}};
}

Unused unused_beside_median(std::string_view number) {
  return unused_beside(number, "median", "mean", "std");
}

Unused unused_beside_mean(std::string_view number) {
  return unused_beside(number, "mean", "median", "p99");
}

// A lognormal distribution is given by its median and 99th percentile, or by mean and deviation.
void check_lognormal(const Section& section, const LengthConfig& c) {
  const bool has_mean = section.get("mean") != nullptr || section.get("std") != nullptr;
  const std::string_view first = has_mean ? "mean" : "median";
  const std::string_view second = has_mean ? "std" : "p99";
  for (const std::string_view key : {first, second}) {
    if (section.get(key) != nullptr) continue;
    section.fail(key, "missing; distribution lognormal needs median and p99, or mean and std");
  }
  if (!has_mean && !(c.p99 > c.median)) {
    section.fail("p99", "not above the median; p99 must be larger than median");
  }
}

}  // namespace

void visit_length(FieldVisitor& v, const char* key, LengthConfig& c, const char* doc) {
  constexpr auto kMost = static_cast<double>(kMaxLengthTokens);
  if (!v.open_section(key, doc)) return;
  v.choice("distribution", c.distribution, kLengthNames, "its distribution");
  v.integer("value", c.value, 1, kMaxLengthTokens, "fixed: the value");
  v.integer("min", c.min, 1, kMaxLengthTokens, "uniform, normal, lognormal: smallest value");
  v.integer("max", c.max, 1, kMaxLengthTokens, "uniform, normal, lognormal: largest value");
  v.number("mean", c.mean, 1, kMost,
           "normal, lognormal: mean before clamping; a lognormal has mean and std, or median and "
           "p99");
  v.number("std", c.deviation, 0, kMost, "normal, lognormal: standard deviation before clamping");
  v.number("median", c.median, 1, kMost, "lognormal: median");
  v.number("p99", c.p99, 1, kMost, "lognormal: 99th percentile before clamping; above the median");
  v.integers("values", c.values, 1, kMaxLengthTokens, "empirical: values to draw from");
  v.numbers("weights", c.weights, 0, 1e12, "empirical: weight of each value; empty = equal");
  v.close_section();
}

void expand_length_shorthands(ConfigNode& workload) {
  if (ConfigNode* const classes = workload.find("classes")) {
    for (ConfigNode& one : classes->items) expand_length_shorthands(one);
  }
  for (const char* path : {"prompt_tokens", "output_tokens", "sessions.turns",
                           "sessions.think_time_ms", "sessions.tool_calls", "sessions.call_tokens",
                           "sessions.tool_tokens", "sessions.tool_time_ms", "images.count",
                           "images.tokens", "images.width", "images.height"}) {
    ConfigNode* const node = workload.find_path(path);
    // Whether it is a length is checked as that of `value`.
    const bool is_null = node != nullptr && node->kind == ConfigNode::Kind::Null;
    if (node == nullptr || (node->kind != ConfigNode::Kind::Scalar && !is_null)) continue;
    ConfigNode name = *node;
    name.kind = ConfigNode::Kind::Scalar;
    name.is_quoted = false;
    name.scalar = kLengthNames[static_cast<std::size_t>(Fixed)];
    ConfigNode number = *node;
    node->kind = ConfigNode::Kind::Map;
    node->scalar.clear();
    node->entries.emplace_back("distribution", std::move(name));
    node->entries.emplace_back("value", std::move(number));
  }
}

void check_length(const Section& section, const LengthConfig& c) {
  if (section.node == nullptr) {
    fail_config(section.where, section.path,
                "missing; a distribution (" + join_names(kLengthNames) + ") or workload.trace");
  }
  check_needed(section, kLengths, static_cast<std::size_t>(c.distribution));
  if (c.distribution != Fixed && c.distribution != Empirical && c.min > c.max) {
    section.fail(section.get("min") != nullptr ? "min" : "max",
                 fmt::format("min {} is above max {}; min must be at most max", c.min, c.max));
  }
  if (c.distribution == Lognormal) check_lognormal(section, c);
  if (c.distribution == Empirical && c.values.empty()) {
    section.fail("values", "the list is empty; at least one length");
  }
  check_weights(section, c.values.size(), c.weights);
}

void append_length_choices(const std::string& path, std::vector<Choice>& choices) {
  choices.push_back({path, kLengths.selector, unused_by_distribution});
  choices.push_back({path, "median", unused_beside_median});
  choices.push_back({path, "mean", unused_beside_mean});
}

std::string length_warning(const std::string& path, const LengthConfig& c) {
  if (c.distribution != Normal && c.distribution != Lognormal) return {};
  const bool has_median = c.distribution == Lognormal && c.median > 0;
  // The median of a lognormal distribution is below its mean.
  const double ratio = c.deviation / std::max(c.mean, 1.0);
  const double median = has_median                    ? c.median
                        : c.distribution == Lognormal ? c.mean / std::sqrt(1 + ratio * ratio)
                                                      : c.mean;
  const auto warn = [&](const char* key, std::int64_t limit, const char* side) {
    return fmt::format("{}.{} {} is {} the median, {}: more than half of the values become {}",
                       path, key, limit, side, std::llround(median), limit);
  };
  if (static_cast<double>(c.max) < median) return warn("max", c.max, "below");
  if (static_cast<double>(c.min) > median) return warn("min", c.min, "above");
  return {};
}

}  // namespace metronome
