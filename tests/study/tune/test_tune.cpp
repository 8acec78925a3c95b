// SPDX-License-Identifier: Apache-2.0
// `metronome tune` on a machine whose best setting can be computed by hand.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/expected.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using metronome::Json;
using namespace metronome::testing;
namespace {

// A step takes 2 ms, and 10 us for each token: memory and attention cost next to nothing. Every
// request has 544 tokens to compute.
constexpr const char* kHardware = R"(linear:
  peak_flops: PEAK
  peak_bandwidth: 1.0e+18
  memory_bytes: 1000000000000
  matmul_efficiency: 1
  attention_efficiency: 1
  bandwidth_efficiency: 1
  launch_overhead_us: 2000
  kernel_overhead_us: 0
  host_gap_us: 0
)";
constexpr const char* kScenario = R"(
seed: 5
model: llama-3.2-1b
hardware: HARDWARE
engine: {max_num_seqs: 256, max_model_len: 4096}
scheduler: {policy: token_budget}
workload:
  num_requests: 300
  arrivals: {process: poisson, rate: 40}
  prompt_tokens: {distribution: fixed, value: 512}
  output_tokens: {distribution: fixed, value: 32}
slo: {ttft_ms: 100, itl_ms: 14}
)";

struct Place {
  ScratchFolder scratch;
  std::string scenario;
  std::string out = scratch.path() + "/out";

  Place() {
    std::string hardware = kHardware;
    // Of llama-3.2-1b, 973,078,528 parameters multiply every token.
    hardware.replace(hardware.find("PEAK"), 4, "1.946157056e+14");
    std::string text = kScenario;
    text.replace(text.find("HARDWARE"), 8, scratch.write("linear.yaml", hardware));
    scenario = scratch.write("case.yaml", text);
  }
  CommandResult tune(const std::string& options, const std::string& wrapper = {}) const {
    return run_metronome("tune '" + scenario + "' --out '" + out + "' " + options, wrapper);
  }
  // Whether a scenario of this text runs.
  void check_runs(const std::string& text) const {
    const std::string file = scratch.write("again.yaml", text);
    const CommandResult again =
        run_metronome("run '" + file + "' -q --out '" + scratch.path() + "/again'");
    INFO(text << again.err);
    CHECK(again.exit_code == 0);
  }
};

