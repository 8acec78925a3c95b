// The `workload` section: what it accepts and every way it can be wrong.
#include <string>
#include <vector>

#include "core/config/config_reader.h"
#include "core/workload/workload_config.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"

namespace metronome::testing {
namespace {

const std::string kLengths = "prompt_tokens: {value: 10}, output_tokens: {value: 5}";

std::string error_in(const std::string& yaml) {
  return error_of([&] { read_config(yaml); });
}

std::string error_with_arrivals(const std::string& arrivals) {
  return error_in("{num_requests: 4, " + kLengths + ", arrivals: " + arrivals + "}");
}

std::string error_with_prompts(const std::string& prompt_tokens) {
  return error_in(
      "{num_requests: 4, arrivals: {rate: 1}, output_tokens: {value: 5}, "
      "prompt_tokens: " +
      prompt_tokens + "}");
}

std::string error_with_prefix(const std::string& prefix) {
  return error_in("{num_requests: 4, arrivals: {rate: 1}, " + kLengths + ", prefix: " + prefix +
                  "}");
}

// Names every key that visit_fields shows.
class KeyLister final : public FieldVisitor {
 public:
  std::vector<std::string> keys;

  void integer(const char* key, std::int64_t&, std::int64_t, std::int64_t,
               const char* doc) override {
    add(key, doc);
  }
  void number(const char* key, double&, double, double, const char* doc) override { add(key, doc); }
  void boolean(const char* key, bool&, const char* doc) override { add(key, doc); }
  void text(const char* key, std::string&, const char* doc) override { add(key, doc); }
  void choice(const char* key, int&, std::span<const std::string_view>, const char* doc) override {
    add(key, doc);
  }
  void integers(const char* key, std::vector<std::int64_t>&, std::int64_t, std::int64_t,
                const char* doc) override {
    add(key, doc);
  }
  void numbers(const char* key, std::vector<double>&, double, double, const char* doc) override {
    add(key, doc);
  }
  bool open_section(const char* key, const char* doc) override {
    CHECK(std::string(doc) != "");
    prefix_ = std::string(key) + ".";
    return true;
  }
  void close_section() override { prefix_.clear(); }
  void integer_or_auto(const char* key, std::optional<std::int64_t>&, std::int64_t, std::int64_t,
                       const char* doc) override {
    add(key, doc);
  }
  void boolean_or_auto(const char* key, std::optional<bool>&, const char* doc) override {
    add(key, doc);
  }
  void optional_number(const char* key, std::optional<double>&, double, double,
                       const char* doc) override {
    add(key, doc);
  }
  void optional_integer(const char* key, std::optional<std::int64_t>&, std::int64_t, std::int64_t,
                        const char* doc) override {
    add(key, doc);
  }

