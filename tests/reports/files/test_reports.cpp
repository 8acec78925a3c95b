// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "reports/files/result_files.h"
#include "reports/files/result_folder.h"
#include "reports/files/step_log.h"
#include "reports/terminal/table.h"
#include "system/file_writer.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/fake_run.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using metronome::testing::decode;
using metronome::testing::error_of;
using metronome::testing::FakeRun;
using metronome::testing::prefill;
using metronome::testing::ScratchFolder;
namespace fs = std::filesystem;

namespace {

constexpr TimeNs kMs = kNsPerMs;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<Json> parse_lines(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

// Two requests that finish, of which one waits 40 ms for the other's prefill, and a refused one.
RunRecord small_record() {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 100, 1);
  const RequestId b = run.submit(15 * kMs, 6144);
  const RequestId c = run.arrive(16 * kMs, 50, 0, 77);
  run.end(c, 20 * kMs, EndReason::QueueFull);
  run.admit(a, 0);
  run.step(0, 10 * kMs, {prefill(a, 0, 100, true)});
  run.step(10 * kMs, 20 * kMs, {decode(a)});
  run.admit(b, 20 * kMs);
  run.step(20 * kMs, 60 * kMs, {decode(a), prefill(b, 0, 6144, true), decode(b)});
  run.end(a, 60 * kMs);
  run.step(70 * kMs, 80 * kMs + 123, {decode(b)});
  run.end(b, 80 * kMs + 123, EndReason::Stop);
  return recorder.finish();
}

RunResult small_result(const std::string& label) {
  RunResult result;
  result.info.label = label;
  result.info.model = "llama-3.2-3b";
  result.info.hardware = "h200";
  result.info.policy = "continuous";
  result.info.seed = 7;
  result.info.digest = "0123456789abcdef";
  result.info.num_prompts = 3;
  result.info.num_blocks = 1000;
  result.info.slo.ttft_ms = 500;
  result.info.slo.itl_ms = 30;
  result.info.config = {{"seed", 7}, {"engine", {{"max_num_seqs", 4}}}};
  SummaryOptions options;
  options.slo = result.info.slo;
  options.num_blocks = 1000;
  result.summary = summarize(small_record(), options);
  return result;
}

std::string written(void (*write)(const RunRecord&, FileWriter&), const RunRecord& record) {
  const ScratchFolder scratch;
  FileWriter file(scratch.path() + "/lines.jsonl");
  write(record, file);
  file.close();
  return read_file(scratch.path() + "/lines.jsonl");
}

}  // namespace