// Without the wrapping of lines.
std::string one_line_of(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

TEST_CASE("tune finds the known optimum of a linear machine", "[tune][cli]") {
  const Place place;
  const CommandResult result = place.tune(
      "--over scheduler.max_num_batched_tokens=256:2048:x2 --attainment 0.95 --seeds 1 --jobs 2 "
      "--json");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const Json json = Json::parse(result.out);
  CHECK(result.out == read_text_file(place.out + "/tune.json"));
  std::map<std::string, double> rates;
  for (const Json& setting : json["settings"]) {
    rates[setting["setting"].get<std::string>().substr(33)] =
        setting["highest_request_rate"].get<double>();
  }
  // 1024 tokens take 12.2 ms, 2048 take 22.5: more than 14. A smaller budget pays the 2 ms more
  // often: a step of 1024 tokens does 154 requests a second, of 512 132, of 256 103.
  CHECK(json["settings"][0]["setting"] == "scheduler.max_num_batched_tokens=1024");
  CHECK(rates["1024"] > 0.85 * 154);
  CHECK(rates["1024"] < 154 * 1.05);
  CHECK(rates["512"] > 0.85 * 132);
  CHECK(rates["512"] < 132 * 1.05);
  CHECK(rates["256"] > 0.85 * 103);
  CHECK(rates["256"] < 103 * 1.05);
  CHECK(rates["2048"] < rates["1024"]);
  const Json& best = json["settings"][0];
  CHECK(best["low"].get<double>() <= best["highest_request_rate"].get<double>() * 1.01);
  CHECK(best["high"].get<double>() >= best["highest_request_rate"].get<double>() * 0.98);
  CHECK(best["config"]["scheduler"]["max_num_batched_tokens"] == 1024);
  for (const Json& trial : best["trials"]) {
    if (trial["request_rate"] == best["highest_request_rate"]) {
      CHECK(trial["slo_attainment"].get<double>() >= 0.95);
      CHECK(trial["p99_itl_ms"].get<double>() < 14);
    }
  }
}

TEST_CASE("tune lets long answers fill the engine before it judges", "[tune][cli]") {
  const Place place;
  // 400 tokens take a second, and 51 requests at once make a gap of more than 2.5 ms. Fifty
  // requests in all never do that, whatever their rate.
  const CommandResult result = place.tune(
      "--set workload.num_requests=20 --set workload.prompt_tokens.value=1 "
      "--set workload.output_tokens.value=400 --set slo.ttft_ms=10 --set slo.itl_ms=2.5 --seeds 1 "
      "--json");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const Json setting = Json::parse(result.out)["settings"][0];
  CHECK_FALSE(setting["is_unbounded"].get<bool>());
  const double rate = setting["highest_request_rate"].get<double>();
  CHECK(rate > 10);
  CHECK(rate < 50 / (400 * 0.0023));
  CHECK(setting["low"].get<double>() > 0.0);
  CHECK(setting["trials"].front()["request_rate"].get<double>() < rate);
  CHECK(setting["trials"].back()["request_rate"].get<double>() > rate);
}

TEST_CASE("tune prints the winner as YAML and as flags, and leaves it as a scenario",
          "[tune][cli]") {
  const Place place;
  const std::string arguments = "--over scheduler.max_num_batched_tokens=256,1024 --seeds 1";
  const CommandResult result = place.tune(arguments);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "best: scheduler.max_num_batched_tokens=1024\n"));
  CHECK(contains(result.out, "  scheduler: {policy: token_budget, "));
  CHECK(contains(result.out, "max_num_batched_tokens: 1024"));
  CHECK(contains(result.out, "vLLM "));
  CHECK(contains(result.out, "--max-num-batched-tokens 1024"));
  CHECK(contains(result.out, "SGLang "));
  const Json answer = Json::parse(read_text_file(place.out + "/tune.json")).at("answer");
  CHECK(contains(answer.at("question").string(), "Which of 2 settings carries the highest load"));
  CHECK(answer.at("text").string() == "best: scheduler.max_num_batched_tokens=1024");
  CHECK(contains(answer.at("flags")[0].at("flags").string(), "--max-num-batched-tokens 1024"));
  const std::string page = read_text_file(place.out + "/report.html");
  CHECK(contains(page, "<h2>Answer</h2>\n<h3>Which of 2 settings carries the highest load"));
  CHECK(contains(page, "<pre>--max-num-batched-tokens 1024"));
  // The same folder gives the trials to a later search, which finds the same.
  const CommandResult later = place.tune(arguments + " --jobs 1");
  const auto without_work = [](std::string text) {
    const std::size_t end = text.find(" requests simulated in ");
    const std::size_t begin = text.rfind('\n', end);
    return text.erase(begin, text.find('\n', end) - begin);
  };
  CHECK(without_work(later.out) == without_work(result.out));
  CHECK(contains(later.out, "\n0 requests simulated in 0 trials, "));
  CHECK(contains(later.out, " trials reused from the folder of results\n"));
  std::filesystem::remove_all(place.out);
  CHECK(place.tune(arguments + " --jobs 1").out == result.out);
  place.check_runs(read_text_file(place.out + "/best.yaml"));
}

