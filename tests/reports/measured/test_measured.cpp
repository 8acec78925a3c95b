// SPDX-License-Identifier: Apache-2.0
// Results of benchmarks' clients. The files of tests/fixtures/results were written by the clients
// themselves, against `metronome serve` (guidellm 0.1: by its own classes), and then shortened.
// Their own summaries are the reference. Other texts follow the clients' code, with figures by
// hand.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/rng.h"
#include "reports/measured/measured_reader.h"
#include "reports/measured/measured_result.h"
#include "reports/terminal/client_findings.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

namespace fs = std::filesystem;

std::string fixture(const std::string& name) {
  return source_dir() + "/tests/fixtures/results/" + name;
}

Json fixture_json(const std::string& name) { return Json::parse(read_text_file(fixture(name))); }

double figure_of(const MeasuredRun& run, const std::string& key) {
  return measured_content(run).figures.number(key);
}

// The figures of a distribution against the client's own statistics.
void check_like_client(const MeasuredRun& run, const std::string& distribution, const Json& own,
                       double scale_ms,
                       std::initializer_list<std::pair<const char*, const char*>> statistics) {
  for (const auto& [statistic, key] : statistics) {
    INFO(distribution << ' ' << statistic);
    CHECK(figure_of(run, std::string(statistic) + "_" + distribution + "_ms") ==
          Approx(own.at(key).get<double>() * scale_ms).margin(1e-3));
  }
}

constexpr const char* kVllmTwoRequests =
    R"({"date": "20260101-000000", "endpoint_type": "openai", "backend": "openai",
  "model_id": "meta-llama/Llama-3.1-8B", "num_prompts": 3, "request_rate": 4.0,
  "max_concurrency": 8, "duration": 12.5, "completed": 2, "failed": 1,
  "input_lens": [100, 200, 300],
  "output_lens": [3, 2, 0], "ttfts": [0.25, 0.5, 0.0], "itls": [[0.01, 0.02], [0.04], []],
  "latencies": [0.28, 0.55, 0.0], "start_times": [101.0, 100.0, 102.0],
  "queue_times": [0.0, 0.0, 0.0], "generated_texts": ["a", "b", ""],
  "errors": ["", "", "Bad Gateway\nTraceback"]})";

constexpr const char* kVllmFigures =
    R"({"endpoint_type": "vllm", "backend": "vllm", "model_id": "m", "num_prompts": 100,
  "request_rate": "inf", "burstiness": 1.0, "max_concurrency": null, "duration": 10.0,
  "completed": 99, "failed": 1, "total_input_tokens": 9900, "total_output_tokens": 1980,
  "request_throughput": 9.9, "output_throughput": 198.0, "total_token_throughput": 1188.0,
  "mean_ttft_ms": 20.5, "median_ttft_ms": 19.0, "std_ttft_ms": 2.0, "p99_ttft_ms": 40.0,
  "mean_itl_ms": 8.0, "median_itl_ms": 7.5, "p99_itl_ms": 12.0})";

std::string sglang_line(const std::string& rate, double ttft) {
  return R"({"tag": null, "backend": "sglang", "dataset_name": "random", "request_rate": )" + rate +
         R"(, "max_concurrency": 4, "duration": 2.0, "completed": 2, "total_input_tokens": 30,
  "mean_e2e_latency_ms": 140.0, "input_lens": [10, 20], "output_lens": [2, 1], "ttfts": [)" +
         std::to_string(ttft) + R"(, 0.2], "itls": [[0.05], []], "errors": ["", ""]})";
}

// Without its line breaks, as a line of JSON Lines.
std::string one_line_of(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string genai_response(const std::string& text) {
  return R"({"response": "data: {\"choices\":[{\"text\":\")" + text + R"(\"}]}\n\n"})";
}

// Two requests of one experiment: chunks at 5, 7 and 12 ms, and an answer without text.
std::string genai_export() {
  return R"({"service_kind": "openai", "endpoint": "v1/completions", "experiments": [
    {"experiment": {"mode": "concurrency", "value": 2}, "requests": [
      {"timestamp": 1000000000, "request_inputs": {"payload": "{\"model\": \"llama\"}"},
       "response_timestamps": [1005000000, 1007000000, 1012000000, 1013000000],
       "response_outputs": [)" +
         genai_response("a") + "," + genai_response("b") + "," + genai_response("c") +
         R"(, {"response": "data: [DONE]\n\n"}]},
      {"timestamp": 1001000000, "request_inputs": {}, "response_timestamps": [1002000000],
       "response_outputs": [{"response": ""}]}], "window_boundaries": []},
    {"experiment": {"mode": "request_rate", "value": 2.5}, "requests": []}], "version": "2"})";
}