TEST_CASE("a duration has the digits that tell it", "[reports]") {
  const std::vector<std::pair<double, std::string>> cases = {{0, "0"},
                                                             {0.01, "0.01"},
                                                             {500, "500"},
                                                             {62.5, "62.5"},
                                                             {12.25, "12.25"},
                                                             {600'000, "600,000"},
                                                             {12.345678, "12.3"},
                                                             {1234.5678, "1,234.6"},
                                                             {0.0123456, "0.012"},
                                                             {0.95678, "0.96"},
                                                             {0.99678, "1.0"},
                                                             {0.000001, "0.000001"},
                                                             {123.456, "123.5"},
                                                             {-0.0123456, "-0.012"},
                                                             {1e300 * 1e300, "-"}};
  for (const auto& [milliseconds, text] : cases) CHECK(ms_text(milliseconds) == text);
  for (int i = -40; i < 60; ++i) {  // what is shown is within a twentieth of what is meant
    const double milliseconds = 3.14159 * std::pow(1.3, i);
    std::string shown = ms_text(milliseconds);
    std::erase(shown, ',');
    CHECK(std::stod(shown) == Approx(milliseconds).epsilon(0.05));
  }
}

TEST_CASE("JSON text: escapes, numbers, nesting", "[reports][json]") {
  JsonText json;
  json.begin_object();
  json.field("text", "a\"b\\c\nd\x01\xc3\xa9");
  json.field("int", -12);
  json.field("big", std::uint64_t{18446744073709551615ull});
  json.field("third", 1.0 / 3);
  json.field("nan", std::nan(""));
  json.field("yes", true);
  json.key("ms").ms(1'500'000);
  json.key("exact").ms(-1);
  json.key("whole").ms(7'000'000);
  json.key("empty");
  json.begin_array();
  json.end_array();
  json.key("list");
  json.begin_array();
  json.value(1);
  json.begin_object();
  json.end_object();
  json.null();
  json.end_array();
  json.end_object();
  CHECK(json.view() ==
        "{\"text\":\"a\\\"b\\\\c\\nd\\u0001\xc3\xa9\",\"int\":-12,\"big\":18446744073709551615,"
        "\"third\":0.3333333333333333,\"nan\":null,\"yes\":true,\"ms\":1.5,\"exact\":-0.000001,"
        "\"whole\":7,\"empty\":[],\"list\":[1,{},null]}");
  CHECK_NOTHROW(Json::parse(json.view()));
}

TEST_CASE("JSON text: the indented style moves raw JSON in with its place", "[reports][json]") {
  JsonText json(JsonText::Style::Indented);
  json.begin_object();
  json.field("a", 1);
  json.key("raw").raw("{\n  \"b\": 2\n}\n");
  json.key("none");
  json.begin_object();
  json.end_object();
  json.key("list");
  json.begin_array();
  json.value("x");
  json.value("y");
  json.end_array();
  json.end_object();
  CHECK(json.view() ==
        "{\n  \"a\": 1,\n  \"raw\": {\n    \"b\": 2\n  },\n  \"none\": {},\n  \"list\": [\n"
        "    \"x\",\n    \"y\"\n  ]\n}");
}

TEST_CASE("result.json begins with vLLM's keys in vLLM's order", "[reports][result]") {
  const Json json = Json::parse(result_json(small_result("unchunked")));
  const std::vector<std::string> expected = {"date",
                                             "endpoint_type",
                                             "backend",
                                             "label",
                                             "model_id",
                                             "tokenizer_id",
                                             "num_prompts",
                                             "request_rate",
                                             "burstiness",
                                             "max_concurrency",
                                             "duration",
                                             "completed",
                                             "failed",
                                             "total_input_tokens",
                                             "total_output_tokens",
                                             "request_throughput",
                                             "request_goodput",
                                             "output_throughput",
                                             "total_token_throughput",
                                             "max_output_tokens_per_s",
                                             "max_concurrent_requests",
                                             "rtfx",
                                             "mean_ttft_ms",
                                             "median_ttft_ms",
                                             "std_ttft_ms"};
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  REQUIRE(keys.size() > expected.size());
  keys.resize(expected.size());
  CHECK(keys == expected);

  CHECK(json["date"] == "19700101-000000");
  CHECK(json["request_rate"] == "inf");
  CHECK(json["max_concurrency"].is_null());
  CHECK(json["duration"] == 0.080000123);
  CHECK(json["completed"] == 2);
  CHECK(json["failed"] == 1);
  CHECK(json["refused"] == 1);
  CHECK(json["total_input_tokens"] == 6244);
  CHECK(json["total_output_tokens"] == 6);
  CHECK(json["mean_ttft_ms"] == 27.5);
  CHECK(json["p50_itl_ms"] == json["median_itl_ms"]);
  CHECK(json["max_itl_ms"] == 40);
  CHECK(json["min_itl_ms"] == 0);  // b's first two tokens came with one step
  for (const char* name : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* figure : {"mean", "median", "std", "p50", "p90", "p95", "p99", "max"}) {
      CHECK(json.contains(std::string(figure) + "_" + name + "_ms"));
    }
  }
  CHECK(json["metronome_schema"] == kResultSchema);
  CHECK(json["digest"] == "0123456789abcdef");
  CHECK(json["config"]["engine"]["max_num_seqs"] == 4);
  CHECK(json["slo"]["itl_ms"] == 30);
  CHECK(json["slo"]["tpot_ms"].is_null());
  CHECK(json["longest_stall"]["cause"] == "prefill");
  CHECK(json["longest_stall"]["largest_prefill"]["num_tokens"] == 6144);
  CHECK(json["longest_stall"]["gap_ms"] == 40);
  CHECK(json["formulas"].size() == 21);
}

TEST_CASE("figures that do not exist are null", "[reports][result]") {
  RunResult result;
  result.info.request_rate = 4.5;
  result.info.max_concurrency = 8;
  result.summary = summarize(RunRecord{}, {});
  const std::string text = result_json(result);
  const Json json = Json::parse(text);
  CHECK(json["mean_ttft_ms"].is_null());
  CHECK(json["p99_itl_ms"].is_null());
  CHECK(json["output_tokens_per_s_per_user"].is_null());
  CHECK(json["request_goodput"].is_null());
  CHECK(json["longest_stall"].is_null());
  CHECK(json["longest_stall_ms"].is_null());
  CHECK(json["config"].is_null());
  CHECK(json["request_rate"] == 4.5);
  CHECK(json["burstiness"] == 1);
  CHECK(json["max_concurrency"] == 8);
  CHECK(text.find("nan") == std::string::npos);

  result.info.burstiness = std::numeric_limits<double>::infinity();  // constant arrivals
  CHECK(Json::parse(result_json(result))["burstiness"] == "inf");
}