TEST_CASE("the winner's YAML has its formats, memory and drafts, and can be read", "[tune][cli]") {
  const Place place;
  const CommandResult result = place.tune(
      "--over quantization=none,fp8 --set cost_model.gpu_memory_utilization=0.8 "
      "--set speculative.method=ngram --set scheduler.policy=vllm --load 2 --seeds 1");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const std::size_t begin = result.out.find("as YAML:\n") + 9;
  const std::size_t end = result.out.find("\n\n", begin);
  const std::string yaml = result.out.substr(begin, end - begin);
  CHECK(yaml.starts_with("  quantization: "));
  CHECK(contains(yaml, "gpu_memory_utilization: 0.8"));
  std::string pasted;
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 2) pasted += line.substr(2) + "\n";
  }
  pasted +=
      "model: llama-3.2-1b\nhardware: h100-sxm\nworkload: {num_requests: 3, arrivals: {rate: 5}, "
      "prompt_tokens: {value: 10}, output_tokens: {value: 3}}\n";
  place.check_runs(pasted);
}

TEST_CASE("tune names the points that are no valid scenario, and compares the others",
          "[tune][cli]") {
  const Place place;
  const CommandResult result =
      place.tune("--load 40 --seeds 1 --over scheduler.max_num_batched_tokens=0,-1,512,none");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "settings    1 (3 points are not valid scenarios), each with "));
  CHECK(contains(result.err, "metronome: warning: 3 points are not valid scenarios:\n"));
  for (const char* value : {"0", "-1", "none"}) {
    const std::string point =
        "at the point scheduler.max_num_batched_tokens=" + std::string(value) + ": ";
    const std::size_t at = result.err.find(point);
    CHECK(at != std::string::npos);
    CHECK(result.err.find(point, at + 1) == std::string::npos);
  }
  const Json json = Json::parse(read_text_file(place.out + "/tune.json"));
  CHECK(json["refused_points"].size() == 3);
  REQUIRE(run_metronome("report '" + place.out + "'").exit_code == 0);
  CHECK(contains(read_text_file(place.out + "/report.html"),
                 "Not a valid scenario, and not compared: --over scheduler.max_num_batched"));
}

TEST_CASE("a server's command of a model with states is tuned as it stands", "[tune][cli]") {
  // llama.cpp's policy caches no states; nobody has to say so.
  const ScratchFolder scratch;
  const CommandResult result = run_metronome(
      "run --command 'llama-server -m Qwen3.5-9B-Q8_0.gguf -c 32768 -np 4' --gpu h100 --rate 0.3 "
      "--chat --requests 5 --out '" +
      scratch.path() + "/out'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const Json json = Json::parse(read_text_file(scratch.path() + "/out/result.json"));
  CHECK(json["config"]["kv_cache"]["enable_prefix_caching"] == false);
}

TEST_CASE("tune leaves out settings that do not start, and says why", "[tune][cli]") {
  // A small GPU: a step of 16,384 tokens leaves no memory for the KV cache.
  const ScratchFolder scratch;
  const std::string out = scratch.path() + "/out";
  const std::string command =
      "tune --model Qwen/Qwen3-4B --engine sglang --gpu rtx-4090 --rate 0.1 --chat --ttft 10000 "
      "--itl 1000 "
      "--requests 40 "
      "--out '" +
      out + "' --over scheduler.chunked_prefill_size=";
  const CommandResult result = run_metronome(command + "512,1024,65536");
  INFO(result.err << result.out);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(one_line_of(result.err), "warning: 1 point is not a valid scenario"));
  CHECK(contains(result.err, "scheduler.chunked_prefill_size=65536: "));
  CHECK(contains(result.out, "best: scheduler.chunked_prefill_size="));
  const Json json = Json::parse(read_text_file(out + "/tune.json"));
  CHECK(json["settings"].size() == 2);
  CHECK(json["refused_points"].size() == 1);
  // If none starts, the first one's error ends the command.
  const CommandResult none = run_metronome(command + "65536");
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "does not fit"));
}

