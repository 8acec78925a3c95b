// SPDX-License-Identifier: Apache-2.0
// Looks at a server become windows, goals, findings, the log's last steps, restarts.
#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <sstream>
#include <string>

#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/config/config_node.h"
#include "engines/log/log_dialect.h"
#include "engines/metrics/prometheus_text.h"
#include "study/watch/load_window.h"
#include "study/watch/log_tail.h"
#include "study/watch/restart_command.h"
#include "study/watch/watch_report.h"
#include "study/watch/watched_goals.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/places.h"

namespace metronome::testing::TEST_FILE {
namespace {

// A page of one engine: gaps up to 0.1 s, up to 0.5 s and all; the same of first tokens.
struct Page {
  int running = 0, waiting = 0;
  double cache = 0;
  int output = 0, prompt = 0;
  int gaps[3] = {};
  int firsts[3] = {};
  double started = 1;
};

std::string text_of(const Page& page, int engine = 0) {
  const std::string label = fmt::format("engine=\"{}\",model_name=\"m\"", engine);
  const auto buckets = [&](const char* name, const int(&counts)[3]) {
    return fmt::format(
        "vllm:{0}_bucket{{{1},le=\"0.1\"}} {2}\nvllm:{0}_bucket{{{1},le=\"0.5\"}} {3}\n"
        "vllm:{0}_bucket{{{1},le=\"+Inf\"}} {4}\nvllm:{0}_sum{{{1}}} {2}\n",
        name, label, counts[0], counts[1], counts[2]);
  };
  return fmt::format(
             "process_start_time_seconds {}\nvllm:num_requests_running{{{}}} {}\n"
             "vllm:num_requests_waiting{{{}}} {}\nvllm:kv_cache_usage_perc{{{}}} {}\n"
             "vllm:generation_tokens_total{{{}}} {}\nvllm:prompt_tokens_total{{{}}} {}\n",
             page.started, label, page.running, label, page.waiting, label, page.cache, label,
             page.output, label, page.prompt) +
         buckets("inter_token_latency_seconds", page.gaps) +
         buckets("time_to_first_token_seconds", page.firsts);
}

Look look_at(double at_s, const std::string& text) {
  std::string why;
  auto metrics = read_server_metrics(text, why);
  REQUIRE(metrics);
  return {at_s, fmt::format("10:00:{:02}", static_cast<int>(at_s)), std::move(*metrics)};
}

GoalState state_of(const SloConfig& slo, const LoadWindow* window, const LogFigures* log) {
  const std::vector<WatchedGoal> goals = judge_goals(slo, window, log);
  REQUIRE(goals.size() == 1);
  return goals.front().state;
}

std::string step(int number, int prompt_tokens, int decodes, double ms) {
  return fmt::format(
      "(EngineCore pid=9) INFO 07-01 12:00:03 [core.py:1] Iteration({}): {} context requests, {} "
      "context tokens, {} generation requests, {} generation tokens, iteration elapsed time: "
      "{:.2f} ms\n",
      number, prompt_tokens > 0 ? 1 : 0, prompt_tokens, decodes, decodes, ms);
}

std::string names_of(const std::vector<Cause>& causes) {
  std::string names;
  for (const Cause& cause : causes) names += std::string(cause.name) + " ";
  return names;
}

}  // namespace

TEST_CASE("a window has what came between two looks", "[watch]") {
  const Look first = look_at(10, text_of({3, 0, 0.5, 100, 1'000, {10, 10, 10}, {1, 1, 1}}));
  const Look last = look_at(20, text_of({4, 1, 0.6, 300, 1'500, {10, 20, 30}, {1, 3, 3}}));
  const LoadWindow window = window_between(first, last);
  CHECK(window.seconds == 10);
  CHECK_FALSE(window.has_restarted);
  CHECK(window.rate(ServerFigure::OutputTokens) == 20);
  CHECK(window.rate(ServerFigure::PromptTokens) == 50);
  CHECK_FALSE(window.rate(ServerFigure::Preempted));
  CHECK(window.all.number(ServerFigure::Running) == 4);
  CHECK(window.all.histogram(ServerFigure::Itl).counts == std::vector<double>{0, 10, 20});
  CHECK_FALSE(window.hit_rate());
}

TEST_CASE("after a restart a window has the counts since then", "[watch]") {
  const Look first = look_at(10, text_of({3, 0, 0.5, 100, 0, {10, 10, 10}}));
  const LoadWindow fallen =
      window_between(first, look_at(20, text_of({1, 0, 0, 40, 0, {2, 2, 2}})));
  CHECK(fallen.has_restarted);
  CHECK(fallen.rate(ServerFigure::OutputTokens) == 4);
  Page page = {3, 0, 0.5, 300, 0, {10, 10, 10}};
  page.started = 2;
  CHECK(window_between(first, look_at(20, text_of(page))).has_restarted);
}

TEST_CASE("a goal is decided where no bound of a bucket is in its way", "[watch]") {
  // 100 gaps: 90 up to 100 ms, 9 up to 500 ms, one longer; 10 first tokens up to 500 ms.
  const Look first = look_at(0, text_of({}));
  const LoadWindow window =
      window_between(first, look_at(10, text_of({1, 0, 0, 110, 0, {90, 99, 100}, {0, 10, 10}})));
  const auto itl = [&](double limit, std::optional<double> share) {
    SloConfig slo;
    slo.itl_ms = limit;
    slo.itl_share = share;
    return state_of(slo, &window, nullptr);
  };
  CHECK(itl(100, 0.9) == GoalState::Kept);
  CHECK(itl(100, 0.99) == GoalState::Broken);
  CHECK(itl(500, 0.99) == GoalState::Kept);
  CHECK(itl(300, 0.99) == GoalState::Undecided);
  CHECK(itl(500, std::nullopt) == GoalState::Broken);  // every gap
  CHECK(itl(501, std::nullopt) == GoalState::Undecided);
  SloConfig ttft;
  ttft.ttft_ms = 500;
  CHECK(state_of(ttft, &window, nullptr) == GoalState::Kept);
  ttft.ttft_ms = 100;
  CHECK(state_of(ttft, &window, nullptr) == GoalState::Broken);
  SloConfig rate;
  rate.output_throughput = 11;
  CHECK(state_of(rate, &window, nullptr) == GoalState::Kept);
  rate.output_throughput = 12;
  CHECK(state_of(rate, &window, nullptr) == GoalState::Broken);
  CHECK(state_of(ttft, nullptr, nullptr) == GoalState::Unknown);
  const LoadWindow idle = window_between(first, look_at(10, text_of({})));
  CHECK(state_of(ttft, &idle, nullptr) == GoalState::Unknown);
  CHECK(state_of(rate, &idle, nullptr) == GoalState::Unknown);
}

TEST_CASE("the steps of a log decide what a histogram does not", "[watch]") {
  LogTail tail("case.log", nullptr);
  std::string text;
  for (int i = 0; i < 98; ++i) text += step(i, 0, 1, 20);
  text += step(98, 1'000, 1, 220) + step(99, 0, 1, 20);
  tail.add(text);
  std::string why;
  const auto log = tail.latest(nullptr, 0, why);
  REQUIRE(log);
  const LogFigures figures = figures_of(*log);
  CHECK(figures.num_steps == 100);
  CHECK(figures.decode_step_ms == 20);
  CHECK(figures.prompt_token_ms == Approx(0.2));           // (220 - 20) / 1,000
  CHECK(figures.rate_during_prefill == Approx(1 / 0.22));  // one token in the one step
  CHECK(figures.itl.max_ms == Approx(220));
  SloConfig slo;
  slo.itl_ms = 200;
  CHECK(state_of(slo, nullptr, &figures) == GoalState::Broken);
  slo.itl_ms = 221;
  CHECK(state_of(slo, nullptr, &figures) == GoalState::Kept);
  SloConfig rate;
  rate.decode_rate = 5;
  CHECK(state_of(rate, nullptr, &figures) == GoalState::Broken);
  // Lines of the last minute alone.
  const std::int64_t next = tail.next_line();
  CHECK_FALSE(tail.latest(nullptr, next, why));
  tail.add(step(100, 0, 2, 30).substr(0, 50));
  CHECK_FALSE(tail.latest(nullptr, next, why));
  tail.add(step(100, 0, 2, 30).substr(50));
  CHECK(tail.latest(nullptr, next, why)->observations.size() == 1);
}

TEST_CASE("a log that goes on keeps its settings and its last steps", "[watch]") {
  LogTail tail("case.log", nullptr);
  tail.add("INFO non-default args: {'model': 'a', 'max_num_seqs': 7}\n");
  for (int i = 0; i < 30'000; ++i) tail.add(step(i, 0, 1, 20));
  std::string why;
  auto log = tail.latest(nullptr, 0, why);
  REQUIRE(log);
  CHECK(log->settings.at("max_num_seqs") == "7");
  CHECK(log->observations.size() < 28'000);
  CHECK(log->observations.back().number == 29'999);
  // A long line, and bytes that are no text.
  tail.add(std::string(3 << 20, 'x'));
  tail.add(std::string("yz\n\0\xff\n", 6));
  CHECK(tail.num_too_long() == 1);
  CHECK(tail.next_line() == 30'004);
  // The server starts again with other settings: those before it are another server's.
  tail.add("INFO non-default args: {'model': 'a', 'max_num_seqs': 9}\n" + step(1, 0, 1, 20));
  log = tail.latest(nullptr, 0, why);
  REQUIRE(log);
  CHECK(log->settings.at("max_num_seqs") == "9");
  CHECK(log->observations.size() == 1);
  // Lines of another engine.
  tail.add(
      "[2026-01-02 12:00:00] Decode batch, #running-req: 1, #token: 2163, token usage: 0.06, cuda "
      "graph: True, gen throughput (token/s): 44.21, #queue-req: 0\n");
  CHECK_FALSE(tail.latest(nullptr, 0, why));
  CHECK(contains(why, "has lines of"));
  CHECK(tail.latest(find_log_dialect("vllm"), 0, why));
}

TEST_CASE("looks show a queue, a full cache and idle engines", "[watch]") {
  const auto looks = [](std::vector<Page> pages) {
    std::vector<Look> made;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      made.push_back(look_at(10.0 * static_cast<double>(i), text_of(pages[i])));
    }
    return made;
  };
  CHECK(find_in_looks(looks({{1, 0, 0.1}, {2, 0, 0.2}, {1, 0, 0.1}}), nullptr).empty());
  CHECK(find_in_looks(looks({{1, 0, 0.1}}), nullptr).empty());
  const auto queue = looks({{4, 0, 0.1}, {4, 9, 0.2}, {4, 20, 0.2}});
  const std::vector<Cause> unknown = find_in_looks(queue, nullptr);
  CHECK(names_of(unknown) == "queue ");
  CHECK(contains(unknown[0].text, "10:00:10 to 10:00:20: 9 to 20 requests wait while 4 requests "));
  CHECK(contains(unknown[0].text, "a limit of running requests may hold them"));
  // The log says the limit.
  std::istringstream in("INFO non-default args: {'max_num_seqs': 4}\n" + step(1, 0, 1, 20));
  const EngineLog log = read_engine_log(in, "case.log");
  CHECK(names_of(find_in_looks(queue, &log)) == "slots ");
  // One of the looks came between an end and the next admission.
  CHECK(names_of(find_in_looks(looks({{4, 0}, {3, 9}, {4, 20}, {4, 20}}), &log)) == "slots ");
  std::vector<Cause> causes = unknown;
  add_causes(find_in_looks(queue, &log), causes);
  CHECK(names_of(causes) == "slots ");
  CHECK(names_of(find_in_looks(looks({{4, 0, 0.1}, {4, 9, 0.99}}), nullptr)) == "full ");
  const std::vector<Look> ranks = {look_at(0, text_of({}) + text_of({}, 1)),
                                   look_at(10, text_of({40, 30, 0.3}) + text_of({2, 0, 0.1}, 1))};
  const std::vector<Cause> uneven = find_in_looks(ranks, nullptr);
  CHECK(contains(names_of(uneven), "ranks"));
  CHECK(contains(uneven.back().text, "Engine 0, 10:00:10: 30 requests wait and 40 run"));
}

TEST_CASE("a restart has all flags of the log, with the changes", "[watch]") {
  std::istringstream in(
      "INFO non-default args: {'model_tag': 'Qwen/Qwen3-8B', 'host': '0.0.0.0', 'port': 8123, "
      "'model': 'Qwen/Qwen3-8B', 'served_model_name': ['a', 'b c'], 'enable_prefix_caching': "
      "False, 'enforce_eager': True, 'max_num_batched_tokens': 8192, 'max_num_seqs': 64, "
      "'speculative_config': {'method': 'ngram', 'x': True}, "
      "'hf_overrides': {'a': 'it: True', 'b': [True, None]}, 'api_key': ['secret']}\n" +
      step(1, 0, 1, 20));
  const EngineLog log = read_engine_log(in, "case.log");
  FlagChanges changes;
  changes.changed = {{"--max-num-batched-tokens 8192", "--max-num-batched-tokens 256"}};
  changes.added = {"--async-scheduling"};
  changes.removed = {"--no-enable-prefix-caching"};
  const RestartCommand command = restart_command(log, changes);
  CHECK(command.notes == std::vector<std::string>{"The command lacks --api-key: keep yours."});
  CHECK_FALSE(contains(command.text, "secret"));
  CHECK(contains(command.text, " --hf-overrides '{\"a\": \"it: True\", \"b\": [true, null]}'"));
  CHECK(command.text.starts_with("vllm serve Qwen/Qwen3-8B "));
  for (const char* flag :
       {" --host 0.0.0.0", " --port 8123", " --served-model-name a 'b c'", " --enforce-eager",
        " --max-num-batched-tokens 256", " --max-num-seqs 64", " --async-scheduling",
        " --speculative-config '{\"method\": \"ngram\", \"x\": true}'"}) {
    INFO(command.text << flag);
    CHECK(contains(command.text + " ", std::string(flag) + " "));
  }
  CHECK_FALSE(contains(command.text, "8192"));
  CHECK_FALSE(contains(command.text, "prefix-caching"));
}

TEST_CASE("a report is text, a line, JSON and metrics", "[watch]") {
  WatchReport report;
  report.server = "http://a\"b\\c:1";
  report.clock = "10:00:20";
  report.engine = "vLLM";
  report.window = window_between(look_at(0, text_of({})),
                                 look_at(10, text_of({1, 0, 0, 110, 0, {90, 99, 100}, {0, 9, 9}})));
  SloConfig slo;
  slo.itl_ms = 100;
  slo.ttft_ms = 300;
  report.goals = judge_goals(slo, &*report.window, nullptr);
  report.causes = {{"queue", "Text.", 0.5}};
  report.advice = RestartAdvice{"It helps.", "--max-num-seqs 8", "Nothing", "vllm serve m", {}};
  const std::string text = report_text(report, 100);
  CHECK(contains(text, "broken: every gap within 100 ms; it is over 500 ms"));
  CHECK(contains(text, "undecided: the p99 TTFT within 300 ms; it is 496"));
  CHECK(contains(text, "vllm serve m\n"));
  CHECK(contains(report_line(report), "BROKEN every gap within 100 ms"));
  JsonText json;
  append_report(report, json);
  const Json read = Json::parse(json.view());
  CHECK(read.at("goals").at(0).at("state").string() == "broken");
  CHECK(read.at("goals").at(0).at("value").at("most").is_null());
  CHECK(read.at("advice").at("flags").string() == "--max-num-seqs 8");
  CHECK(read.at("window").at("itl_ms").at("count").get<double>() == 100);
  std::map<std::string, double> values;
  const MetricsRead metrics = read_metrics(report_metrics(report, 5), [&](const MetricSample& one) {
    CHECK(*one.label("server") == report.server);
    const std::string* goal = one.label("goal");
    values[std::string(one.name) + (goal == nullptr ? "" : " " + *goal)] = one.value;
  });
  CHECK(metrics.num_broken == 0);
  CHECK(values.at("metronome_advise_look_timestamp_seconds") == 5);
  CHECK(values.at("metronome_advise_goal_broken slo.itl_ms") == 1);
  CHECK(values.at("metronome_advise_goal_broken slo.ttft_ms") == 0);
  CHECK(values.at("metronome_advise_goal_decided slo.ttft_ms") == 0);
  CHECK(values.at("metronome_advise_goal_limit slo.ttft_ms") == 300);
  CHECK(values.at("metronome_advise_cause") == 0.5);
  CHECK(values.at("metronome_advise_flags_info") == 1);
}

TEST_CASE("the alert rules and the panel ask for metrics that are written", "[watch]") {
  const std::string rules = read_text_file(source_dir() + "/tools/prometheus/alerts.yaml");
  const std::string panel = read_text_file(source_dir() + "/tools/prometheus/grafana_panel.json");
  const ConfigNode file = parse_config_text(rules, "alerts.yaml");
  std::string asked;
  REQUIRE(file.find("groups") != nullptr);
  for (const ConfigNode& group : file.find("groups")->items) {
    for (const ConfigNode& rule : group.find("rules")->items) {
      asked += rule.find("expr")->scalar + "\n";
    }
  }
  CHECK(contains(asked, "metronome_advise_goal_broken"));
  const Json parsed = Json::parse(panel);
  for (const Json& target : parsed.at("targets")) asked += target.at("expr").string() + "\n";
  const std::vector<std::string_view> names = report_metric_names();
  for (std::size_t at = asked.find("metronome_"); at != std::string::npos;
       at = asked.find("metronome_", at + 1)) {
    const std::size_t end = asked.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at);
    const std::string name = asked.substr(at, end - at);
    INFO(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
  const std::string guide = read_text_file(source_dir() + "/docs/guide/advise.md");
  for (const std::string_view name : names) {
    INFO(name);
    CHECK(contains(guide, std::string(name)));
  }
}

}  // namespace metronome::testing::TEST_FILE