TEST_CASE("summary.json lists the runs, flat", "[reports][result]") {
  const std::vector<RunResult> results = {small_result("unchunked"), small_result("chunk-512")};
  const Json json = Json::parse(summary_json(results));
  REQUIRE(json.is_array());
  REQUIRE(json.size() == 2);
  CHECK(json[0]["label"] == "unchunked");
  CHECK(json[1]["label"] == "chunk-512");
  for (const auto& [key, value] : json[0].items()) {
    INFO(key);
    CHECK_FALSE(value.is_structured());
  }
  for (const char* key :
       {"request_throughput", "p99_e2el_ms", "output_throughput", "run_number", "max_concurrency",
        "request_rate", "max_concurrent_requests", "tensor_parallel_size"}) {
    CHECK(json[0].contains(key));
  }
}

TEST_CASE("every gap can be rebuilt from requests.jsonl and steps.jsonl", "[reports][result]") {
  const RunRecord record = small_record();
  const std::vector<Json> steps = parse_lines(written(write_steps_jsonl, record));
  const std::vector<Json> requests = parse_lines(written(write_requests_jsonl, record));
  REQUIRE(steps.size() == 4);
  REQUIRE(requests.size() == 3);
  std::vector<std::vector<std::int64_t>> times(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (const Json& run : requests[i]["runs"]) {
      for (int t = 0; t < run[1].get<int>(); ++t) {
        times[i].push_back(
            steps[run[0].get<std::size_t>() + static_cast<std::size_t>(t)]["finished_ns"]
                .get<std::int64_t>());
      }
    }
  }
  CHECK(times[0] == std::vector<std::int64_t>{10 * kMs, 20 * kMs, 60 * kMs});
  CHECK(times[1] == std::vector<std::int64_t>{60 * kMs, 60 * kMs, 80 * kMs + 123});
  CHECK(times[2].empty());
  CHECK(requests[0]["ttft_ms"] == 10);
  CHECK(requests[0]["tpot_ms"] == 25);
  CHECK(requests[0]["priority"] == 1);
  CHECK(requests[0]["max_itl_step"] == 2);
  CHECK(requests[1]["e2el_ms"] == 65.000123);
  CHECK(requests[1]["queue_ms"] == 5);
  CHECK(requests[1]["end"] == "stop");
  CHECK(requests[2]["end"] == "queue_full");
  CHECK(requests[2]["max_tokens"] == 77);
  CHECK(requests[2]["ttft_ms"].is_null());
  CHECK(requests[2]["first_scheduled_ns"].is_null());
  CHECK(steps[2]["prefills"] == Json::array({Json::array({1, 0, 6144})}));
  CHECK(steps[3]["prefills"].empty());
  CHECK(steps[2]["decode_only_ns"].is_null());
  CHECK(steps[2]["emitted"] == 3);
}

