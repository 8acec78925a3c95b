// SPDX-License-Identifier: Apache-2.0
// `metronome verify`: drift at equal work, promises, and what it refuses.
#include <string>

#include "core/base/json.h"
#include "study/verify/advice.h"
#include "study/verify/drift.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

struct Work {
  int context_requests, context_tokens, generation_requests;
  double ms;
};

// A vLLM log of a server with this budget; each iteration takes `factor` times as long.
std::string log_text(int budget, double factor, const std::vector<Work>& iterations) {
  std::string text =
      "(APIServer pid=1) INFO 11-28 16:15:32 [api_utils.py:286] non-default args: "
      "{'model': 'm', 'max_num_batched_tokens': " +
      std::to_string(budget) + ", 'max_num_seqs': 64}\n";
  int number = 0;
  for (const Work& work : iterations) {
    text += "(APIServer pid=1) INFO 11-28 16:17:19 [loggers.py:199] Engine 000: Iteration(" +
            std::to_string(number++) + "): " + std::to_string(work.context_requests) +
            " context requests, " + std::to_string(work.context_tokens) + " context tokens, " +
            std::to_string(work.generation_requests) + " generation requests, " +
            std::to_string(work.generation_requests) +
            " generation tokens, iteration elapsed time: " + std::to_string(factor * work.ms) +
            " ms, CPU KV cache usage: 0.4%\n";
  }
  return text;
}

// A prompt of 2,000 tokens at once, or in eight steps of 250.
const std::vector<Work> kBefore = {{1, 100, 0, 20}, {0, 0, 1, 10}, {0, 0, 1, 10}, {1, 2000, 1, 400},
                                   {0, 0, 2, 12},   {0, 0, 2, 12}, {0, 0, 2, 12}};
const std::vector<Work> kAfter = {{1, 100, 0, 20}, {0, 0, 1, 10},   {1, 250, 1, 50},
                                  {1, 250, 1, 50}, {1, 250, 1, 50}, {1, 250, 1, 50},
                                  {1, 250, 1, 50}, {1, 250, 1, 50}, {1, 250, 1, 50},
                                  {1, 250, 1, 50}, {0, 0, 2, 12},   {0, 0, 2, 12}};

struct Servers {
  ScratchFolder folder;
  std::string before, after;

  explicit Servers(double factor) {
    before = folder.write("before.log", log_text(2048, 1, kBefore));
    after = folder.write("after.log", log_text(251, factor, kAfter));
  }
  std::string command(const std::string& options) const {
    return "verify --before '" + before + "' --after '" + after + "' " + options;
  }
  Json json(const std::string& options, int exit_code) const {
    const CommandResult result = run_metronome(command(options + " --json"));
    INFO(result.err << result.out);
    REQUIRE(result.exit_code == exit_code);
    return Json::parse(result.out);
  }
};

const Json& figure_of(const Json& verified, std::string_view name) {
  for (std::size_t i = 0; i < verified.at("figures").size(); ++i) {
    const Json& row = verified.at("figures")[i];
    if (row.at("figure") == std::string(name)) return row;
  }
  throw std::runtime_error("no such figure");
}

// A short form of what `diagnose --json` prints of a change.
std::string advice_text(double longest_ms, const std::string& flag) {
  const auto trial = [](double longest) {
    const std::string ms = std::to_string(longest);
    return R"({"set": ["scheduler.max_num_batched_tokens=251"], "p50_itl_ms": 50, "p99_itl_ms": )" +
           ms + R"(, "max_itl_ms": )" + ms +
           R"(, "p50_ttft_ms": 100, "p99_ttft_ms": 200, "output_throughput": 9,
               "request_throughput": 2, "keeps_goal": true})";
  };
  return R"([{"label": "before.log", "what_if": {"obstacle": null,
             "goal": [{"figure": "max_itl_ms", "at_most": 60, "class": null}],
             "baseline": )" +
         trial(410) + R"(, "change": )" + trial(longest_ms) +
         R"(, "flags": [{"engine": "vLLM", "is_comparison": false, "add": [],
             "change": [{"from": "--max-num-batched-tokens 2048", "to": ")" +
         flag + R"("}]}]}}])";
}

}  // namespace

TEST_CASE("drift is the ratio of step times at equal work", "[cli][verify]") {
  const double factor = GENERATE(1.0, 1.5, 0.8);
  const Servers servers(factor);
  const StepDrift drift =
      step_drift(read_engine_log(servers.before), read_engine_log(servers.after));
  CHECK(drift.ratio == Approx(factor));
  CHECK(drift.num_compositions == 3);
  CHECK(drift.num_before == 6);
  CHECK(drift.num_after == 4);
  REQUIRE(drift.low.has_value());
  CHECK(*drift.low <= drift.ratio);
  CHECK(*drift.high >= drift.ratio);
  // 20 + 2 * 10 + 3 * 12 of 476 ms.
  CHECK(drift.share_before == Approx(76.0 / 476.0));
  const Json verified = servers.json("", 0);
  const Json& longest = figure_of(verified, "max_itl_ms");
  CHECK(longest.at("before").at("mean").get<double>() == Approx(400));
  CHECK(longest.at("after").at("mean").get<double>() == Approx(factor * 50));
  CHECK(longest.at("without_drift").at("mean").get<double>() == Approx(50).epsilon(1e-4));
  CHECK(verified.at("came_true").is_null());
  CHECK(verified.at("settings")[0] == std::string("--max-num-batched-tokens 2048 -> 251"));
}