TEST_CASE("advice at a load names no setting of the search as a remedy", "[tune][cli]") {
  const Place place;
  const std::string base = "--load 400 --seeds 1 --over scheduler.max_num_batched_tokens=";
  const CommandResult result = place.tune(base + "256,512,1024,2048 --set slo.itl_ms=1000");
  INFO(result.out);
  REQUIRE(result.exit_code == 1);
  const std::string text = one_line_of(result.out);
  CHECK(contains(text, " of its requests within it. "));
  // All but the largest have a larger one beside them.
  if (!contains(text, "The nearest is scheduler.max_num_batched_tokens=2048")) {
    CHECK_FALSE(contains(text, "larger token budget may help"));
    CHECK_FALSE(contains(text, "larger token budget, a faster"));
  }
  // A rate keeps its digits.
  CHECK(contains(place.tune("--load 0.0049 --seeds 1").out, " at 0.0049 per second"));
}

TEST_CASE("tune says what it cannot do", "[tune][cli]") {
  const Place place;
  Answers answers("tune/errors.txt");
  for (const char* options :
       {"--set slo.ttft_ms=null --set slo.itl_ms=null", "--slo nobody", "--slo none",
        "--slo llama2-70b-serve", "--over workload.arrivals.rate=1,2",
        "--set workload.arrivals.process=closed_loop --set workload.arrivals.concurrency=4",
        "--set model=/nope", "--load 0", "--load 1e-12", "--minimise cost",
        "--load 8 --minimise itl", "--time-limit 0", "--attainment 1", "--attainment 0",
        "--attainment 99", "--attainment 101", "--seeds 0"}) {
    const CommandResult result = place.tune(options);
    INFO(options);
    CHECK(result.exit_code == 2);
    answers.add(options, with_name_for(place.scratch.path(), "FOLDER", result.err));
  }
  for (const char* section : {"over: {seed: [1, 2]}", "points: [{seed: 1}, {seed: 2}]"}) {
    const Place own;
    std::ofstream(own.scenario, std::ios::app) << "sweep: {" << section << "}\n";
    const CommandResult result = own.tune("");
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, std::string("case.yaml:13: sweep.") +
                                   (section[0] == 'o' ? "over.seed" : "points") +
                                   ": 'seed' is not a setting of an engine"));
    CHECK_FALSE(contains(result.err, "--over"));
  }
  // A step of one token takes 2.01 ms.
  const CommandResult never = place.tune("--set slo.itl_ms=1 --seeds 1");
  CHECK(never.exit_code == 1);
  CHECK(contains(never.err, "no setting meets the SLO at any load"));
  CHECK(contains(one_line_of(never.out), "Even a step of one token takes 2"));
  // The share at the lowest load, what breaks there, and the limit that holds.
  CHECK(contains(never.out, "limits that hold there"));
  CHECK(contains(never.out, "TTFT 100 ms, every ITL 2"));
  CHECK_FALSE(contains(never.out, "highest req/s"));
  const Json never_json = Json::parse(read_text_file(place.out + "/tune.json"))["settings"][0];
  const double held = never_json["limits_at_lowest_load"]["itl_ms"].get<double>();
  CHECK(held > 2.0);
  CHECK(held < 40.0);
  // With that limit it is within the SLO at the lowest load.
  const CommandResult kept =
      place.tune("--set slo.itl_ms=" + std::to_string(held) + " --seeds 1 --json");
  CHECK(Json::parse(kept.out)["settings"][0]["highest_request_rate"].get<double>() > 0);
  // Limits are said as they were given.
  CHECK(contains(place.tune("--set slo.ttft_ms=0.01 --set slo.itl_ms=62.5 --seeds 1").out,
                 "TTFT 0.01 ms, every ITL 62.5 ms, of 99.0 % of requests"));
}