constexpr const char* kGenaiSummary =
    R"({"request_throughput": {"unit": "requests/sec", "avg": 2.0},
  "request_latency": {"unit": "ms", "avg": 100.0, "p99": 150.0, "p50": 99.0, "std": 3.0},
  "request_count": {"unit": "count", "avg": 20.0},
  "time_to_first_token": {"unit": "us", "avg": 12000.0, "p99": 30000.0},
  "inter_token_latency": {"unit": "ms", "avg": 7.0, "p90": 8.0},
  "output_token_throughput": {"unit": "tokens/sec", "avg": 40.0},
  "output_sequence_length": {"unit": "tokens", "avg": 20.0},
  "input_sequence_length": {"unit": "tokens", "avg": 64.0},
  "input_config": {"model": ["llama"], "concurrency": 3}})";

constexpr const char* kGenaiTable =
    "Metric,avg,min,max,p99,p95,p90,p75,p50,p25\r\n"
    "Time To First Token (ms),\"1,216.00\",1.00,2000.00,1990.00,1900.00,1800.00,1700.00,1600.00,"
    "1500.00\r\n"
    "Request Latency (ms),2.00,1.00,3.00,2.90,2.80,2.70,2.60,2.50,2.40\r\n"
    "Input Sequence Length,64.00,64.00,64.00,64.00,64.00,64.00,64.00,64.00,64.00\r\n"
    "\r\n"
    "Metric,Value\r\n"
    "Output Token Throughput (per sec),88.50\r\n"
    "Request Count (count),12.00\r\n";

constexpr const char* kLlmperfResponses =
    R"([{"error_code": null, "error_msg": "", "inter_token_latency_s": 0.25, "ttft_s": 0.5,
   "end_to_end_latency_s": 1.0, "request_output_throughput_token_per_s": 4.0,
   "number_total_tokens": 554, "number_output_tokens": 3, "number_input_tokens": 550},
  {"error_code": 500, "error_msg": "boom", "inter_token_latency_s": 0, "ttft_s": 0,
   "end_to_end_latency_s": 0, "number_total_tokens": 550, "number_output_tokens": 0,
   "number_input_tokens": 550}])";

constexpr const char* kLlmperfSummary =
    R"({"version": "2023-08-31", "name": "m_550_3_summary", "model": "meta-llama/Llama-3.1-8B",
  "mean_input_tokens": 550, "num_concurrent_requests": 4, "results_ttft_s_quantiles_p50": 0.5,
  "results_ttft_s_quantiles_p99": 0.625, "results_ttft_s_mean": 0.5,
  "results_end_to_end_latency_s_mean": 1.0, "results_number_input_tokens_mean": 550.0,
  "results_number_output_tokens_mean": 3.0, "results_num_requests_started": 2,
  "results_number_errors": 1, "results_mean_output_throughput_token_per_s": 1.5,
  "results_num_completed_requests": 1, "results_num_completed_requests_per_min": 30.0})";

