// SPDX-License-Identifier: Apache-2.0
// The `workload` section: what it accepts and every way it can be wrong.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/config/config_reader.h"
#include "core/workload/workload_config.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"
#include "tests/expected.h"

namespace metronome::testing::TEST_FILE {
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

// The answer to each text, by one of the functions above; `key` has the text as its value.
void add_errors(Answers& answers, const std::string& key, std::string (*error)(const std::string&),
                const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    answers.add((key.empty() ? "" : key + ": ") + text, error(text));
  }
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
  void integer_rows(const char* key, std::vector<std::vector<std::int64_t>>&, std::size_t,
                    std::int64_t, std::int64_t, const char* doc) override {
    add(key, doc);
  }
  bool open_section(const char* key, const char* doc) override {
    CHECK(std::string(doc) != "");
    prefix_ += std::string(key) + ".";
    return true;
  }
  void close_section() override {
    prefix_.pop_back();
    prefix_.erase(prefix_.rfind('.') + 1);
  }
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
  for (const std::string& key : lister.keys) all += key + "\n";
  check_expected("workload_config/keys.txt", all);
}

TEST_CASE("lengths by mean and deviation", "[core][config]") {
  const WorkloadConfig config = read_config(
      "{num_requests: 20000, arrivals: {rate: 1}, prompt_tokens: {distribution: lognormal, mean: "
      "500, std: 400}, output_tokens: {distribution: normal, mean: 200, std: 30}}");
  CHECK(config.prompt_tokens.mean == 500);
  CHECK(config.output_tokens.deviation == 30);
  const Workload workload = make_workload(config, 11);
  const auto figures = [&](auto length_of) {
    double sum = 0, squares = 0;
    for (const RequestSpec& request : workload.requests) {
      const auto length = static_cast<double>(length_of(request));
      sum += length;
      squares += length * length;
    }
    const double mean = sum / 20000;
    return std::pair{mean, std::sqrt(squares / 20000 - mean * mean)};
  };
  const auto [prompt_mean, prompt_std] =
      figures([](const RequestSpec& request) { return request.num_prompt_tokens; });
  CHECK(std::abs(prompt_mean - 500) < 10);  // 3.5 standard errors
  CHECK(std::abs(prompt_std - 400) < 25);
  const auto [output_mean, output_std] =
      figures([](const RequestSpec& request) { return request.max_output_tokens; });
  CHECK(std::abs(output_mean - 200) < 1);
  CHECK(std::abs(output_std - 30) < 1);

  CHECK(error_with_prompts("{distribution: lognormal, mean: 5, std: 1, median: 4, p99: 6}") ==
        "w.yaml:1: workload.prompt_tokens.mean: not used beside median; give median and p99, or "
        "mean and std");
  CHECK(error_with_prompts("{distribution: lognormal, mean: 5}") ==
        "w.yaml:1: workload.prompt_tokens.std: missing; distribution lognormal needs median and "
        "p99, or mean and std");
}

TEST_CASE("a largest length below the median is warned of", "[core][config]") {
  const auto warnings = [](const std::string& prompt_tokens) {
    return workload_warnings(
        read_config("{num_requests: 2, arrivals: {rate: 1}, output_tokens: "
                    "{value: 1}, prompt_tokens: " +
                    prompt_tokens + "}"));
  };
  CHECK(warnings("{distribution: lognormal, median: 800, p99: 4000, max: 512}") ==
        std::vector<std::string>{
            "workload.prompt_tokens.max 512 is below the median, 800: more than half of the values "
            "become 512"});
  CHECK(warnings("{distribution: normal, mean: 90, std: 4, min: 100}") ==
        std::vector<std::string>{
            "workload.prompt_tokens.min 100 is above the median, 90: more than half of the values "
            "become 100"});
  // The median of this lognormal is 500 / sqrt(2), about 354.
  CHECK(warnings("{distribution: lognormal, mean: 500, std: 500, max: 400}").empty());
  CHECK(warnings("{distribution: lognormal, mean: 500, std: 500, max: 350}").size() == 1);
  CHECK(warnings("{distribution: uniform, min: 1, max: 5}").empty());
}