TEST_CASE("tune says why the SLO is met only near idle, and what would help", "[tune][cli]") {
  const Place place;
  // A full step of 2048 tokens takes 22.5 ms and some for attention. Each prompt has one, which
  // breaks the limit wherever two requests meet.
  const std::string base =
      "--set workload.prompt_tokens.value=2048 --set workload.num_requests=100 "
      "--set slo.ttft_ms=500 --seeds 1 ";
  const CommandResult result = place.tune(base + "--set scheduler.max_num_batched_tokens=2048");
  INFO(result.out);
  CHECK(result.exit_code == 1);
  CHECK(contains(result.err, "no setting meets the SLO under load"));
  CHECK(contains(result.out, "ITL: full step  SLO met only near idle"));
  const std::string text = one_line_of(result.out);
  CHECK(contains(text, "A full step of 2,048 tokens takes 2"));
  CHECK(contains(text, " ms alone, more than the ITL limit of 14 ms. A budget of at most 1,0"));
  // 2 ms, and 10 us for each of 1200 tokens, less attention to those before.
  const Json setting = Json::parse(read_text_file(place.out + "/tune.json"))["settings"][0];
  CHECK(setting["full_step_ms"].get<double>() > 22.48);
  CHECK(setting["full_step_ms"].get<double>() < 24.5);
  CHECK(setting["largest_budget_within_itl"].get<int>() < 1200);
  CHECK(setting["largest_budget_within_itl"].get<int>() > 1050);
  CHECK_FALSE(contains(result.out, "vLLM "));
  CHECK(place.tune(base + "--set scheduler.max_num_batched_tokens=512").exit_code == 0);
}

TEST_CASE("tune prints flags with which the engine starts", "[tune][cli]") {
  const Place place;
  // 2,000 blocks hold 32,000 tokens; the longest request has 544.
  const std::string base = "--set scheduler.max_num_batched_tokens=512 --seeds 1 ";
  const CommandResult result =
      place.tune(base + "--set kv_cache.num_blocks=2000 --set engine.max_model_len=131072");
  INFO(result.out);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "--max-model-len 768 "));
  CHECK(contains(result.out, "--context-length 768 "));
  CHECK(contains(result.out, "131,072"));
  CHECK(
      contains(place.tune(base + "--set engine.max_model_len=4096").out, "--max-model-len 4096 "));
}

TEST_CASE("tune finds the best setting at a load", "[tune][cli]") {
  const Place place;
  const auto best_of = [&place](const std::string& options, int exit_code = 0) {
    const CommandResult result = place.tune(options + " --json");
    INFO(options);
    INFO(result.err);
    REQUIRE(result.exit_code == exit_code);
    return Json::parse(result.out)["settings"];
  };
  const std::string budgets = "--load 40 --over scheduler.max_num_batched_tokens=256,512,1024 ";
  // A smaller step is a shorter gap; a larger one answers a prompt of 512 tokens at once.
  const Json steady = best_of(budgets + "--minimise p99_itl");
  CHECK(steady[0]["setting"] == "scheduler.max_num_batched_tokens=256");
  CHECK(steady[0]["is_within_slo"] == true);
  CHECK(steady[0]["trial"]["p99_itl_ms"].get<double>() <
        steady[1]["trial"]["p99_itl_ms"].get<double>());
  const Json fast = best_of(budgets + "--minimise ttft");
  CHECK(fast[0]["setting"] == "scheduler.max_num_batched_tokens=1024");
  // 32 output tokens for each of 40 requests a second.
  CHECK(fast[0]["trial"]["output_throughput"].get<double>() == Approx(1280).epsilon(0.1));

  const Json cheap = best_of(
      "--load 40 --minimise cost --set scheduler.max_num_batched_tokens=512 "
      "--over price_per_gpu_hour=6,4,5");
  CHECK(cheap[0]["setting"] == "price_per_gpu_hour=4");
  const Json& trial = cheap[0]["trial"];
  CHECK(trial["cost_per_million_output_tokens"].get<double>() ==
        Approx(4e6 / 3600 / trial["output_throughput"].get<double>()));
  CHECK(trial["output_tokens_per_s_per_gpu"] == trial["output_throughput"]);
  // A budget of 256 does 103 requests a second, of 1024 154.
  const Json loaded =
      best_of("--load 130 --attainment 0.9 --over scheduler.max_num_batched_tokens=256,1024");
  CHECK(loaded[0]["setting"] == "scheduler.max_num_batched_tokens=1024");
  CHECK(loaded[1]["is_within_slo"] == false);
  CHECK(loaded[1]["limit"] == "TTFT: throughput");
  CHECK(best_of("--load 500", 1)[0]["is_within_slo"] == false);
}