std::vector<std::string> all_fixtures() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(fixture(""))) {
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("vLLM's benchmark: seconds, failures and the order of sending", "[reports][measured]") {
  const ScratchFolder folder;
  const MeasuredRun run = read_measured_run(folder.write("x.txt", kVllmTwoRequests), std::nullopt);
  CHECK(run.client == "vLLM's benchmark");
  CHECK(run.model == "meta-llama/Llama-3.1-8B");
  CHECK(run.request_rate == 4.0);
  CHECK(run.max_concurrency == 8);
  CHECK(run.duration_ns == 12'500'000'000);
  CHECK(run.num_completed == 2);
  CHECK(run.num_failed == 1);
  CHECK(run.failures == "1 of \"Bad Gateway\"");
  REQUIRE(run.requests.size() == 3);
  CHECK(run.requests[0].num_prompt_tokens == 200);  // sent first
  CHECK(run.requests[0].start == 0);
  CHECK(run.requests[0].e2el_ns == 550'000'000);  // its own latency, with the end of the answer
  CHECK(run.requests[1].start == kNsPerSecond);
  CHECK(run.requests[1].ttft_ns == 250'000'000);
  CHECK(run.requests[1].gaps == std::vector<TimeNs>{10'000'000, 20'000'000});
  CHECK(run.lacks.empty());
  CHECK(measured_run_text(run) ==
        "vLLM's benchmark, 4.00 requests/s, at most 8 at once, 2 requests (1 failed: 1 of \"Bad "
        "Gateway\")");
}

TEST_CASE("vLLM's benchmark without start times, and without details", "[reports][measured]") {
  const ScratchFolder folder;
  // As benchmark_serving.py of 2024 wrote it.
  const MeasuredRun old = read_measured_run(
      folder.write("old.json", R"({"date": "20240801-000000", "backend": "vllm", "model_id": "m",
      "tokenizer_id": "m", "best_of": 1, "use_beam_search": false, "num_prompts": 1,
      "request_rate": "inf", "duration": 1.5, "completed": 1, "input_lens": [7],
      "output_lens": [2], "ttfts": [0.5], "itls": [[0.25]], "generated_texts": ["x"],
      "errors": [""]})"),
      std::nullopt);
  CHECK(std::isinf(*old.request_rate));
  CHECK(old.requests[0].e2el_ns == 750'000'000);
  CHECK(old.requests[0].start == kNoTime);
  CHECK(old.lacks ==
        std::vector<std::string>{"it has no start times: when requests arrived is unknown"});

  const MeasuredRun figures =
      read_measured_run(folder.write("figures.json", kVllmFigures), std::nullopt);
  CHECK(figures.requests.empty());
  CHECK(figures.num_completed == 99);
  CHECK(figures.mean_prompt_tokens == 100.0);
  CHECK(figure_of(figures, "p50_ttft_ms") == 19.0);
  CHECK(figure_of(figures, "p99_itl_ms") == 12.0);
  CHECK(figure_of(figures, "output_throughput") == 198.0);
  CHECK(std::isnan(figure_of(figures, "p90_ttft_ms")));
  CHECK(std::isnan(figure_of(figures, "mean_tpot_ms")));
}

TEST_CASE("one of several runs is chosen", "[reports][measured]") {
  const ScratchFolder folder;
  const std::string path =
      folder.write("runs.jsonl", one_line_of(sglang_line("2.0", 0.1)) + "\n" +
                                     one_line_of(sglang_line("Infinity", 0.3)) + "\n");
  const std::vector<MeasuredRun> runs = read_measured_runs(path);
  REQUIRE(runs.size() == 2);
  CHECK(runs[1].client == "SGLang's benchmark");
  CHECK(runs[0].request_rate == 2.0);
  CHECK(std::isinf(*runs[1].request_rate));
  CHECK(read_measured_run(path, 2).requests[0].ttft_ns == 300'000'000);
  CHECK(error_of([&] { (void)read_measured_run(path, std::nullopt); }) ==
        path +
            ": has 2 runs; allowed: --run N with one of 1 (2.00 requests/s, at most 4 at once, "
            "2 requests); 2 (all requests at once, at most 4 at once, 2 requests)");
  CHECK(
      contains(error_of([&] { (void)read_measured_run(path, 3); }), "has no run 3; allowed: 1 ("));
  // vLLM appends a run without a line end before the first one.
  const std::string line = one_line_of(kVllmTwoRequests);
  CHECK(read_measured_runs(folder.write("vllm.json", line + "\n" + line)).size() == 2);
}

TEST_CASE("AIPerf's requests give the figures of its summary", "[reports][measured]") {
  const MeasuredRun run = read_measured_run(fixture("aiperf-0.13"), std::nullopt);
  CHECK(run.client == "AIPerf 0.13.0");
  CHECK(run.model == "llama-3.1-8b");
  CHECK(run.max_concurrency == 3);
  REQUIRE(run.requests.size() == 6);
  CHECK(run.has_gaps);
  CHECK(run.requests[0].num_prompt_tokens == 40);
  CHECK(run.requests[0].num_output_tokens == 6);
  CHECK(run.requests[0].gaps.size() == 5);
  CHECK_FALSE(run.requests[0].session.empty());
  const Json own = fixture_json("aiperf-0.13/profile_export_aiperf.json");
  const auto all = {std::pair("mean", "avg"), std::pair("p50", "p50"), std::pair("p90", "p90"),
                    std::pair("p95", "p95"),  std::pair("p99", "p99"), std::pair("max", "max")};
  check_like_client(run, "ttft", own.at("time_to_first_token"), 1, all);
  check_like_client(run, "e2el", own.at("request_latency"), 1, all);
  check_like_client(run, "tpot", own.at("inter_token_latency"), 1, all);
  check_like_client(run, "itl", own.at("inter_chunk_latency"), 1, all);

  const MeasuredRun summary =
      read_measured_run(fixture("aiperf-0.13/profile_export_aiperf.json"), std::nullopt);
  CHECK(summary.requests.empty());
  CHECK(summary.num_completed == 6);
  CHECK(figure_of(summary, "p99_ttft_ms") == Approx(figure_of(run, "p99_ttft_ms")));
  CHECK(figure_of(summary, "mean_tpot_ms") == Approx(figure_of(run, "mean_tpot_ms")));
  const MeasuredRun table =
      read_measured_run(fixture("aiperf-0.13/profile_export_aiperf.csv"), std::nullopt);
  CHECK(table.client == "AIPerf");
  CHECK(figure_of(table, "p99_ttft_ms") == Approx(figure_of(run, "p99_ttft_ms")).margin(0.006));
}

TEST_CASE("AIPerf's units, failures and warm-up", "[reports][measured]") {
  const ScratchFolder folder;
  const std::string start = R"({"metadata": {"session_num": 0, "request_start_ns": )";
  const std::string text = start +
                           R"(2000000000, "benchmark_phase": "warmup"}, "metrics": {}})"
                           "\n" +
                           start +
                           R"(3000000500, "benchmark_phase": "profiling"}, "metrics": {
        "request_latency": {"value": 250, "unit": "us"}, "time_to_first_token": {"value": 0.125,
        "unit": "ms"}, "output_sequence_length": {"value": 2, "unit": "tokens"}}})"
                           "\n" +
                           start +
                           R"(3000000000, "benchmark_phase": "profiling", "was_cancelled": true},
        "metrics": {}, "error": {"code": 503, "type": "ServerError", "message": "busy"}})"
                           "\n";
  std::string lines;
  for (std::size_t at = 0; at < text.size();) {  // a record a line
    std::size_t end = text.find("}\n{", at);
    end = end == std::string::npos ? text.size() : end + 1;
    lines += one_line_of(text.substr(at, end - at)) + "\n";
    at = end + 1;
  }
  const MeasuredRun run = read_measured_run(folder.write("p.jsonl", lines), std::nullopt);
  REQUIRE(run.requests.size() == 2);
  CHECK(run.failures == "1 of \"ServerError 503\"");
  CHECK(run.requests[1].start == 500);
  CHECK(run.requests[1].e2el_ns == 250'000);
  CHECK(run.requests[1].ttft_ns == 125'000);
  CHECK(run.requests[1].num_prompt_tokens == kUnknownTokens);
  CHECK(run.lacks.front() == "1 of its requests are a warm-up, left out");
  const std::string minutes =
      folder.write("m.jsonl", one_line_of(start + R"(1}, "metrics": {"request_latency":
                                        {"value": 1, "unit": "minutes"}}})"));
  CHECK(error_of([&] { (void)read_measured_runs(minutes); }) ==
        minutes +
            ": metrics: request_latency: unit: 'minutes' is not a unit of time; allowed: ns, "
            "us, ms, sec");
}

