#include "core/workload/workload_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>

#include "core/config/config_writer.h"

namespace metronome {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::string_view kProcessNames[] = {"poisson",     "gamma", "constant", "burst",
                                              "closed_loop", "steps", "trace"};
constexpr std::string_view kLengthNames[] = {"fixed", "uniform", "lognormal", "empirical"};
constexpr std::string_view kPrefixNames[] = {"none", "groups", "tree"};
constexpr std::string_view kFormatNames[] = {"auto",  "azure",    "mooncake",
                                             "vidur", "burstgpt", "sharegpt"};

// ---- Fields ----

void visit_arrivals(FieldVisitor& v, ArrivalConfig& c) {
  if (!v.open_section("arrivals", "when requests arrive")) return;
  v.choice("process", c.process, kProcessNames,
           "arrival process; trace = the times in the trace file");
  v.number("rate", c.rate, 1e-6, kInfinity,
           "poisson, gamma, constant: requests/s; .inf = all at the start");
  v.number(
      "burstiness", c.burstiness, 1e-3, kInfinity,
      "gamma: shape of the interarrival times; 1 = poisson, below 1 burstier, .inf = constant");
  v.integer("burst_size", c.burst_size, 0, kMaxRequests,
            "burst: requests that arrive at once; 0 = all, at the start");
  v.number("burst_interval_s", c.burst_interval_s, 0, 1e6, "burst: seconds between bursts");
  v.integer("concurrency", c.concurrency, 1, 1'000'000,
            "closed_loop: requests in the system at any time");
  v.number("think_time_ms", c.think_time_ms, 0, 1e9,
           "closed_loop: pause between the end of a request and the next, ms");
  v.integers("steps", c.steps, 0, std::int64_t{1} << 40,
             "steps: engine step before which each request arrives, never decreasing");
  v.close_section();
}

void visit_length(FieldVisitor& v, const char* key, LengthConfig& c, const char* doc) {
  if (!v.open_section(key, doc)) return;
  v.choice("distribution", c.distribution, kLengthNames, "distribution of the length");
  v.integer("value", c.value, 1, kMaxLengthTokens, "fixed: tokens");
  v.integer("min", c.min, 1, kMaxLengthTokens, "uniform, lognormal: smallest length, tokens");
  v.integer("max", c.max, 1, kMaxLengthTokens, "uniform, lognormal: largest length, tokens");
  v.number("median", c.median, 1, static_cast<double>(kMaxLengthTokens),
           "lognormal: median, tokens");
  v.number("p99", c.p99, 1, static_cast<double>(kMaxLengthTokens),
           "lognormal: 99th percentile before clamping, tokens; above the median");
  v.integers("values", c.values, 1, kMaxLengthTokens, "empirical: lengths to draw from, tokens");
  v.numbers("weights", c.weights, 0, 1e12, "empirical: weight of each value; empty = equal");
  v.close_section();
}

void visit_priority(FieldVisitor& v, PriorityConfig& c) {
  if (!v.open_section("priority", "priorities, drawn for each request")) return;
  v.integers("values", c.values, -1'000'000'000, 1'000'000'000,
             "priorities to draw from, lower is served first; empty = all 0");
  v.numbers("weights", c.weights, 0, 1e12, "weight of each value; empty = equal");
  v.close_section();
}

void visit_prefix(FieldVisitor& v, PrefixConfig& c) {
  if (!v.open_section("prefix", "prefixes that requests share, prepended to their prompts")) {
    return;
  }
  v.choice("kind", c.kind, kPrefixNames, "how prefixes are shared");
  v.integer("num_groups", c.num_groups, 1, 1'000'000'000,
            "groups: number of prefixes; each request draws one");
  v.integer("prefix_tokens", c.prefix_tokens, 1, kMaxLengthTokens,
            "groups: tokens of a prefix; tree: tokens of each level");
  v.integer("depth", c.depth, 1, 64, "tree: levels, the first shared by every request");
  v.integer("branching", c.branching, 1, 1'000'000, "tree: children of a node");
  v.close_section();
}

void visit_trace(FieldVisitor& v, TraceConfig& c) {
  if (!v.open_section("trace", "recorded requests instead of random ones")) return;
  v.text("file", c.file,
         "trace file, relative to the scenario's folder, or with --set to the current folder; "
         "empty = none");
  v.choice("format", c.format, kFormatNames, "format of the file; auto = by its first line");
  v.integer("limit", c.limit, 0, kMaxRequests, "keep the first N requests; 0 = all");
  v.number("rate_scale", c.rate_scale, 1e-6, 1e6,
           "arrival rate relative to the recorded one; 2 = twice as dense");
  v.boolean("jitter", c.jitter, "mooncake: spread arrivals evenly over their 3 s bucket");
  v.text("request_log", c.request_log,
         "file with arrivals that replace the trace's: JSON lines with arrival_time in seconds, "
         "input_toks and output_toks, one for each request in the same order; a path like file; "
         "empty = none");
  v.close_section();
}

// ---- Choices and the keys they use ----

template <class Enum>
constexpr unsigned bit(Enum value) {
  return 1u << static_cast<unsigned>(value);
}

template <class Enum, class... Rest>
constexpr unsigned bits(Enum first, Rest... rest) {
  return (bit(first) | ... | bit(rest));
}

// Which values of a choice use a key, and which of them require it.
struct KeyUse {
  std::string_view key;
  unsigned used_by;
  unsigned needed_by = 0;
};

// A key that chooses among `names`, and the keys that each name uses.
struct UseTable {
  std::string_view selector;
  std::span<const std::string_view> names;
  std::span<const KeyUse> uses;
};

using enum ArrivalProcess;
using enum LengthDistribution;
using enum PrefixKind;

constexpr KeyUse kArrivalUses[] = {
    {"rate", bits(Poisson, Gamma, Constant), bits(Poisson, Gamma, Constant)},
    {"burstiness", bits(Gamma)},
    {"burst_size", bits(Burst)},
    {"burst_interval_s", bits(Burst)},
    {"concurrency", bits(ClosedLoop), bits(ClosedLoop)},
    {"think_time_ms", bits(ClosedLoop)},
    {"steps", bits(Steps), bits(Steps)},
};
constexpr KeyUse kLengthUses[] = {
    {"value", bits(Fixed), bits(Fixed)},
    {"min", bits(Uniform, Lognormal), bits(Uniform)},
    {"max", bits(Uniform, Lognormal), bits(Uniform)},
    {"median", bits(Lognormal), bits(Lognormal)},
    {"p99", bits(Lognormal), bits(Lognormal)},
    {"values", bits(Empirical), bits(Empirical)},
    {"weights", bits(Empirical)},
};
constexpr KeyUse kPrefixUses[] = {
    {"num_groups", bits(Groups), bits(Groups)},
    {"prefix_tokens", bits(Groups, Tree), bits(Groups, Tree)},
    {"depth", bits(Tree), bits(Tree)},
    {"branching", bits(Tree)},
};

constexpr UseTable kArrivals = {"process", kProcessNames, kArrivalUses};
constexpr UseTable kLengths = {"distribution", kLengthNames, kLengthUses};
constexpr UseTable kPrefixes = {"kind", kPrefixNames, kPrefixUses};

std::optional<std::size_t> position_of(std::string_view name,
                                       std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

Unused unused_in_table(const UseTable& table, std::string_view value) {
  const std::optional<std::size_t> chosen = position_of(value, table.names);
  if (!chosen.has_value()) return {};
  Unused unused;
  for (const KeyUse& use : table.uses) {
    if ((use.used_by >> *chosen & 1u) != 0) continue;
    std::vector<std::string_view> users;
    for (std::size_t i = 0; i < table.names.size(); ++i) {
      if ((use.used_by >> i & 1u) != 0) users.push_back(table.names[i]);
    }
    unused.keys.push_back({use.key, "not used by " + std::string(table.selector) + " " +
                                        std::string(value) + "; it belongs to " +
                                        join_names(users)});
  }
  return unused;
}

Unused unused_by_process(std::string_view name) { return unused_in_table(kArrivals, name); }
Unused unused_by_distribution(std::string_view name) { return unused_in_table(kLengths, name); }
Unused unused_by_prefix_kind(std::string_view name) { return unused_in_table(kPrefixes, name); }

Unused unused_with_complaint(std::span<const std::string_view> keys, const std::string& complaint) {
  Unused unused;
  for (const std::string_view key : keys) unused.keys.push_back({key, complaint});
  return unused;
}

Unused unused_by_burst_size(std::string_view size) {
  static constexpr std::string_view kKeys[] = {"burst_interval_s"};
  if (size != "0") return {};
  return unused_with_complaint(
      kKeys, "not used when all requests arrive at once; give burst_size as well");
}

// `file` is empty when requests are drawn.
Unused unused_by_trace(std::string_view file) {
  static constexpr std::string_view kRecorded[] = {
      "trace.format", "trace.limit", "trace.rate_scale", "trace.jitter", "trace.request_log"};
  static constexpr std::string_view kDrawn[] = {"num_requests", "prompt_tokens", "output_tokens",
                                                "prefix"};
  if (file.empty()) {
    return unused_with_complaint(kRecorded, "not used without a trace; it needs trace.file");
  }
  Unused unused = unused_with_complaint(
      kDrawn,
      "not used with a trace, which brings its own requests; it belongs to workloads without a "
      "trace");
  unused.companion = "arrivals";
  return unused;
}

// The keys that apply to recorded arrival times only.
Unused unused_by_drawn_arrivals(std::string_view process) {
  static constexpr std::string_view kKeys[] = {"trace.rate_scale", "trace.jitter",
                                               "trace.request_log"};
  const std::optional<std::size_t> chosen = position_of(process, kProcessNames);
  if (!chosen.has_value() || *chosen == static_cast<std::size_t>(Trace)) return {};
  return unused_with_complaint(
      kKeys,
      "not used when workload.arrivals replaces the trace's arrival times; remove one of them");
}

Unused unused_by_format(std::string_view name) {
  static constexpr std::string_view kKeys[] = {"jitter"};
  const std::optional<std::size_t> chosen = position_of(name, kFormatNames);
  if (!chosen.has_value()) return {};
  const auto format = static_cast<TraceFormat>(*chosen);
  if (format == TraceFormat::Auto || format == TraceFormat::Mooncake) return {};
  return unused_with_complaint(
      kKeys, "not used by format " + std::string(name) + "; it belongs to mooncake");
}

// ---- Checks across fields ----

const ConfigNode* given(const ConfigNode* section, std::string_view key) {
  if (section == nullptr || section->kind != ConfigNode::Kind::Map) return nullptr;
  const ConfigNode* node = section->find(key);
  return node != nullptr && node->kind != ConfigNode::Kind::Null ? node : nullptr;
}

// One mapping of the workload, for messages about its keys.
struct Section {
  const ConfigNode* node;  // nullptr when it is absent
  SourceLocation where;    // its location, or that of the parent if it is absent
  std::string path;

  Section(const ConfigNode& parent, const std::string& parent_path, std::string_view key)
      : node(given(&parent, key)),
        where(node != nullptr ? node->where : parent.where),
        path(parent_path + "." + std::string(key)) {}

  const ConfigNode* get(std::string_view key) const { return given(node, key); }

  [[noreturn]] void fail(std::string_view key, const std::string& message) const {
    const ConfigNode* at = get(key);
    fail_config(at != nullptr ? at->where : where, path + "." + std::string(key), message);
  }
};

void check_needed(const Section& section, const UseTable& table, std::size_t chosen) {
  for (const KeyUse& use : table.uses) {
    if ((use.needed_by >> chosen & 1u) == 0 || section.get(use.key) != nullptr) continue;
    section.fail(use.key, "missing; " + std::string(table.selector) + " " +
                              std::string(table.names[chosen]) + " needs it");
  }
}

void check_weights(const Section& section, std::size_t num_values,
                   const std::vector<double>& weights) {
  if (weights.empty()) return;  // equal weights
  if (weights.size() != num_values) {
    section.fail("weights", std::to_string(weights.size()) + " weights for " +
                                std::to_string(num_values) + " values; one weight per value");
  }
  if (!(std::accumulate(weights.begin(), weights.end(), 0.0) > 0)) {
    section.fail("weights", "all weights are 0; at least one must be positive");
  }
}

void check_arrivals(const Section& section, const ArrivalConfig& c) {
  check_needed(section, kArrivals, static_cast<std::size_t>(c.process));
  if (c.burst_size > 0 && section.get("burst_interval_s") == nullptr) {
    section.fail("burst_interval_s", "missing; burst_size needs it");
  }
  if (c.process == Steps) {
    if (c.steps.empty()) section.fail("steps", "the list is empty; one step per request");
    for (std::size_t i = 1; i < c.steps.size(); ++i) {
      if (c.steps[i] >= c.steps[i - 1]) continue;
      section.fail("steps", "step " + std::to_string(c.steps[i]) + " comes after step " +
                                std::to_string(c.steps[i - 1]) + "; steps must not decrease");
    }
  }
}

void check_length(const Section& section, const LengthConfig& c) {
  if (section.node == nullptr) {
    fail_config(section.where, section.path,
                "missing; a distribution (" + join_names(kLengthNames) + ") or workload.trace");
  }
  check_needed(section, kLengths, static_cast<std::size_t>(c.distribution));
  const bool has_range = c.distribution == Uniform || c.distribution == Lognormal;
  if (has_range && c.min > c.max) {
    section.fail(section.get("min") != nullptr ? "min" : "max",
                 "min " + std::to_string(c.min) + " is above max " + std::to_string(c.max) +
                     "; min must be at most max");
  }
  if (c.distribution == Lognormal && !(c.p99 > c.median)) {
    section.fail("p99", "not above the median; p99 must be larger than median");
  }
  if (c.distribution == Empirical && c.values.empty()) {
    section.fail("values", "the list is empty; at least one length");
  }
  check_weights(section, c.values.size(), c.weights);
}

void check_priority(const Section& section, const PriorityConfig& c) {
  check_weights(section, c.values.size(), c.weights);
}

// Node numbers of a tree must stay below 2^40, because they are part of content ids.
bool has_too_many_nodes(const PrefixConfig& c) {
  double nodes = 1;
  for (std::int64_t level = 1; level < c.depth; ++level) {
    nodes *= static_cast<double>(c.branching);
    if (nodes > 0x1p40) return true;
  }
  return false;
}

void check_prefix(const Section& section, const PrefixConfig& c, std::int64_t num_requests) {
  check_needed(section, kPrefixes, static_cast<std::size_t>(c.kind));
  if (c.kind != Tree) return;
  if (c.depth * c.prefix_tokens > kMaxLengthTokens) {
    section.fail("depth", std::to_string(c.depth) + " levels of " +
                              std::to_string(c.prefix_tokens) + " tokens are too long; at most " +
                              std::to_string(kMaxLengthTokens) + " tokens together");
  }
  if (has_too_many_nodes(c)) {
    section.fail("branching", "too many nodes; branching^(depth - 1) must be at most 2^40");
  }
  constexpr std::int64_t kMaxSegments = 4'000'000'000;  // offsets are 32 bits wide
  if (num_requests * (c.depth + 1) > kMaxSegments) {
    section.fail("depth", "too many shared segments; num_requests * (depth + 1) must be at most " +
                              std::to_string(kMaxSegments));
  }
}

void check_synthetic(const ConfigNode& node, const std::string& path, WorkloadConfig& config) {
  const ConfigNode* count = given(&node, "num_requests");
  const ArrivalConfig& arrivals = config.arrivals;
  if (arrivals.process == Trace) {
    Section(node, path, "arrivals").fail("process", "there is no trace; give workload.trace");
  }
  if (arrivals.process == Steps) {
    const auto num_steps = static_cast<std::int64_t>(arrivals.steps.size());
    if (count == nullptr) config.num_requests = num_steps;
    if (config.num_requests != num_steps) {
      Section(node, path, "arrivals")
          .fail("steps", std::to_string(num_steps) + " steps for " +
                             std::to_string(config.num_requests) +
                             " requests; as many as num_requests, or leave num_requests out");
    }
  } else if (count == nullptr) {
    fail_config(node.where, path + ".num_requests",
                "missing; a workload without a trace needs at least 1");
  }
  check_length(Section(node, path, "prompt_tokens"), config.prompt_tokens);
  check_length(Section(node, path, "output_tokens"), config.output_tokens);
  check_prefix(Section(node, path, "prefix"), config.prefix, config.num_requests);
}

std::string resolve_path(const std::string& file, const std::string& base_dir) {
  const std::filesystem::path path(file);
  if (path.is_absolute()) return path.lexically_normal().string();
  return (std::filesystem::path(base_dir) / path).lexically_normal().string();
}

}  // namespace

void visit_fields(FieldVisitor& visitor, WorkloadConfig& config) {
  visitor.integer("num_requests", config.num_requests, 1, kMaxRequests,
                  "number of requests; not with a trace");
  visit_arrivals(visitor, config.arrivals);
  visit_length(visitor, "prompt_tokens", config.prompt_tokens, "prompt lengths; not with a trace");
  visit_length(visitor, "output_tokens", config.output_tokens, "output lengths; not with a trace");
  visit_priority(visitor, config.priority);
  visit_prefix(visitor, config.prefix);
  visit_trace(visitor, config.trace);
}

std::span<const Choice> workload_choices() {
  static const Choice kChoices[] = {
      {"", "trace.file", unused_by_trace},
      {"", "arrivals.process", unused_by_drawn_arrivals},
      {"arrivals", kArrivals.selector, unused_by_process},
      {"arrivals", "burst_size", unused_by_burst_size},
      {"prompt_tokens", kLengths.selector, unused_by_distribution},
      {"output_tokens", kLengths.selector, unused_by_distribution},
      {"prefix", kPrefixes.selector, unused_by_prefix_kind},
      {"trace", "format", unused_by_format},
  };
  return kChoices;
}

void expand_trace_shorthand(ConfigNode& workload) {
  ConfigNode* trace = workload.find("trace");
  const bool is_null = trace != nullptr && trace->kind == ConfigNode::Kind::Null;
  if (trace == nullptr || (trace->kind != ConfigNode::Kind::Scalar && !is_null)) return;
  ConfigNode section;
  section.kind = ConfigNode::Kind::Map;
  section.where = trace->where;
  trace->kind = ConfigNode::Kind::Scalar;
  section.entries.emplace_back("file", std::move(*trace));
  *trace = std::move(section);
}

WorkloadConfig read_workload_config(const ConfigNode& node, const std::string& path,
                                    const std::string& base_dir) {
  ConfigNode expanded = node;
  expand_trace_shorthand(expanded);
  WorkloadConfig config;
  ConfigReader reader(expanded, path);
  visit_fields(reader, config);
  reader.finish();

  const Section trace(expanded, path, "trace");
  if (trace.node != nullptr && trace.get("file") == nullptr) {
    trace.fail("file", "missing; the path of a trace file");
  }
  const bool has_trace = !config.trace.file.empty();
  const Section arrivals(expanded, path, "arrivals");
  config.arrivals.where = arrivals.where;
  const bool has_arrivals = arrivals.node != nullptr && !arrivals.node->entries.empty();
  if (has_trace && !has_arrivals) config.arrivals.process = Trace;
  const ConfigNode chosen =
      fields_to_node([&config](FieldVisitor& visitor) { visit_fields(visitor, config); });
  refuse_unused_keys(expanded, chosen, workload_choices(), path);
  check_arrivals(arrivals, config.arrivals);
  check_priority(Section(expanded, path, "priority"), config.priority);
  if (has_trace) {
    config.trace.where = trace.get("file")->where;
    const auto resolve = [&base_dir](std::string& file, const SourceLocation& where) {
      if (!file.empty()) file = resolve_path(file, where.is_assignment() ? "" : base_dir);
    };
    resolve(config.trace.file, config.trace.where);
    if (const ConfigNode* log = trace.get("request_log"); log != nullptr) {
      resolve(config.trace.request_log, log->where);
    }
  } else {
    check_synthetic(expanded, path, config);
  }
  return config;
}

}  // namespace metronome