TEST_CASE("a time limit ends tune with what it has found, and a later search goes on",
          "[tune][cli]") {
  const Place place;
  const CommandResult cut = place.tune(
      "--seeds 1 --time-limit 0.000001 --json "
      "--set scheduler.max_num_batched_tokens=512");
  CHECK(Json::parse(cut.out)["is_cut_short"] == true);
  CHECK(Json::parse(cut.out)["num_trials"] == 0);
  // Nothing is known: a rate of 0 would say that it carries none.
  CHECK(Json::parse(cut.out)["settings"][0]["highest_request_rate"].is_null());
  CHECK(run_metronome("report '" + place.out + "'").exit_code == 2);
  const CommandResult whole = place.tune(
      "--seeds 1 --time-limit 1000 --json "
      "--set scheduler.max_num_batched_tokens=512");
  REQUIRE(whole.exit_code == 0);
  CHECK(Json::parse(whole.out)["is_cut_short"] == false);
}

TEST_CASE("a signal ends tune with what it has found, and a later search goes on", "[tune][cli]") {
  const Place place;
  constexpr const char* kSearch = "--seeds 2 --jobs 2 --json --over engine.max_num_seqs=64,128,256";
  const Json whole = Json::parse(place.tune(kSearch).out);
  fs::remove_all(place.out);
  // Later and later, until at least one trial has ended before the signal.
  for (int hundredths = 5; !fs::exists(place.out); hundredths += 5) {
    const CommandResult cut = place.tune(kSearch, interrupted_by("TERM", hundredths));
    INFO(cut.err);
    REQUIRE(cut.exit_code == 143);
    if (!fs::exists(place.out)) {
      CHECK(contains(cut.err, "interrupted, no results written\n"));
      continue;
    }
    CHECK(contains(cut.err, "interrupted; the trials so far are in "));
    const Json json = Json::parse(cut.out);
    CHECK(json["is_cut_short"] == true);
    const int num_trials = json["num_trials"].get<int>();
    CHECK(num_trials > 0);
    // A report marks the settings that are not finished.
    REQUIRE(run_metronome("report '" + place.out + "'").exit_code == 0);
    const std::string page = read_text_file(place.out + "/report.html");
    CHECK(contains(page, "engine.max_num_seqs=64 (not finished) at "));
    CHECK(contains(page, "The search was ended early."));
    CHECK(num_trials < whole["num_trials"].get<int>());
    const Json again = Json::parse(place.tune(kSearch).out);
    CHECK(again["num_trials_reused"] == json["num_trials"]);
    CHECK(again["settings"] == whole["settings"]);
    CHECK(again["is_cut_short"] == false);
  }
}

TEST_CASE("variants that differ only in their names are one candidate of tune", "[tune][cli]") {
  const Place place;
  std::ofstream(place.scenario, std::ios::app) << "variants: [{name: a}, {name: b}]\n";
  const CommandResult result =
      place.tune("--seeds 1 --json --set scheduler.max_num_batched_tokens=512");
  REQUIRE(result.exit_code == 0);
  const Json json = Json::parse(result.out);
  REQUIRE(json["settings"].size() == 1);
  CHECK(json["settings"][0]["setting"] == "a, b");
}

}  // namespace TEST_FILE