TEST_CASE("guidellm's requests give the figures of its report", "[reports][measured]") {
  const std::vector<MeasuredRun> runs = read_measured_runs(fixture("guidellm-0.8"));
  REQUIRE(runs.size() == 2);  // once, although the folder has YAML too
  CHECK(runs[0].client == "guidellm 0.8.1");
  CHECK(runs[0].model == "llama-3.1-8b");
  CHECK(runs[0].request_rate == 2.0);
  CHECK(runs[1].request_rate == 4.0);
  const Json report = fixture_json("guidellm-0.8/benchmarks.json");
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(runs[i].requests.size() == 5);
    CHECK_FALSE(runs[i].has_gaps);
    const Json& metrics = report.at("benchmarks").at(i).at("metrics");
    check_like_client(runs[i], "ttft", metrics.at("time_to_first_token_ms").at("successful"), 1,
                      {{"mean", "mean"}, {"max", "max"}, {"min", "min"}});
    // To the last token, which comes before the end of the response.
    const double own_s = metrics.at("request_latency").at("successful").at("mean").get<double>();
    CHECK(figure_of(runs[i], "mean_e2el_ms") <= 1e3 * own_s);
    CHECK(figure_of(runs[i], "mean_e2el_ms") > figure_of(runs[i], "mean_ttft_ms"));
  }
  const std::vector<MeasuredRun> yaml = read_measured_runs(fixture("guidellm-0.8/benchmarks.yaml"));
  REQUIRE(yaml.size() == 1);
  CHECK(figure_of(yaml[0], "mean_ttft_ms") == figure_of(runs[0], "mean_ttft_ms"));

  const std::vector<MeasuredRun> old =
      read_measured_runs(fixture("guidellm-0.1/guidance_report.json"));
  REQUIRE(old.size() == 2);
  CHECK(old[1].request_rate == 2.0);
  CHECK(old[1].model == "meta-llama/Llama-3.1-8B-Instruct");
  CHECK(old[1].num_failed == 1);
  CHECK(old[1].has_starts());
  CHECK(old[1].requests[1].start == kNsPerSecond / 2);
  CHECK(old[1].requests[1].ttft_ns == kNsPerSecond / 4);
  CHECK(old[1].requests[1].gaps == std::vector<TimeNs>{kNsPerSecond / 4, kNsPerSecond / 2});
  CHECK(old[1].requests[1].e2el_ns == kNsPerSecond);
}