TEST_CASE("a result folder appears whole", "[reports][folder]") {
  const ScratchFolder scratch;
  const std::string target = scratch.path() + "/deep/er/out";
  {
    ResultFolder folder(target + "/");
    folder.write("result.json", "{\"metronome_schema\": 1, \"n\": 1}");
    folder.make_subfolder("chunked");
    folder.write("chunked/result.json", "{\"metronome_schema\": 1}");
    folder.write("chunked/steps.jsonl", "{}\n");
    CHECK_FALSE(fs::exists(target));
    folder.commit();
  }
  CHECK(read_file(target + "/chunked/steps.jsonl") == "{}\n");
  CHECK(std::distance(fs::directory_iterator(scratch.path() + "/deep/er"), {}) == 1);

  SECTION("an earlier result is replaced, with all its files") {
    ResultFolder folder(target);
    folder.write("summary.json", "[{\"metronome_schema\": 1}]");
    folder.commit();
    CHECK(fs::exists(target + "/summary.json"));
    CHECK_FALSE(fs::exists(target + "/result.json"));
    CHECK_FALSE(fs::exists(target + "/chunked"));
    CHECK(std::distance(fs::directory_iterator(scratch.path() + "/deep/er"), {}) == 1);
  }
  SECTION("an earlier result stays when the new run fails") {
    CHECK_THROWS_AS(
        [&] {
          ResultFolder folder(target);
          folder.write("result.json", "half");
          throw std::runtime_error("interrupted");
        }(),
        std::runtime_error);
    CHECK(read_file(target + "/result.json") == "{\"metronome_schema\": 1, \"n\": 1}");
    CHECK(std::distance(fs::directory_iterator(scratch.path() + "/deep/er"), {}) == 1);
  }
  SECTION("a link is followed") {
    const std::string link = scratch.path() + "/latest";
    fs::create_directory_symlink(target, link);
    ResultFolder folder(link);
    folder.write("result.json", "{\"metronome_schema\": 1, \"n\": 2}");
    folder.commit();
    CHECK(fs::is_symlink(link));
    CHECK(read_file(target + "/result.json") == "{\"metronome_schema\": 1, \"n\": 2}");
  }
}

TEST_CASE("a result folder takes an empty folder and leaves foreign ones alone",
          "[reports][folder]") {
  const ScratchFolder scratch;
  const std::string target = scratch.path() + "/out";
  fs::create_directory(target);
  SECTION("empty") {
    ResultFolder folder(target);
    folder.write("result.json", "x");
    folder.commit();
    CHECK(read_file(target + "/result.json") == "x");
  }
  SECTION("foreign files") {
    scratch.write("out/thesis.tex", "years of work");
    CHECK_THROWS_AS(ResultFolder(target), ConfigError);
    CHECK(read_file(target + "/thesis.tex") == "years of work");
  }
  SECTION("another tool's result.json") {
    scratch.write("out/result.json", "{\"date\": \"20250101-000000\"}");
    CHECK_THROWS_AS(ResultFolder(target), ConfigError);
  }
  SECTION("a file") {
    scratch.write("file", "");
    CHECK_THROWS_AS(ResultFolder(scratch.path() + "/file"), ConfigError);
  }
  SECTION("foreign files that appear during the run") {
    ResultFolder folder(target);
    scratch.write("out/thesis.tex", "years of work");
    CHECK_THROWS_AS(folder.commit(), ConfigError);
    CHECK(read_file(target + "/thesis.tex") == "years of work");
  }
  CHECK_THROWS_AS(ResultFolder("/"), ConfigError);
}