TEST_CASE("logs without iterations of equal work have no drift", "[verify]") {
  ScratchFolder folder;
  const std::string before = folder.write("a.log", log_text(64, 1, {{1, 10, 0, 5}, {0, 0, 1, 4}}));
  const std::string after = folder.write("b.log", log_text(64, 1, {{1, 11, 0, 5}, {0, 0, 3, 4}}));
  CHECK(step_drift(read_engine_log(before), read_engine_log(after)).ratio == 1);
  const CommandResult result =
      run_metronome("verify --before '" + before + "' --after '" + after + "'");
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "No drift is taken out"));
  CHECK(contains(result.out, "The loads differ"));
}

TEST_CASE("promises are judged without the drift", "[cli][verify]") {
  const Servers servers(1.5);
  // Measured 75 ms, which is 50 ms without the drift.
  CHECK(servers.json("--promise max_itl_ms=45", 0).at("came_true") == true);
  CHECK(servers.json("--promise max_itl_ms=40", 3).at("came_true") == false);
  CHECK(servers.json("--promise max_itl_ms=48 --tolerance 0.01", 3).at("came_true") == false);
  CHECK(servers.json("--target-itl 60", 0).at("keeps_limit") == true);
  CHECK(servers.json("--target-itl 49", 3).at("keeps_limit") == false);
  const Json later = servers.json("--promise p99_ttft_ms=10", 3);
  CHECK(later.at("not_measured")[0] == std::string("p99_ttft_ms"));
}

TEST_CASE("the advice of a diagnosis is judged", "[cli][verify]") {
  const Servers servers(0.8);
  const std::string good =
      servers.folder.write("good.json", advice_text(51, "--max-num-batched-tokens 251"));
  const Json verified = servers.json("--advice '" + good + "'", 0);
  CHECK(verified.at("limit_ms") == 60.0);
  CHECK(figure_of(verified, "max_itl_ms").at("simulated_before").get<double>() == 410.0);
  const CommandResult text = run_metronome(servers.command("--advice '" + good + "'"));
  CHECK(contains(text.out, "The advice came true: 3 of 3 promised figures kept within 20 %."));
  const std::string bad =
      servers.folder.write("bad.json", advice_text(30, "--max-num-batched-tokens 251"));
  const CommandResult missed = run_metronome(servers.command("--advice '" + bad + "'"));
  CHECK(missed.exit_code == 3);
  CHECK(contains(missed.out, "NOT KEPT"));
  CHECK(contains(missed.out, "The advice did not come true"));
  const std::string other =
      servers.folder.write("other.json", advice_text(51, "--max-num-batched-tokens 128"));
  const CommandResult unfollowed = run_metronome(servers.command("--advice '" + other + "'"));
  CHECK(unfollowed.exit_code == 2);
  CHECK(contains(unfollowed.err,
                 "has --max-num-batched-tokens 251, but the advice is "
                 "--max-num-batched-tokens 128; allowed: "));
  CHECK(run_metronome(servers.command("--allow-differences --advice '" + other + "'")).exit_code ==
        0);
}

TEST_CASE("turns are means with their range", "[cli][verify]") {
  const Servers servers(1);
  const std::string slow = servers.folder.write("slow.log", log_text(251, 2, kAfter));
  const CommandResult result = run_metronome(
      servers.command("--before '" + servers.before + "' --after '" + slow + "' --json"));
  REQUIRE(result.exit_code == 0);
  const auto verified = Json::parse(result.out);
  CHECK(verified.at("drift").size() == 2);
  const Json& longest = figure_of(verified, "max_itl_ms");
  CHECK(longest.at("after").at("low").get<double>() == Approx(50));
  CHECK(longest.at("after").at("high").get<double>() == Approx(100));
  CHECK(longest.at("without_drift").at("mean").get<double>() == Approx(50).epsilon(1e-4));
  const CommandResult odd = run_metronome(servers.command("--before '" + servers.before + "'"));
  CHECK(odd.exit_code == 2);
  CHECK(contains(odd.err, "--after: got 1 turn, --before 2; allowed: as many of both"));
}

TEST_CASE("what is no advice is refused", "[cli][verify]") {
  const Servers servers(1);
  const auto refusal = [&](const std::string& text) {
    const std::string path = servers.folder.write("advice.json", text);
    const CommandResult result = run_metronome(servers.command("--advice '" + path + "'"));
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(contains(refusal("{}"), "is not the diagnosis of one run"));
  CHECK(contains(refusal("[]"), "is not the diagnosis of one run"));
  CHECK(contains(refusal(R"([{"what_if": null}])"), "advises no change"));
  CHECK(contains(refusal("no JSON"), "advice.json"));
  for (const char* promise : {"p99_itl_ms", "p99=3", "p99_itl_ms=x", "p99_itl_ms=-1"}) {
    const CommandResult result =
        run_metronome(servers.command(std::string("--promise ") + promise));
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "--promise: '" + std::string(promise) + "' is not valid"));
  }
  CHECK(run_metronome("verify --before '" + servers.before + "'").exit_code == 2);
}

}  // namespace metronome::testing::TEST_FILE