TEST_CASE("datasets mean what the options of vLLM's benchmark mean", "[core][config]") {
  const auto extremes = [](const std::string& dataset) {
    const Workload workload =
        make("{num_requests: 3000, arrivals: {rate: 1}, dataset: " + dataset + "}");
    std::int32_t low = INT32_MAX, high = 0, least = INT32_MAX, most = 0;
    for (const RequestSpec& request : workload.requests) {
      low = std::min(low, request.num_prompt_tokens);
      high = std::max(high, request.num_prompt_tokens);
      least = std::min(least, request.max_output_tokens);
      most = std::max(most, request.max_output_tokens);
    }
    return std::vector<std::int32_t>{low, high, least, most};
  };
  CHECK(extremes("{kind: random}") == std::vector<std::int32_t>{1024, 1024, 128, 128});
  // floor(100 * 0.75) to ceil(100 * 1.25), behind 64 shared tokens; floor and ceil of 5 * (1 -+ r).
  CHECK(extremes("{kind: random, input_len: 100, output_len: 5, range_ratio: 0.25, prefix_len: "
                 "64}") == std::vector<std::int32_t>{64 + 75, 64 + 125, 3, 7});
  CHECK(extremes("{kind: random, output_len: 1, range_ratio: 0.9}")[2] == 1);
  CHECK(extremes("{kind: sonnet}") == std::vector<std::int32_t>{550, 550, 150, 150});
  const Workload sonnet = make("{num_requests: 2, arrivals: {rate: 1}, dataset: {kind: sonnet}}");
  CHECK(sonnet.prompt_segments(RequestId{0})[0].num_tokens == 200);
  CHECK(sonnet.prompt_segments(RequestId{0})[0].content ==
        sonnet.prompt_segments(RequestId{1})[0].content);
  CHECK(error_in("{num_requests: 2, arrivals: {rate: 1}, dataset: {kind: sonnet, prefix_len: 550}}")
            .starts_with("w.yaml:1: workload.dataset.prefix_len: 550 is not below input_len 550"));
  CHECK(error_in("{num_requests: 2, arrivals: {rate: 1}, dataset: {kind: random}, prompt_tokens: "
                 "{value: 1}}")
            .starts_with("w.yaml:1: workload.prompt_tokens: not used with dataset random"));
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
  Answers answers("workload_config/mistakes.txt");
  add_errors(answers, "", error_in,
             {"num_requests: 4\nprompt_tokens:\n  valeu: 3\n", "num_request: 4\n",
              "num_requests: many", "num_requests: 0", "[1, 2]", "{trace: {file: [a]}}"});
  add_errors(answers, "arrivals", error_with_arrivals, {"{rate: -1}", "{process: poison}"});
  add_errors(answers, "prompt_tokens", error_with_prompts,
             {"{distribution: empirical, values: [3, 0]}"});
}

TEST_CASE("required keys", "[core][config]") {
  Answers answers("workload_config/required_keys.txt");
  add_errors(answers, "", error_in,
             {"arrivals: {rate: 1}\n"
              "prompt_tokens: {value: 1}\n",
              "{num_requests: 1, prompt_tokens: {value: 1}, output_tokens: {value: 1}}",
              "num_requests: 1\narrivals:\n  process: burst\nprompt_tokens: {value: 1}\n",
              "trace: {limit: 3}"});
  add_errors(answers, "arrivals", error_with_arrivals,
             {"{process: constant}", "{process: closed_loop}", "{process: burst, burst_size: 3}",
              "{process: steps}"});
  add_errors(answers, "prompt_tokens", error_with_prompts,
             {"{}", "{distribution: uniform, min: 4}", "{distribution: lognormal, median: 4}",
              "{distribution: empirical}"});
  add_errors(answers, "prefix", error_with_prefix,
             {"{kind: groups, num_groups: 3}", "{kind: tree, prefix_tokens: 3}"});
}

TEST_CASE("keys without a use", "[core][config]") {
  Answers answers("workload_config/unused_keys.txt");
  add_errors(answers, "", error_in,
             {"trace: a.csv\nnum_requests: 4\n", "trace: a.csv\nprompt_tokens:\n  value: 4\n",
              "trace: a.csv\noutput_tokens: {value: 4}\n", "trace: a.csv\nprefix: {kind: groups}\n",
              "{trace: {file: a.csv, format: azure, jitter: true}}",
              "{trace: {file: a.csv, rate_scale: 2}, arrivals: {rate: 1}}",
              "trace: a.csv\narrivals: {process: trace, rate: 3}\n"});
  add_errors(answers, "arrivals", error_with_arrivals,
             {"{process: burst, rate: 1}", "{rate: 1, burstiness: 2}",
              "{process: burst, burst_interval_s: 2}"});
  add_errors(answers, "prompt_tokens", error_with_prompts,
             {"{value: 3, p99: 7}", "{distribution: uniform, min: 1, max: 2, value: 3}"});
  add_errors(answers, "prefix", error_with_prefix,
             {"{prefix_tokens: 3}", "{kind: groups, num_groups: 2, prefix_tokens: 3, depth: 2}"});
}

TEST_CASE("combinations that cannot be", "[core][config]") {
  Answers answers("workload_config/combinations.txt");
  add_errors(
      answers, "", error_in,
      {"{num_requests: 4, arrivals: {rate: 1}, " + kLengths + ", priority: {weights: [1]}}"});
  add_errors(answers, "arrivals", error_with_arrivals,
             {"{process: steps, steps: []}", "{process: steps, steps: [0, 3, 2, 4]}",
              "{process: steps, steps: [0, 3, 4]}", "{process: trace}"});
  add_errors(
      answers, "prompt_tokens", error_with_prompts,
      {"{distribution: uniform, min: 9, max: 2}", "{distribution: lognormal, median: 9, p99: 9}",
       "{distribution: empirical, values: []}",
       "{distribution: empirical, values: [1, 2], weights: [1]}",
       "{distribution: empirical, values: [1, 2], weights: [0, 0]}"});
  add_errors(answers, "prefix", error_with_prefix,
             {"{kind: tree, depth: 64, branching: 2, prefix_tokens: 1}",
              "{kind: tree, depth: 11, branching: 1, prefix_tokens: 10000000}"});
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
