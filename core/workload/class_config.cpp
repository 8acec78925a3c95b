// SPDX-License-Identifier: Apache-2.0
// Classes of requests: keys and checks.
#include <algorithm>
#include <fmt/core.h>
#include <limits>

#include "core/workload/workload_sections.h"

namespace metronome {

namespace {

void visit_class_slo(FieldVisitor& v, ClassSlo& c) {
  if (!v.open_section("slo", "limits of a good request of this class")) return;
  constexpr double kMostMs = 1e9;
  v.optional_number("ttft_ms", c.ttft_ms, 1e-3, kMostMs, "time to first token");
  v.optional_number("tpot_ms", c.tpot_ms, 1e-3, kMostMs, "mean time per further output token");
  v.optional_number("itl_ms", c.itl_ms, 1e-3, kMostMs, "every inter-token latency");
  v.optional_number("e2el_ms", c.e2el_ms, 1e-3, kMostMs, "arrival to last token");
  v.close_section();
}

void visit_class(FieldVisitor& v, ClassConfig& c) {
  v.text("name", c.name, "its name");
  v.number("share", c.share, 1e-9, 1e9, "share of the requests, relative to the other classes'");
  v.optional_number("rate", c.rate, 1e-6, 1e9, "requests/s of the class by itself");
  v.number("burstiness", c.burstiness, 1e-3, std::numeric_limits<double>::infinity(),
           "of its rate: shape of the interarrival times; 1 = poisson");
  visit_length(v, "prompt_tokens", c.prompt_tokens, "prompt lengths");
  visit_length(v, "output_tokens", c.output_tokens, "output lengths");
  v.integer_rows("lengths", c.lengths, 2, 1, kMaxLengthTokens,
                 "[prompt, output] tokens, of which each request draws a pair");
  visit_prefix(v, c.prefix);
  v.optional_integer("priority", c.priority, -1'000'000'000, 1'000'000'000, "its priority");
  v.optional_integer("max_tokens", c.max_tokens, 1, kMaxLengthTokens,
                     "the client's limit of output tokens");
  visit_class_slo(v, c.slo);
}

// Only some keys belong to the classes of a trace.
void check_trace_class(const Section& section) {
  for (const char* key :
       {"share", "rate", "burstiness", "prompt_tokens", "output_tokens", "lengths", "prefix"}) {
    if (section.get(key) == nullptr) continue;
    section.fail(key,
                 "not used with a trace, which brings its own requests; it belongs to "
                 "workloads without a trace");
  }
}

void check_drawn_class(const Section& section, const WorkloadConfig& config,
                       const ClassConfig& own) {
  const bool has_pairs = section.get("lengths") != nullptr;
  if (has_pairs && own.lengths.empty()) {
    section.fail("lengths", "the list is empty; allowed: at least one [prompt, output]");
  }
  for (const auto& [key, length] : {std::pair("prompt_tokens", &own.prompt_tokens),
                                    std::pair("output_tokens", &own.output_tokens)}) {
    if (section.get(key) == nullptr) continue;
    if (has_pairs) section.fail(key, "not used beside lengths; allowed: one of them");
    check_length({*section.node, section.path, key}, *length);
  }
  if (section.get("rate") != nullptr && section.get("share") != nullptr) {
    section.fail("share", "not used beside rate; allowed: one of them");
  }
  if (section.get("burstiness") != nullptr && section.get("rate") == nullptr) {
    section.fail("burstiness", "not used without rate; allowed: with rate");
  }
  check_prefix({*section.node, section.path, "prefix"}, own.prefix, config.num_requests);
}

}  // namespace

void read_classes(const ConfigNode& workload, const std::string& path, WorkloadConfig& config) {
  const ConfigNode* const list = given(&workload, "classes");
  if (list == nullptr) return;
  const bool has_trace = !config.trace.file.empty();
  if (list->items.size() > kMaxClasses) {
    fail_config(list->where, path + ".classes",
                fmt::format("too many; allowed: at most {}", kMaxClasses));
  }
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const ConfigNode& node = list->items[i];
    const std::string item_path = fmt::format("{}.classes.{}", path, i);
    ClassConfig one;
    ConfigReader reader(node, item_path);
    visit_class(reader, one);
    reader.finish();
    Section section(node, item_path);
    one.has_prompt_tokens = section.get("prompt_tokens") != nullptr;
    one.has_output_tokens = section.get("output_tokens") != nullptr;
    const auto has_name = [&one](const ClassConfig& other) { return other.name == one.name; };
    if (one.name.empty()) section.fail("name", "missing; allowed: a name for the class");
    if (std::any_of(config.classes.begin(), config.classes.end(), has_name)) {
      section.fail("name", fmt::format("'{}' is another class already; allowed: a name of its own",
                                       one.name));
    }
    has_trace ? check_trace_class(section) : check_drawn_class(section, config, one);
    if (!config.classes.empty() && one.rate.has_value() != config.classes[0].rate.has_value()) {
      section.fail("rate", "some classes have a rate and others do not; allowed: all or none");
    }
    config.classes.push_back(std::move(one));
  }
  config.trace.class_names.clear();
  for (const ClassConfig& one : config.classes) config.trace.class_names.push_back(one.name);
  if (has_trace || config.classes.empty()) return;
  if (config.has_class_rates() && given(&workload, "arrivals") != nullptr) {
    fail_config(list->where, path + ".arrivals",
                "not used where classes have rates of their own; allowed: shares of the classes, "
                "or no arrivals");
  }
  for (const char* key : {"sessions", "images", "dataset"}) {
    const ConfigNode* const other = given(&workload, key);
    const ConfigNode* const kind = given(other, "kind");
    if (kind == nullptr || kind->scalar == "none") continue;
    fail_config(other->where, path + "." + key, "not used with classes; allowed: kind none");
  }
}

bool classes_need(const WorkloadConfig& config, bool ClassConfig::*has_own) {
  if (config.classes.empty()) return true;
  return std::any_of(
      config.classes.begin(), config.classes.end(),
      [has_own](const ClassConfig& one) { return one.lengths.empty() && !(one.*has_own); });
}

}  // namespace metronome