 private:
  void add(const char* key, const char* doc) {
    CHECK(std::string(doc) != "");
    keys.push_back(prefix_ + key);
  }
  std::string prefix_;
};

TEST_CASE("visit_fields names every key once", "[core][config]") {
  WorkloadConfig config;
  KeyLister lister;
  visit_fields(lister, config);
  std::string all;
  for (const std::string& key : lister.keys) all += key + " ";
  CHECK(all ==
        "num_requests arrivals.process arrivals.rate arrivals.burstiness arrivals.burst_size "
        "arrivals.burst_interval_s arrivals.concurrency arrivals.think_time_ms arrivals.steps "
        "prompt_tokens.distribution prompt_tokens.value prompt_tokens.min prompt_tokens.max "
        "prompt_tokens.median prompt_tokens.p99 prompt_tokens.values prompt_tokens.weights "
        "output_tokens.distribution output_tokens.value output_tokens.min output_tokens.max "
        "output_tokens.median output_tokens.p99 output_tokens.values output_tokens.weights "
        "priority.values priority.weights "
        "prefix.kind prefix.num_groups prefix.prefix_tokens prefix.depth prefix.branching "
        "trace.file trace.format trace.limit trace.rate_scale trace.jitter "
        "trace.request_log ");
}

TEST_CASE("every synthetic key can be set", "[core][config]") {
  const WorkloadConfig tree = read_config(
      "{num_requests: 12, arrivals: {process: gamma, rate: 2.5, burstiness: 0.5},\n"
      " prompt_tokens: {distribution: lognormal, median: 10, p99: 90.5, min: 2, max: 80},\n"
      " output_tokens: {distribution: empirical, values: [3, 4], weights: [1, 0.5]},\n"
      " priority: {values: [-2, 3], weights: [0, 1]},\n"
      " prefix: {kind: tree, prefix_tokens: 7, depth: 3, branching: 5}}");
  CHECK(tree.num_requests == 12);
  CHECK(tree.arrivals.process == ArrivalProcess::Gamma);
  CHECK(tree.arrivals.rate == 2.5);
  CHECK(tree.arrivals.burstiness == 0.5);
  CHECK(tree.prompt_tokens.distribution == LengthDistribution::Lognormal);
  CHECK(tree.prompt_tokens.median == 10);
  CHECK(tree.prompt_tokens.p99 == 90.5);
  CHECK(tree.prompt_tokens.min == 2);
  CHECK(tree.prompt_tokens.max == 80);
  CHECK(tree.output_tokens.values == std::vector<std::int64_t>{3, 4});
  CHECK(tree.output_tokens.weights == std::vector<double>{1, 0.5});
  CHECK(tree.priority.values == std::vector<std::int64_t>{-2, 3});
  CHECK(tree.priority.weights == std::vector<double>{0, 1});
  CHECK(tree.prefix.kind == PrefixKind::Tree);
  CHECK(tree.prefix.prefix_tokens == 7);
  CHECK(tree.prefix.depth == 3);
  CHECK(tree.prefix.branching == 5);

  const auto arrivals = [](const std::string& text) {
    return read_config("{num_requests: 3, " + kLengths + ", arrivals: " + text + "}").arrivals;
  };
  const ArrivalConfig burst = arrivals("{process: burst, burst_size: 2, burst_interval_s: 0.5}");
  CHECK(burst.burst_size == 2);
  CHECK(burst.burst_interval_s == 0.5);
  const ArrivalConfig loop = arrivals("{process: closed_loop, concurrency: 9, think_time_ms: 4}");
  CHECK(loop.concurrency == 9);
  CHECK(loop.think_time_ms == 4);
  CHECK(arrivals("{process: steps, steps: [0, 1, 1]}").steps == std::vector<std::int64_t>{0, 1, 1});
  CHECK(arrivals("{process: constant, rate: .inf}").rate ==
        std::numeric_limits<double>::infinity());
}

TEST_CASE("trace keys, shorthand and paths", "[core][config]") {
  const WorkloadConfig full = read_config(
      "{trace: {file: ../t/m.jsonl, format: mooncake, limit: 9, rate_scale: 2, jitter: true}}",
      "some/folder");
  CHECK(full.trace.file == "some/t/m.jsonl");
  CHECK(full.trace.format == TraceFormat::Mooncake);
  CHECK(full.trace.limit == 9);
  CHECK(full.trace.rate_scale == 2);
  CHECK(full.trace.jitter);
  CHECK(full.arrivals.process == ArrivalProcess::Trace);

  const WorkloadConfig short_form = read_config("trace: a.csv", "some/folder");
  CHECK(short_form.trace.file == "some/folder/a.csv");
  CHECK(short_form.arrivals.process == ArrivalProcess::Trace);
  CHECK(read_config("trace: /abs/a.csv").trace.file == "/abs/a.csv");
  CHECK(read_config("trace: a.csv", "").trace.file == "a.csv");

  const WorkloadConfig replaced = read_config("{trace: a.csv, arrivals: {rate: 3}}");
  CHECK(replaced.arrivals.process == ArrivalProcess::Poisson);
  CHECK(replaced.arrivals.rate == 3);
}

TEST_CASE("mistakes of type, range and spelling name file, line and key", "[core][config]") {
  CHECK(error_in("num_requests: 4\nprompt_tokens:\n  valeu: 3\n") ==
        "w.yaml:3: workload.prompt_tokens.valeu: unknown key (did you mean 'value'?); allowed: "
        "distribution, value, min, max, median, p99, values, weights");
  CHECK(error_in("num_request: 4\n") ==
        "w.yaml:1: workload.num_request: unknown key (did you mean 'num_requests'?); allowed: "
        "num_requests, arrivals, prompt_tokens, output_tokens, priority, prefix, trace");
  CHECK(error_in("num_requests: many") ==
        "w.yaml:1: workload.num_requests: must be an integer, got 'many'; allowed: 1 to 100000000");
  CHECK(error_in("num_requests: 0") ==
        "w.yaml:1: workload.num_requests: 0 is out of range; allowed: 1 to 100000000");
  CHECK(error_in("[1, 2]") ==
        "w.yaml:1: workload: must be a mapping, got a list; allowed: KEY: VALUE");
  CHECK(error_with_arrivals("{rate: -1}") ==
        "w.yaml:1: workload.arrivals.rate: -1 is out of range; allowed: 1e-06 to inf");
  CHECK(error_with_arrivals("{process: poison}") ==
        "w.yaml:1: workload.arrivals.process: unknown value 'poison' (did you mean 'poisson'?); "
        "allowed: poisson, gamma, constant, burst, closed_loop, steps, trace");
  CHECK(error_with_prompts("{distribution: empirical, values: [3, 0]}") ==
        "w.yaml:1: workload.prompt_tokens.values.1: 0 is out of range; allowed: 1 to 100000000");
  CHECK(error_in("{trace: {file: [a]}}") ==
        "w.yaml:1: workload.trace.file: must be text, got a list; allowed: one word or a quoted "
        "text");
}

TEST_CASE("required keys", "[core][config]") {
  CHECK(error_in("arrivals: {rate: 1}\n"
                 "prompt_tokens: {value: 1}\n") ==
        "w.yaml:1: workload.num_requests: missing; a workload without a trace needs at least 1");
  CHECK(error_in("{num_requests: 1, prompt_tokens: {value: 1}, output_tokens: {value: 1}}") ==
        "w.yaml:1: workload.arrivals.rate: missing; process poisson needs it");
  CHECK(error_in("num_requests: 1\narrivals:\n  process: burst\nprompt_tokens: {value: 1}\n") ==
        "w.yaml:1: workload.output_tokens: missing; a distribution (fixed, uniform, lognormal, "
        "empirical) or workload.trace");
  CHECK(error_with_arrivals("{process: constant}") ==
        "w.yaml:1: workload.arrivals.rate: missing; process constant needs it");
  CHECK(error_with_arrivals("{process: closed_loop}") ==
        "w.yaml:1: workload.arrivals.concurrency: missing; process closed_loop needs it");
  CHECK(error_with_arrivals("{process: burst, burst_size: 3}") ==
        "w.yaml:1: workload.arrivals.burst_interval_s: missing; burst_size needs it");
  CHECK(error_with_arrivals("{process: steps}") ==
        "w.yaml:1: workload.arrivals.steps: missing; process steps needs it");
  CHECK(error_with_prompts("{}") ==
        "w.yaml:1: workload.prompt_tokens.value: missing; distribution fixed needs it");
  CHECK(error_with_prompts("{distribution: uniform, min: 4}") ==
        "w.yaml:1: workload.prompt_tokens.max: missing; distribution uniform needs it");
  CHECK(error_with_prompts("{distribution: lognormal, median: 4}") ==
        "w.yaml:1: workload.prompt_tokens.p99: missing; distribution lognormal needs it");
  CHECK(error_with_prompts("{distribution: empirical}") ==
        "w.yaml:1: workload.prompt_tokens.values: missing; distribution empirical needs it");
  CHECK(error_with_prefix("{kind: groups, num_groups: 3}") ==
        "w.yaml:1: workload.prefix.prefix_tokens: missing; kind groups needs it");
  CHECK(error_with_prefix("{kind: tree, prefix_tokens: 3}") ==
        "w.yaml:1: workload.prefix.depth: missing; kind tree needs it");
  CHECK(error_in("trace: {limit: 3}") ==
        "w.yaml:1: workload.trace.file: missing; the path of a trace file");
}

TEST_CASE("keys without a use", "[core][config]") {
  CHECK(error_with_arrivals("{process: burst, rate: 1}") ==
        "w.yaml:1: workload.arrivals.rate: not used by process burst; it belongs to poisson, "
        "gamma, constant");
  CHECK(error_with_arrivals("{rate: 1, burstiness: 2}") ==
        "w.yaml:1: workload.arrivals.burstiness: not used by process poisson; it belongs to gamma");
  CHECK(error_with_arrivals("{process: burst, burst_interval_s: 2}") ==
        "w.yaml:1: workload.arrivals.burst_interval_s: not used when all requests arrive at once; "
        "give burst_size as well");
  CHECK(error_with_prompts("{value: 3, p99: 7}") ==
        "w.yaml:1: workload.prompt_tokens.p99: not used by distribution fixed; it belongs to "
        "lognormal");
  CHECK(error_with_prompts("{distribution: uniform, min: 1, max: 2, value: 3}") ==
        "w.yaml:1: workload.prompt_tokens.value: not used by distribution uniform; it belongs to "
        "fixed");
  CHECK(error_with_prefix("{prefix_tokens: 3}") ==
        "w.yaml:1: workload.prefix.prefix_tokens: not used by kind none; it belongs to groups, "
        "tree");
  CHECK(error_with_prefix("{kind: groups, num_groups: 2, prefix_tokens: 3, depth: 2}") ==
        "w.yaml:1: workload.prefix.depth: not used by kind groups; it belongs to tree");
  const std::string with_trace =
      ": not used with a trace, which brings its own requests; it belongs to workloads without a "
      "trace";
  CHECK(error_in("trace: a.csv\nnum_requests: 4\n") ==
        "w.yaml:2: workload.num_requests" + with_trace);
  CHECK(error_in("trace: a.csv\nprompt_tokens:\n  value: 4\n") ==
        "w.yaml:2: workload.prompt_tokens" + with_trace);
  CHECK(error_in("trace: a.csv\noutput_tokens: {value: 4}\n") ==
        "w.yaml:2: workload.output_tokens" + with_trace);
  CHECK(error_in("trace: a.csv\nprefix: {kind: groups}\n") ==
        "w.yaml:2: workload.prefix" + with_trace);
  CHECK(error_in("{trace: {file: a.csv, format: azure, jitter: true}}") ==
        "w.yaml:1: workload.trace.jitter: not used by format azure; it belongs to mooncake");
  CHECK(error_in("{trace: {file: a.csv, rate_scale: 2}, arrivals: {rate: 1}}") ==
        "w.yaml:1: workload.trace.rate_scale: not used when workload.arrivals replaces the "
        "trace's arrival times; remove one of them");
  CHECK(error_in("trace: a.csv\narrivals: {process: trace, rate: 3}\n") ==
        "w.yaml:2: workload.arrivals.rate: not used by process trace; it belongs to poisson, "
        "gamma, constant");
}

TEST_CASE("combinations that cannot be", "[core][config]") {
  CHECK(error_with_arrivals("{process: steps, steps: []}") ==
        "w.yaml:1: workload.arrivals.steps: the list is empty; one step per request");
  CHECK(error_with_arrivals("{process: steps, steps: [0, 3, 2, 4]}") ==
        "w.yaml:1: workload.arrivals.steps: step 2 comes after step 3; steps must not decrease");
  CHECK(error_with_arrivals("{process: steps, steps: [0, 3, 4]}") ==
        "w.yaml:1: workload.arrivals.steps: 3 steps for 4 requests; as many as num_requests, or "
        "leave num_requests out");
  CHECK(error_with_arrivals("{process: trace}") ==
        "w.yaml:1: workload.arrivals.process: there is no trace; give workload.trace");
  CHECK(error_with_prompts("{distribution: uniform, min: 9, max: 2}") ==
        "w.yaml:1: workload.prompt_tokens.min: min 9 is above max 2; min must be at most max");
  CHECK(error_with_prompts("{distribution: lognormal, median: 9, p99: 9}") ==
        "w.yaml:1: workload.prompt_tokens.p99: not above the median; p99 must be larger than "
        "median");
  CHECK(error_with_prompts("{distribution: empirical, values: []}") ==
        "w.yaml:1: workload.prompt_tokens.values: the list is empty; at least one length");
  CHECK(error_with_prompts("{distribution: empirical, values: [1, 2], weights: [1]}") ==
        "w.yaml:1: workload.prompt_tokens.weights: 1 weights for 2 values; one weight per value");
  CHECK(error_with_prompts("{distribution: empirical, values: [1, 2], weights: [0, 0]}") ==
        "w.yaml:1: workload.prompt_tokens.weights: all weights are 0; at least one must be "
        "positive");
  CHECK(error_in("{num_requests: 4, arrivals: {rate: 1}, " + kLengths +
                 ", priority: {weights: [1]}}") ==
        "w.yaml:1: workload.priority.weights: 1 weights for 0 values; one weight per value");
  CHECK(error_with_prefix("{kind: tree, depth: 64, branching: 2, prefix_tokens: 1}") ==
        "w.yaml:1: workload.prefix.branching: too many nodes; branching^(depth - 1) must be at "
        "most 2^40");
  CHECK(error_with_prefix("{kind: tree, depth: 11, branching: 1, prefix_tokens: 10000000}") ==
        "w.yaml:1: workload.prefix.depth: 11 levels of 10000000 tokens are too long; at most "
        "100000000 tokens together");
}

}  // namespace
}  // namespace metronome::testing