TEST_CASE("guidellm's report of 0.3, and one without requests", "[reports][measured]") {
  const ScratchFolder folder;
  const MeasuredRun run =
      read_measured_run(folder.write("a.json", R"({"benchmarks": [{"type_": "generative_benchmark",
    "args": {"strategy": {"type_": "concurrent", "streams": 4}},
    "worker": {"type_": "generative_requests_worker", "backend_model": "m"},
    "run_stats": {"requests_made": {"successful": 3, "errored": 1, "incomplete": 0}},
    "metrics": {}, "requests": {"successful": [{"type_": "generative_text_response",
      "prompt_tokens": 9, "output_tokens": 5, "start_time": 1745000000.5,
      "end_time": 1745000002.5, "first_token_time": 1745000001.0,
      "last_token_time": 1745000002.0}], "errored": [{"type_": "generative_text_error",
      "error": "timeout", "start_time": 1745000000.75, "end_time": 1745000001.0}],
      "incomplete": []}}]})"),
                        std::nullopt);
  CHECK(run.max_concurrency == 4);
  CHECK(run.model == "m");
  CHECK(run.requests[0].ttft_ns == kNsPerSecond / 2);
  CHECK(run.requests[0].e2el_ns == 3 * kNsPerSecond / 2);
  CHECK(figure_of(run, "mean_tpot_ms") == 250);
  CHECK(run.failures == "1 of \"timeout\"");
  CHECK(run.lacks.front() == "it lists a sample of 2 of its 4 requests");

  const MeasuredRun empty = read_measured_run(
      folder.write("b.json", R"({"metadata": {"guidellm_version": "0.5.4"}, "args": {"model": "m"},
    "benchmarks": [{"type_": "generative_benchmark", "duration": 10.0, "config": {"strategy":
      {"type_": "throughput", "max_concurrency": 512}}, "requests": {"successful": [],
      "errored": [], "incomplete": []}, "metrics": {"request_totals": {"successful": 50,
      "errored": 2, "incomplete": 1, "total": 53}, "time_to_first_token_ms": {"successful":
      {"mean": 5.0, "median": 4.0, "percentiles": {"p90": 9.0, "p99": 12.0}}},
      "request_latency": {"successful": {"mean": 0.5, "percentiles": {"p50": 0.25}}},
      "inter_token_latency_ms": {"successful": {"mean": 3.0, "median": 2.0}},
      "prompt_token_count": {"successful": {"mean": 128.0}},
      "output_token_count": {"successful": {"mean": 32.0}}}}]})"),
      std::nullopt);
  CHECK(empty.num_completed == 50);
  CHECK(empty.num_failed == 3);
  CHECK(std::isinf(*empty.request_rate));
  CHECK(figure_of(empty, "p50_ttft_ms") == 4.0);
  CHECK(figure_of(empty, "p99_ttft_ms") == 12.0);
  CHECK(figure_of(empty, "mean_e2el_ms") == 500.0);
  CHECK(figure_of(empty, "p50_e2el_ms") == 250.0);
  CHECK(figure_of(empty, "mean_itl_ms") == 3.0);
  CHECK(std::isnan(figure_of(empty, "p50_itl_ms")));  // guidellm's median has another definition
  CHECK(figure_of(empty, "request_throughput") == 5.0);
  CHECK(std::isnan(figure_of(empty, "busy_share")));  // no client sees the device
}

