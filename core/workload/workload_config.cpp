// SPDX-License-Identifier: Apache-2.0
#include "core/workload/workload_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/core.h>
#include <limits>

#include "core/config/config_writer.h"
#include "core/workload/workload_sections.h"

namespace metronome {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::string_view kProcessNames[] = {"poisson",     "gamma", "constant", "burst",
                                              "closed_loop", "steps", "trace"};
constexpr std::string_view kPrefixNames[] = {"none", "groups", "tree"};
constexpr std::string_view kFormatNames[] = {
    "auto",          "azure",   "mooncake", "vidur",     "burstgpt", "sharegpt",
    "aiperf",        "bailian", "servegen", "splitwise", "guidellm", "weka",
    "opentelemetry", "dynamo",  "gateway",  "custom",    "plain"};
constexpr std::string_view kUnitNames[] = {"auto", "s", "ms", "us", "ns", "date"};
constexpr std::string_view kPromptNames[] = {"auto", "whole", "new"};

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

void visit_priority(FieldVisitor& v, PriorityConfig& c) {
  if (!v.open_section("priority", "priorities, drawn for each request")) return;
  v.integers("values", c.values, -1'000'000'000, 1'000'000'000,
             "priorities to draw from, lower is served first; empty = all 0");
  v.numbers("weights", c.weights, 0, 1e12, "weight of each value; empty = equal");
  v.close_section();
}

void visit_columns(FieldVisitor& v, TraceColumns& c) {
  if (!v.open_section("columns",
                      "which column of a CSV, or path of a JSON field (a.b), says what; empty = "
                      "that of the format")) {
    return;
  }
  v.text("arrival", c.arrival, "time of the request");
  v.text("prompt", c.prompt, "prompt tokens");
  v.text("output", c.output, "output tokens");
  v.text("limit", c.limit, "tokens that the request may have at most (max_tokens)");
  v.text("hash_ids", c.hash_ids, "list of ids, one for each block of the prompt");
  v.text("tokens", c.tokens, "list of the prompt's token ids");
  v.text("session", c.session, "what the requests of a session have in common");
  v.text("parent", c.parent, "the session that this one goes on from");
  v.text("turn", c.turn, "place of the request in its session");
  v.text("delay", c.delay, "time from the end of the session's request before");
  v.text("class", c.class_name, "class of the request");
  v.text("priority", c.priority, "priority, lower is served first");
  v.close_section();
}

void visit_trace(FieldVisitor& v, TraceConfig& c) {
  if (!v.open_section("trace", "recorded requests instead of random ones")) return;
  v.path("file", c.file,
         "trace file, relative to the scenario's folder, or with --set to the current folder; "
         "empty = none");
  v.choice("format", c.format, kFormatNames, "format of the file; auto = by its first line");
  v.integer("limit", c.limit, 0, kMaxRequests, "keep the first N requests; 0 = all");
  v.number("rate_scale", c.rate_scale, 1e-6, 1e6,
           "arrival rate relative to the recorded one; 2 = twice as dense");
  v.boolean("jitter", c.jitter, "mooncake: spread arrivals evenly over their 3 s bucket");
  v.path("request_log", c.request_log,
         "file with arrivals that replace the trace's: JSON lines with arrival_time in seconds, "
         "input_toks and output_toks, one for each request in the same order; a path like file; "
         "empty = none");
  v.path("tokenizer", c.tokenizer,
         "sharegpt, conversations: the tokenizer.json that gives their lengths; a path like file");
  v.optional_number("characters_per_token", c.characters_per_token, 0.1, 100,
                    "sharegpt, conversations without a tokenizer: how many characters count as a "
                    "token, about 4 in English");
  v.optional_integer("output_len", c.output_len, 1, kMaxLengthTokens,
                     "sharegpt, conversations: --sharegpt-output-len, output tokens of every "
                     "request; null: those of the recorded answer");
  visit_columns(v, c.columns);
  v.choice("time_unit", c.time_unit, kUnitNames,
           "unit of arrivals and delays; date = YYYY-MM-DD HH:MM:SS; auto = that of the format");
  v.optional_integer("block_size", c.block_size, 1, kMaxLengthTokens,
                     "prompt tokens of a hash id; null: that of the format");
  v.choice("prompts", c.prompts, kPromptNames,
           "what the prompt tokens of a session's later turns count: the whole prompt, or what the "
           "turn adds to it; auto = as the format does");
  v.close_section();
}

// ---- Choices and the keys they use ----

using enum ArrivalProcess;
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
constexpr KeyUse kPrefixUses[] = {
    {"num_groups", bits(Groups), bits(Groups)},
    {"prefix_tokens", bits(Groups, Tree), bits(Groups, Tree)},
    {"depth", bits(Tree), bits(Tree)},
    {"branching", bits(Tree)},
};

constexpr UseTable kArrivals = {"process", kProcessNames, kArrivalUses};
constexpr UseTable kPrefixes = {"kind", kPrefixNames, kPrefixUses};

Unused unused_by_process(std::string_view name) { return unused_in_table(kArrivals, name); }
Unused unused_by_prefix_kind(std::string_view name) { return unused_in_table(kPrefixes, name); }

Unused unused_by_burst_size(std::string_view size) {
  static constexpr std::string_view kKeys[] = {"burst_interval_s"};
  if (size != "0") return {};
  return unused_with_complaint(
      kKeys, "not used when all requests arrive at once; give burst_size as well");
}

// `file` is empty when requests are drawn.
Unused unused_by_trace(std::string_view file) {
  static constexpr std::string_view kRecorded[] = {
      "trace.format",      "trace.limit",     "trace.rate_scale",
      "trace.jitter",      "trace.tokenizer", "trace.characters_per_token",
      "trace.request_log", "trace.columns",   "trace.output_len",
      "trace.time_unit",   "trace.prompts",   "trace.block_size"};
  static constexpr std::string_view kDrawn[] = {"num_requests", "prompt_tokens", "output_tokens",
                                                "dataset",      "sessions",      "images"};
  if (file.empty()) {
    return unused_with_complaint(kRecorded, "not used without a trace; it needs trace.file");
  }
  Unused unused = unused_with_complaint(
      kDrawn,
      "not used with a trace, which brings its own requests; it belongs to workloads without a "
      "trace");
  unused.companions = {"arrivals", "prefix", "classes"};
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
  const std::optional<std::size_t> chosen = position_of(name, kFormatNames);
  if (!chosen.has_value()) return {};
  const auto format = static_cast<TraceFormat>(*chosen);
  if (format == TraceFormat::Auto) return {};
  Unused unused;
  const auto belongs_to = [&](std::string_view key, TraceFormat owner) {
    if (format == owner) return;
    unused.keys.push_back({key, "not used by format " + std::string(name) + "; it belongs to " +
                                    std::string(kFormatNames[static_cast<std::size_t>(owner)])});
  };
  belongs_to("jitter", TraceFormat::Mooncake);
  if (format == TraceFormat::Custom) return unused;
  belongs_to("tokenizer", TraceFormat::ShareGpt);
  belongs_to("characters_per_token", TraceFormat::ShareGpt);
  belongs_to("output_len", TraceFormat::ShareGpt);
  return unused;
}

// ---- Checks across fields ----

void check_arrivals(const Section& section, const ArrivalConfig& c) {
  check_needed(section, kArrivals, static_cast<std::size_t>(c.process));
  if (c.burst_size > 0 && section.get("burst_interval_s") == nullptr) {
    section.fail("burst_interval_s", "missing; burst_size needs it");
  }
  if (c.process == Steps) {
    if (c.steps.empty()) section.fail("steps", "the list is empty; one step per request");
    for (std::size_t i = 1; i < c.steps.size(); ++i) {
      if (c.steps[i] >= c.steps[i - 1]) continue;
      section.fail("steps", fmt::format("step {} comes after step {}; steps must not decrease",
                                        c.steps[i], c.steps[i - 1]));
    }
  }
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

// How many arrivals there are: requests, or sessions. `key` names what says so.
void check_count(const ConfigNode& node, const std::string& path, WorkloadConfig& config) {
  const bool has_sessions = config.sessions.kind != SessionKind::None;
  const ArrivalConfig& arrivals = config.arrivals;
  const ConfigNode* count = given(&node, "num_requests");
  if (arrivals.process == Steps) {
    if (has_sessions) {
      Section(node, path, "arrivals")
          .fail("process", "steps cannot start sessions; allowed: arrivals by time");
    }
    const auto num_steps = static_cast<std::int64_t>(arrivals.steps.size());
    if (count == nullptr) config.num_requests = num_steps;
    if (config.num_requests != num_steps) {
      Section(node, path, "arrivals")
          .fail("steps",
                fmt::format(
                    "{} steps for {} requests; as many as num_requests, or leave num_requests out",
                    num_steps, config.num_requests));
    }
  } else if (count == nullptr && !has_sessions) {
    fail_config(node.where, path + ".num_requests",
                "missing; a workload without a trace needs at least 1");
  }
}

void check_synthetic(const ConfigNode& node, const std::string& path, WorkloadConfig& config) {
  if (config.arrivals.process == Trace) {
    Section(node, path, "arrivals").fail("process", "there is no trace; give workload.trace");
  }
  check_count(node, path, config);
  check_dataset(Section(node, path, "dataset"), config.dataset);
  check_sessions(Section(node, path, "sessions"), config.sessions);
  check_images(Section(node, path, "images"), config.images);
  if (config.images.is_on() && config.sessions.kind != SessionKind::None) {
    Section(node, path, "images").fail("kind", "images in sessions are not drawn; allowed: none");
  }
  if (config.dataset.name != DatasetName::None) return;
  const Section prompts(node, path, "prompt_tokens"), outputs(node, path, "output_tokens");
  if (prompts.node != nullptr || classes_need(config, &ClassConfig::has_prompt_tokens)) {
    check_length(prompts, config.prompt_tokens);
  }
  if (outputs.node != nullptr || classes_need(config, &ClassConfig::has_output_tokens)) {
    check_length(outputs, config.output_tokens);
  }
  check_prefix(Section(node, path, "prefix"), config.prefix,
               std::max(config.num_requests, config.sessions.num_sessions));
}

std::string resolve_path(const std::string& file, const std::string& base_dir) {
  const std::filesystem::path path(file);
  if (path.is_absolute()) return path.lexically_normal().string();
  return (std::filesystem::path(base_dir) / path).lexically_normal().string();
}

}  // namespace

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

void check_prefix(const Section& section, const PrefixConfig& c, std::int64_t num_requests) {
  check_needed(section, kPrefixes, static_cast<std::size_t>(c.kind));
  if (c.kind != Tree) return;
  if (c.depth * c.prefix_tokens > kMaxLengthTokens) {
    section.fail("depth",
                 fmt::format("{} levels of {} tokens are too long; at most {} tokens together",
                             c.depth, c.prefix_tokens, kMaxLengthTokens));
  }
  if (has_too_many_nodes(c)) {
    section.fail("branching", "too many nodes; branching^(depth - 1) must be at most 2^40");
  }
  constexpr std::int64_t kMaxSegments = 4'000'000'000;  // offsets are 32 bits wide
  if (num_requests * (c.depth + 1) > kMaxSegments) {
    section.fail(
        "depth",
        fmt::format("too many shared segments; num_requests * (depth + 1) must be at most {}",
                    kMaxSegments));
  }
}

void visit_fields(FieldVisitor& visitor, WorkloadConfig& config) {
  visitor.integer("num_requests", config.num_requests, 1, kMaxRequests,
                  "number of requests; not with a trace");
  visitor.optional_integer("max_tokens", config.max_tokens, 1, kMaxLengthTokens,
                           "limit of output tokens that requests have, which engines may reserve; "
                           "answers end there; null: equals the answer");
  visitor.mappings("classes", config.given_classes,
                   "classes of requests, each with a name, lengths, share or rate, prefix, "
                   "priority, slo");
  visit_arrivals(visitor, config.arrivals);
  visit_length(visitor, "prompt_tokens", config.prompt_tokens, "prompt lengths; not with a trace");
  visit_length(visitor, "output_tokens", config.output_tokens, "output lengths; not with a trace");
  visit_priority(visitor, config.priority);
  visit_prefix(visitor, config.prefix);
  visit_images(visitor, config.images);
  visit_dataset(visitor, config.dataset);
  visit_sessions(visitor, config.sessions);
  visit_trace(visitor, config.trace);
}

std::span<const Choice> workload_choices() {
  static const std::vector<Choice> choices = [] {
    std::vector<Choice> all = {
        {"", "trace.file", unused_by_trace},
        {"", "arrivals.process", unused_by_drawn_arrivals},
        {"arrivals", kArrivals.selector, unused_by_process},
        {"arrivals", "burst_size", unused_by_burst_size},
        {"prefix", kPrefixes.selector, unused_by_prefix_kind},
        {"trace", "format", unused_by_format},
    };
    append_length_choices("prompt_tokens", all);
    append_length_choices("output_tokens", all);
    append_session_choices(all);
    append_image_choices(all);
    return all;
  }();
  return choices;
}

std::vector<std::string> workload_warnings(const WorkloadConfig& config) {
  const bool has_trace = !config.trace.file.empty();
  if (has_trace || config.dataset.name != DatasetName::None) return {};
  std::vector<std::string> warnings;
  for (std::string warning : {length_warning("workload.prompt_tokens", config.prompt_tokens),
                              length_warning("workload.output_tokens", config.output_tokens)}) {
    if (!warning.empty()) warnings.push_back(std::move(warning));
  }
  return warnings;
}

namespace {

// Moves columns that stand in the trace's mapping itself into its `columns`.
void move_columns(ConfigNode& trace) {
  constexpr std::string_view kColumns[] = {"hash_ids", "session", "parent",  "turn",
                                           "delay",    "class",   "priority"};
  for (const std::string_view key : kColumns) {
    ConfigNode* const found = trace.find(key);
    if (found == nullptr) continue;
    ConfigNode value = std::move(*found);
    trace.erase(key);
    ConfigNode& columns = section_of(trace, "columns", value.where);
    if (columns.kind != ConfigNode::Kind::Map) return;  // the reader refuses it
    columns.erase(key);
    columns.entries.emplace_back(std::string(key), std::move(value));
  }
}

}  // namespace

std::span<const std::string_view> trace_format_names() { return kFormatNames; }

std::optional<TraceFormat> trace_format_of(std::string_view name) {
  const std::optional<std::size_t> found = position_of(name, kFormatNames);
  return found ? std::optional(static_cast<TraceFormat>(*found)) : std::nullopt;
}

bool TraceColumns::any() const {
  const std::string* all[] = {&arrival, &prompt, &output, &limit, &hash_ids,   &tokens,
                              &session, &parent, &turn,   &delay, &class_name, &priority};
  return std::any_of(std::begin(all), std::end(all),
                     [](const std::string* name) { return !name->empty(); });
}

void expand_trace_shorthand(ConfigNode& workload) {
  ConfigNode* trace = workload.find("trace");
  if (trace != nullptr && trace->kind == ConfigNode::Kind::Map) move_columns(*trace);
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
                                    const std::string& base_dir, PlaceOfKey place_of) {
  ConfigNode expanded = node;
  expand_trace_shorthand(expanded);
  WorkloadConfig config;
  ConfigReader reader(expanded, path, place_of);
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
  WorkloadConfig plain;
  const ConfigNode defaults =
      fields_to_node([&plain](FieldVisitor& visitor) { visit_fields(visitor, plain); });
  refuse_unused_keys(expanded, chosen, workload_choices(), defaults, path);
  read_classes(expanded, path, config);
  if (!config.has_class_rates()) check_arrivals(arrivals, config.arrivals);
  check_priority(Section(expanded, path, "priority"), config.priority);
  for (const PathField& field :
       path_fields([&config](FieldVisitor& visitor) { visit_fields(visitor, config); })) {
    const ConfigNode* given = expanded.find_path(field.key);
    if (given == nullptr || field.value->empty()) continue;
    *field.value = resolve_path(*field.value, given->where.is_assignment() ? "" : base_dir);
  }
  if (has_trace) {
    config.trace.where = trace.get("file")->where;
    check_prefix(Section(expanded, path, "prefix"), config.prefix, kMaxRequests);
  } else {
    const Section images(expanded, path, "images");
    if (const ConfigNode* folder = images.get("folder")) config.images.where = folder->where;
    check_synthetic(expanded, path, config);
  }
  return config;
}

}  // namespace metronome