TEST_CASE("an abandoned result folder takes the parents it made with it", "[reports][folder]") {
  const ScratchFolder scratch;
  { ResultFolder folder(scratch.path() + "/a/b/out"); }
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("a folder that cannot be made is an error with its path", "[reports][folder]") {
  const ScratchFolder scratch;
  scratch.write("file", "");
  const std::string target = scratch.path() + "/file/out";
  const std::string missing = scratch.path() + "/none/x";
  CHECK(error_of<std::runtime_error>([&] {
          ResultFolder folder(target);
        }).starts_with(scratch.path() + "/file"));
  CHECK(error_of<std::runtime_error>([&] { FileWriter file(missing); }) ==
        missing + ": cannot write: No such file or directory");
  if (fs::exists("/dev/full")) {
    FileWriter full("/dev/full");
    CHECK(error_of<std::runtime_error>([&] { full.write("x"); }) ==
          "/dev/full: cannot write: No space left on device");
  }
}

TEST_CASE("numbers for people", "[reports][table]") {
  CHECK(grouped_text(0.0, 1) == "0.0");
  CHECK(grouped_text(999.95, 1) == "1,000.0");
  CHECK(grouped_text(1234567.891, 2) == "1,234,567.89");
  CHECK(percent_text(0.125, 1) == "12.5 %");
  CHECK(percent_text(1.0 / 3, 2) == "33.33 %");
  CHECK(grouped_text(-1234.5, 1) == "-1,234.5");
  CHECK(grouped_text(std::nan(""), 1) == "-");
  CHECK(grouped_text(std::int64_t{-123456}) == "-123,456");
  CHECK(grouped_text(std::int64_t{123}) == "123");
}

TEST_CASE("a stall is told in one sentence", "[reports][table]") {
  Stall stall;
  CHECK(describe_stall(stall) == "none: no request got a second token");
  stall.request = RequestId{57};
  stall.gap_ns = 412'345'678;
  stall.began_at = 12'081'000'000;
  CHECK(describe_stall(stall) ==
        "412.3 ms at 12.08 s: request 57 waited, but no prefill delayed it");
  stall.cause = StallCause::Prefill;
  stall.prefill_request = RequestId{91};
  stall.prefill_tokens = 6144;
  stall.num_prefill_tokens = 6144;
  CHECK(describe_stall(stall) ==
        "412.3 ms at 12.08 s: request 57 waited while request 91 prefilled 6,144 tokens");
  stall.num_prefill_tokens = 24150;
  CHECK(describe_stall(stall) ==
        "412.3 ms at 12.08 s: request 57 waited while 24,150 tokens were prefilled, 6,144 of them "
        "in one chunk of request 91");
  stall.cause = StallCause::Encoding;
  stall.encode_ns = 301'200'000;
  CHECK(describe_stall(stall) ==
        "412.3 ms at 12.08 s: request 57 waited while images were encoded (301.2 ms) and 24,150 "
        "tokens were prefilled, 6,144 of them in one chunk of request 91");
  stall.num_prefill_tokens = 6144;
  CHECK(describe_stall(stall) ==
        "412.3 ms at 12.08 s: request 57 waited while images were encoded (301.2 ms) and request "
        "91 prefilled 6,144 tokens");
  stall.cause = StallCause::Prefill;
  CHECK(describe_stall(stall) ==
        "412.3 ms at 12.08 s: request 57 waited while request 91 prefilled 6,144 tokens and images "
        "were encoded (301.2 ms)");
  stall.cause = StallCause::Preemption;
  CHECK(describe_stall(stall) ==
        "412.3 ms at 12.08 s: request 57 was preempted and computed again");
}

TEST_CASE("the table compares variants within 80 columns", "[reports][table]") {
  std::vector<RunResult> results = {small_result("unchunked"), small_result("chunk-512")};
  results[1].summary.ttft.mean_ms = 1234.56;
  results[1].summary.ttft.max_ms = 1300;
  results[1].summary.longest_stall.num_prefill_tokens = 24150;
  results[1].info.digest = "fedcba9876543210";
  const std::string table = render_table(results, {});
  INFO('\n' << table);
  CHECK(table.find("TTFT, ms         mean       p50       p90       p99       max\n") !=
        std::string::npos);
  CHECK(table.find("unchunked        27.5*     27.5 ") != std::string::npos);
  CHECK(table.find("chunk-512     1,234.6      27.5 ") != std::string::npos);
  CHECK(table.find("unchunked   40.0 ms at 0.02 s: request 0 waited while request 1 prefilled "
                   "6,144\n            tokens\n"
                   "chunk-512   40.0 ms at 0.02 s: request 0 waited while 24,150 tokens were\n"
                   "            prefilled, 6,144 of them in one chunk of request 1\n") !=
        std::string::npos);
  CHECK(table.find("requests     completed   refused  never fit    failed\n"
                   "unchunked            2         1          0         0\n") != std::string::npos);
  CHECK(table.find("\n* best of its column; figures within 1 % are equal\n") != std::string::npos);
  CHECK(table.find("SLO: TTFT <= 500 ms, every ITL <= 30 ms\n") != std::string::npos);
  CHECK(table.find("digest fedcba9876543210\n") != std::string::npos);
  CHECK(table.find("nan") == std::string::npos);
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 80);
    CHECK((line.empty() || line.back() != ' '));
    for (const char c : line) CHECK((c >= ' ' && c <= '~'));
  }
  CHECK(render_table(results, {true}).find("\x1b[1;32m27.5*\x1b[0m") != std::string::npos);
}

TEST_CASE("a table's columns widen for their figures", "[reports][table]") {
  std::vector<RunResult> results = {small_result("a"), small_result("b")};
  results[0].summary.num_steps = 1'234'567'890;
  results[1].summary.num_steps = 7;
  const std::string table = render_table(results, {});
  INFO('\n' << table);
  CHECK(table.find("device               steps  tokens/step ") != std::string::npos);
  CHECK(table.find("a            1,234,567,890      1,562.0 ") != std::string::npos);
  CHECK(table.find("b                        7      1,562.0 ") != std::string::npos);
}