TEST_CASE("inference-perf's requests give the figures of its stages", "[reports][measured]") {
  const std::vector<MeasuredRun> runs = read_measured_runs(fixture("inference-perf-0.7"));
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].request_rate == 2.0);
  CHECK(runs[1].request_rate == 4.0);
  for (std::size_t i = 0; i < 2; ++i) {
    const Json own =
        fixture_json("inference-perf-0.7/stage_" + std::to_string(i) + "_lifecycle_metrics.json");
    const Json& latency = own.at("successes").at("latency");
    REQUIRE(runs[i].num_completed == own.at("successes").at("count").get<std::int64_t>());
    const auto all = {std::pair("mean", "mean"), std::pair("p50", "median"),
                      std::pair("p90", "p90"), std::pair("p99", "p99"), std::pair("max", "max")};
    check_like_client(runs[i], "ttft", latency.at("time_to_first_token"), 1e3, all);
    check_like_client(runs[i], "tpot", latency.at("time_per_output_token"), 1e3, all);
    check_like_client(runs[i], "itl", latency.at("inter_token_latency"), 1e3, all);
  }
  const std::vector<MeasuredRun> stage =
      read_measured_runs(fixture("inference-perf-0.7/stage_1_lifecycle_metrics.json"));
  CHECK(stage.front().requests.empty());
  CHECK(figure_of(stage.front(), "p90_itl_ms") == Approx(figure_of(runs[1], "p90_itl_ms")));
  const MeasuredRun requests = read_measured_run(
      fixture("inference-perf-0.7/per_request_lifecycle_metrics.json"), std::nullopt);
  CHECK(requests.requests.size() == 10);
}

TEST_CASE("inference-perf's requests of 0.1", "[reports][measured]") {
  const ScratchFolder folder;
  const MeasuredRun run = read_measured_run(
      folder.write("r.json", R"([{"start_time": 10.5, "end_time": 12.0, "request": "", "response":
    "", "info": {"input_tokens": 7, "output_tokens": 3, "output_token_times": [11.0, 11.25, 11.75]},
    "error": null}, {"start_time": 10.0, "end_time": 10.5, "request": "", "response": "", "info":
    {"input_tokens": 7, "output_tokens": 0, "output_token_times": []}, "error": {"error_type":
    "TimeoutError", "error_msg": "late"}}])"),
      std::nullopt);
  REQUIRE(run.requests.size() == 2);
  CHECK(run.failures == "1 of \"TimeoutError\"");
  CHECK(run.requests[1].start == kNsPerSecond / 2);
  CHECK(run.requests[1].ttft_ns == kNsPerSecond / 2);
  CHECK(run.requests[1].gaps == std::vector<TimeNs>{kNsPerSecond / 4, kNsPerSecond / 2});
  CHECK(run.requests[1].e2el_ns == 5 * kNsPerSecond / 4);
}

TEST_CASE("llmperf's pair of files", "[reports][measured]") {
  const ScratchFolder folder;
  const std::string responses =
      folder.write("m_550_3_individual_responses.json", kLlmperfResponses);
  const std::string summary = folder.write("m_550_3_summary.json", kLlmperfSummary);
  const MeasuredRun run = read_measured_run(folder.path(), std::nullopt);
  CHECK(run.client == "llmperf");
  CHECK(run.model == "meta-llama/Llama-3.1-8B");
  CHECK(run.max_concurrency == 4);
  CHECK(run.duration_ns == 2 * kNsPerSecond);  // 1 request at 30 a minute
  CHECK(run.failures == "1 of \"500: boom\"");
  CHECK(run.requests[0].ttft_ns == kNsPerSecond / 2);
  CHECK(figure_of(run, "mean_tpot_ms") == 250);  // (1 s - 0.5 s) / 2, not llmperf's 1 s / 3
  CHECK(read_measured_run(responses, std::nullopt).model.empty());
  const MeasuredRun figures = read_measured_run(summary, std::nullopt);
  CHECK(figures.num_completed == 1);
  CHECK(figure_of(figures, "p99_ttft_ms") == 625);
  CHECK(figure_of(figures, "mean_e2el_ms") == 1000);
  CHECK(figure_of(figures, "output_throughput") == 1.5);
}