TEST_CASE("nothing is best among runs that did not do the same", "[reports][table]") {
  std::vector<RunResult> results = {small_result("a"), small_result("b")};
  results[1].summary.ttft.mean_ms = 1234.56;
  std::string reason;
  SECTION("another number of requests") {
    results[1].info.num_prompts = 4;
    reason = "the runs had different workloads";
  }
  SECTION("another rate") {
    results[1].info.request_rate = 3;
    reason = "the runs had different workloads";
  }
  SECTION("other limits") {
    results[1].info.slo.itl_ms = 31;
    reason = "the runs had different SLOs";
  }
  SECTION("fewer of them completed") {
    results[1].summary.completed = 1;
    results[1].summary.never_fits = 1;
    results[1].summary.step_failed = 1;
    results[1].summary.failed = 3;
    reason = "the runs did not complete the same requests";
  }
  SECTION("others completed") {
    results[1].summary.total_output_tokens += 1;
    reason = "the runs did not complete the same requests";
  }
  const std::string table = render_table(results, {});
  INFO('\n' << table);
  CHECK(table.find('*') == std::string::npos);
  CHECK(table.find("\nno value is marked as the best: " + reason + "\n") != std::string::npos);
  if (results[1].summary.failed == 3) {  // each of them is in one column
    CHECK(table.find("b                    1         1          1         1\n") !=
          std::string::npos);
  }
}

TEST_CASE("a table with single_prefill says what its double tokens do", "[reports][table]") {
  std::vector<RunResult> results = {small_result("a"), small_result("b")};
  CHECK(render_table(results, {}).find("two tokens") == std::string::npos);
  results[1].info.policy = "single_prefill";
  CHECK(render_table(results, {}).find("\nsingle_prefill gives two tokens in the step") !=
        std::string::npos);
}

TEST_CASE("a single run's table has no best values, an empty run's no numbers",
          "[reports][table]") {
  RunResult result;
  result.info.label = "empty";
  result.summary = summarize(RunRecord{}, {});
  const std::string table = render_table(std::vector<RunResult>{result}, {});
  INFO('\n' << table);
  CHECK(table.find('*') == std::string::npos);
  CHECK(table.find("TTFT                -         -") != std::string::npos);
  CHECK(table.find("nan") == std::string::npos);
  CHECK(render_table({}, {}).empty());
}

TEST_CASE("the step log reads like a story", "[reports][steps]") {
  std::ostringstream out;
  StepLog log(out, 2);
  FakeRun run({&log});
  const RequestId a = run.submit(0, 42);
  const RequestId b = run.submit(0, 6);
  const RequestId c = run.submit(0, 6);
  const RequestId d = run.arrive(0, 999);
  run.end(d, 0, EndReason::NeverFits);
  run.step(0, 37'500'000, {prefill(a, 0, 32, false), prefill(b, 0, 6, true), decode(b)});
  run.step(38 * kMs, 60 * kMs, {decode(b), prefill(a, 32, 10, true), prefill(c, 0, 6, true)});
  run.preempt(c, 60 * kMs);
  run.step(60 * kMs, 61 * kMs, {decode(a), decode(b), decode(a), decode(b)});
  run.next.failed = true;
  run.step(61 * kMs, 62 * kMs, {decode(a, false)});
  run.end(a, 62 * kMs, EndReason::StepFailed);
  run.end(b, 62 * kMs, EndReason::Length);
  CHECK(out.str() ==
        "    r0 arrived, 42 prompt tokens, at 0.000 s\n"
        "    r1 arrived, 6 prompt tokens, at 0.000 s\n"
        "    r2 arrived, 6 prompt tokens, at 0.000 s\n"
        "    r3 refused (never_fits), at 0.000 s\n"
        "step 0  t=0.000 s  37.500 ms  39 tokens  [r0 prefill 0..32] [r1 prefill 0..6 -> token 1] "
        "[r1 D]\n"
        "step 1  t=0.038 s  22.000 ms  17 tokens  [r1 D] [r0 prefill 32..42 -> token 1] "
        "[r2 prefill 0..6 -> token 1]\n"
        "    r2 preempted, at 0.060 s\n"
        "step 2  t=0.060 s  1.000 ms  4 tokens  [r0 D] [r1 D] ... +2 D\n"
        "step 3  t=0.061 s  1.000 ms  1 tokens  FAILED [r0 D, no token]\n"
        "    r0 ended (step_failed) after 3 tokens, at 0.062 s\n"
        "    r1 ended (length) after 5 tokens, at 0.062 s\n");
}

}  // namespace TEST_FILE