TEST_CASE("the report of trtllm-bench", "[reports][measured]") {
  const ScratchFolder folder;
  const std::string begin = R"({"engine": {"model": "meta-llama/Llama-3.1-8B", "version": "1.2.1"},
    "machine": null, "world_info": {"tp_size": 1, "max_num_tokens": 2048}, "request_info": {
    "num_requests": 100, "avg_num_concurrent_requests": 24.5, "avg_input_length": 1000.0,
    "avg_output_length": 200.0}, "performance": {"total_latency_ms": 20000.0,
    "request_throughput_req_s": 5.0, "system_output_throughput_tok_s": 1000.0,
    "system_total_throughput_tok_s": 6000.0, "request_latency_percentiles_ms": {"p50": 5000.0,
    "p90": 6000.0, "p95": 6100.0, "p99": 6400.0, "minimum": 3000.0, "maximum": 7000.0,
    "average": 5100.0}})";
  const MeasuredRun run = read_measured_run(
      folder.write("r.json", begin + R"(, "streaming_metrics": {"avg_ttft_ms": 300.0,
        "ttft_percentiles": {"p50": 290.0, "p99": 500.0, "average": 300.0},
        "tpot_percentiles": {"p50": 19.0, "p99": 30.0, "average": 20.0}}})"),
      std::nullopt);
  CHECK(run.client == "trtllm-bench");
  CHECK(run.model == "meta-llama/Llama-3.1-8B");
  CHECK(run.num_completed == 100);
  CHECK(run.duration_ns == 20 * kNsPerSecond);
  CHECK(run.mean_output_tokens == 200);
  CHECK(figure_of(run, "p99_ttft_ms") == 500);
  CHECK(figure_of(run, "mean_tpot_ms") == 20);
  CHECK(figure_of(run, "p90_e2el_ms") == 6000);
  CHECK(figure_of(run, "mean_e2el_ms") == 5100);
  CHECK(figure_of(run, "request_throughput") == 5);
  CHECK(figure_of(run, "total_token_throughput") == 6000);
  const MeasuredRun whole = read_measured_run(folder.write("w.json", begin + "}"), std::nullopt);
  CHECK(whole.lacks.front() ==
        "it has no times to tokens, which trtllm-bench writes with --streaming");
}

TEST_CASE("genai-perf's export, summary and table", "[reports][measured]") {
  const ScratchFolder folder;
  const std::string path = folder.write("export.json", genai_export());
  const std::vector<MeasuredRun> runs = read_measured_runs(path);
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].model == "llama");
  CHECK(runs[0].max_concurrency == 2);
  CHECK(runs[1].request_rate == 2.5);
  const MeasuredRequest& request = runs[0].requests[0];
  CHECK(request.ttft_ns == 5 * kNsPerMs);
  CHECK(request.gaps == std::vector<TimeNs>{2 * kNsPerMs, 5 * kNsPerMs});
  CHECK(request.e2el_ns == 12 * kNsPerMs);  // the end of the stream has no text
  CHECK(request.num_output_tokens == 3);
  CHECK(runs[0].failures == "1 of \"no tokens\"");

  const MeasuredRun summary =
      read_measured_run(folder.write("summary.json", kGenaiSummary), std::nullopt);
  CHECK(summary.client == "genai-perf");
  CHECK(summary.model == "llama");
  CHECK(summary.max_concurrency == 3);
  CHECK(summary.num_completed == 20);
  CHECK(figure_of(summary, "mean_ttft_ms") == 12);  // its unit is us
  CHECK(figure_of(summary, "p99_e2el_ms") == 150);
  CHECK(figure_of(summary, "p90_tpot_ms") == 8);
  CHECK(std::isnan(figure_of(summary, "mean_itl_ms")));

  const MeasuredRun table = read_measured_run(folder.write("table.csv", kGenaiTable), std::nullopt);
  CHECK(table.client == "genai-perf");
  CHECK(table.num_completed == 12);
  CHECK(figure_of(table, "mean_ttft_ms") == 1216);
  CHECK(figure_of(table, "p50_e2el_ms") == 2.5);
  CHECK(figure_of(table, "output_throughput") == 88.5);
  CHECK(table.mean_prompt_tokens == 64.0);
}

TEST_CASE("results that cannot be read are refused in one line", "[reports][measured]") {
  const ScratchFolder folder;
  const auto refusal = [&](const std::string& content) {
    const std::string path = folder.write("x.json", content);
    const std::string error = error_of([&] { (void)read_measured_runs(path); });
    REQUIRE(error.starts_with(path));
    return error.substr(path.size());
  };
  CHECK(contains(refusal(R"({"a": 1, "b": {"ttfts": []}})"),
                 ": is no format that is known here; its keys: a, b; allowed: a result of SGLang's "
                 "benchmark, vLLM's benchmark, AIPerf, "));
  CHECK(contains(refusal("hello"),
                 ": is neither JSON, nor YAML of benchmarks, nor a table of metrics;"));
  CHECK(contains(refusal(""), ": is neither JSON"));
  const std::string text(kVllmTwoRequests);
  const std::string cut = refusal(text.substr(0, text.size() / 2));
  CHECK(contains(cut,
                 ": looks like a result of vLLM's benchmark (vllm bench serve "
                 "--save-result), but is not JSON: "));
  CHECK(contains(cut, "; allowed: a complete file"));
  CHECK(contains(refusal(R"({"endpoint_type": "openai-embeddings", "completed": 5,
      "duration": 1, "request_throughput": 5, "total_input_tokens": 9,
      "total_input_sequences": 5, "latencies": [1]})"),
                 "the benchmark asked for embeddings, which have no tokens"));
  CHECK(contains(refusal(R"({"benchmarks": [], "metadata": {}})"),
                 ": is a result of guidellm without a run"));
  CHECK(contains(refusal(R"({"service_kind": "openai", "experiments": 5})"),
                 ": experiments: is not a list"));
  folder.write("y.json", genai_export());
  folder.write("x.json", kVllmFigures);
  CHECK(contains(error_of([&] { (void)read_measured_runs(folder.path()); }),
                 ": has results of vLLM's benchmark ("));
}

TEST_CASE("a result that is cut or damaged anywhere never ends the program",
          "[reports][measured]") {
  constexpr std::uint64_t kSeed = 20260301;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "cuts");
  const ScratchFolder folder;
  std::vector<std::string> contents;
  for (const std::string& path : all_fixtures()) contents.push_back(read_text_file(path));
  const std::string two_lines =
      one_line_of(sglang_line("2.0", 0.1)) + "\n" + one_line_of(sglang_line("4.0", 0.1)) + "\n";
  contents.insert(contents.end(), {kVllmTwoRequests, kVllmFigures, two_lines, genai_export(),
                                   kGenaiSummary, kGenaiTable, kLlmperfResponses, kLlmperfSummary});
  int num_refused = 0;
  for (const std::string& content : contents) {
    const auto last = static_cast<std::int64_t>(content.size()) - 1;
    for (int n = 0; n < 40; ++n) {
      std::string damaged = content;
      const auto at = static_cast<std::size_t>(rng.uniform_int(0, last));
      if (n % 2 == 0) {
        damaged.resize(at);
      } else {
        damaged[at] = static_cast<char>(rng.uniform_int(32, 126));
      }
      const std::string path = folder.write("damaged", damaged);
      const std::string error = error_of([&] {
        for (const MeasuredRun& run : read_measured_runs(path)) {
          (void)measured_content(run);
          (void)examine_client(run, 10.0, 5);
        }
      });
      INFO("cut or changed at " << at << ": " << error);
      CHECK((error.empty() || error.starts_with(path)));
      CHECK(error.find('\n') == std::string::npos);
      num_refused += error.empty() ? 0 : 1;
    }
  }
  CHECK(num_refused > static_cast<int>(contents.size()) * 10);
}

}  // namespace metronome::testing::TEST_FILE
