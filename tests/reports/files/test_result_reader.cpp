// SPDX-License-Identifier: Apache-2.0
// Result folders read back: what is written again from them is what was there.
#include <regex>
#include <string>

#include "reports/files/result_files.h"
#include "reports/files/result_reader.h"
#include "system/file_writer.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

// A cache so small that requests are preempted, a queue so short that some are refused, and an SLO.
constexpr const char* kTight =
    "--set kv_cache.num_blocks=130 --set engine.max_waiting_requests=6 "
    "--set workload.arrivals.rate=60 --set workload.output_tokens.value=300 "
    "--set workload.num_requests=60 --set workload.prompt_tokens.max=1200 --set slo.itl_ms=20 "
    "--set kv_cache.allocation=incremental";

struct Finished {
  ScratchFolder scratch;
  std::string out = scratch.path() + "/out";

  explicit Finished(const std::string& options, const char* variants = "") {
    const std::string file = scratch.write("small.yaml", std::string(kSmallScenario) + variants);
    const CommandResult run = run_metronome("run '" + file + "' -q --out '" + out + "' " + options);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
  }
};

std::string written(void (*write)(const RunRecord&, FileWriter&), const RunRecord& record) {
  const ScratchFolder scratch;
  FileWriter file(scratch.path() + "/lines.jsonl");
  write(record, file);
  file.close();
  return read_text_file(scratch.path() + "/lines.jsonl");
}

}  // namespace

TEST_CASE("a result read back gives the same files again", "[reports][reader]") {
  for (const char* policy : {"continuous", "chunked", "vllm", "static",
                             "vllm --set speculative.method=eagle --set slo.itl_ms=40"}) {
    INFO(policy);
    const Finished run(std::string(kTight) + " --set scheduler.policy=" + policy);
    const StoredRun stored = read_result(run.out);
    const Summary& summary = stored.result.summary;
    if (std::string(policy) == "continuous") {  // the others need not be as tight
      REQUIRE(summary.num_preemptions > 0);
      REQUIRE(summary.refused > 0);
    }
    CHECK(written(write_requests_jsonl, stored.record) ==
          read_text_file(run.out + "/requests.jsonl"));
    CHECK(written(write_steps_jsonl, stored.record) == read_text_file(run.out + "/steps.jsonl"));
    CHECK(summary_json({&stored.result, 1}) == read_text_file(run.out + "/summary.json"));
    CHECK(result_json(stored.result) == read_text_file(run.out + "/result.json"));
  }
}

TEST_CASE("results are found in the order of their summary", "[reports][reader]") {
  const Finished run("", kTwoVariants);
  CHECK(result_folders(run.out) ==
        std::vector<std::string>{run.out + "/whole", run.out + "/pieces"});
  CHECK(result_folders(run.out + "/pieces") == std::vector<std::string>{run.out + "/pieces"});
  CHECK(contains(error_of([&] { (void)result_folders(run.scratch.path()); }),
                 ": contains no result; "));
  CHECK(
      contains(error_of([&] { (void)result_folders("/nowhere"); }), "/nowhere: does not exist; "));
}

TEST_CASE("requests that no run has are refused by line and key", "[reports][reader]") {
  const Finished run(kTight);
  const std::string path = run.out + "/requests.jsonl";
  const std::string original = read_text_file(path);
  struct Case {
    const char* pattern;  // its first occurrence is replaced
    const char* by;
    const char* message;
  };
  const Case cases[] = {
      {R"("request":1,)", R"("request":0,)",
       "requests.jsonl:2: request: is 0, which line 1 has already; allowed: every request once"},
      {R"("request":1,)", R"("request":2,)",
       "requests.jsonl:2: request: is 2, not 1, the next request; allowed: every request once"},
      {R"("arrival_ns":[0-9]+)", R"("arrival_ns":-5)", "requests.jsonl:1: arrival_ns: -5 is out"},
      {R"("first_scheduled_ns":[0-9]+)", R"("first_scheduled_ns":0)",
       "requests.jsonl:1: first_scheduled_ns: is 0, before arrival_ns; allowed: "},
      {R"("last_scheduled_ns":[0-9]+)", R"("last_scheduled_ns":null)",
       "requests.jsonl:1: last_scheduled_ns: is null, but first_scheduled_ns says otherwise"},
      {R"("first_token_ns":[0-9]+)", R"("first_token_ns":1)",
       "requests.jsonl:1: first_token_ns: is 1, before first_scheduled_ns"},
      {R"("first_token_ns":([0-9]+),"last_token_ns":([0-9]+))",
       R"("first_token_ns":$2,"last_token_ns":$1)", "requests.jsonl:1: last_token_ns: is "},
      {R"("first_token_ns":([0-9]+),"last_token_ns":([0-9]+))",
       R"("first_token_ns":$2,"last_token_ns":$2)", "requests.jsonl:1: ttft_ms: does not follow "},
      {R"("ended_ns":[0-9]+)", R"("ended_ns":1)", "requests.jsonl:1: ended_ns: is 1, before "},
      {R"("end":"length")", R"("end":"none")", "requests.jsonl:1: ended_ns: is a time, but end "},
      {R"("prompt_tokens":[0-9]+)", R"("prompt_tokens":0)",
       "requests.jsonl:1: prompt_tokens: is 0; allowed: at least 1"},
      {R"("cached_tokens":0)", R"("cached_tokens":90000)",
       "requests.jsonl:1: cached_tokens: is 90000, more than prompt_tokens; allowed: 0 to "},
      {R"("output_tokens":300)", R"("output_tokens":301)",
       "requests.jsonl:1: output_tokens: is 301, more than max_tokens; allowed: 0 to 300"},
      {R"("prefill_chunks":)", R"("prefill_chunks":1)", "requests.jsonl:1: prefill_chunks: is 1"},
      {R"("preemptions":0)", R"("preemptions":2)", ": preempted_ns: has 0 times, but "},
      {R"("preempted_ns":\[[0-9]+)", R"("preempted_ns":[0)",
       ": preempted_ns[0]: is before the request was scheduled"},
      {R"("queue_ms":)", R"("queue_ms":-1)", "requests.jsonl:1: queue_ms: is negative"},
  };
  for (const Case& c : cases) {
    INFO(c.message);
    const std::string text = std::regex_replace(original, std::regex(c.pattern), c.by,
                                                std::regex_constants::format_first_only);
    REQUIRE(text != original);
    run.scratch.write("out/requests.jsonl", text);
    const std::string message = error_of([&] { (void)read_result(run.out); });
    INFO(message);
    CHECK(contains(message, c.message));
  }
  // Each command that reads a run refuses it.
  run.scratch.write("out/requests.jsonl", original + original);
  const std::string folder = "'" + run.out + "'";
  for (const std::string& command :
       {"diagnose " + folder, "report " + folder, "validate " + folder + " " + folder,
        "calibrate --from " + folder}) {
    INFO(command);
    const CommandResult result = run_metronome(command);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "requests.jsonl:61: request: is 0, which line 1 has already"));
  }
}

TEST_CASE("counts of drafts that do not fit are refused", "[reports][reader]") {
  // Without accepted drafts every step of a request gave one token, as its runs say.
  const std::string eagle = "--set scheduler.policy=vllm --set speculative.method=eagle";
  const Finished rejected(eagle + " --set speculative.acceptance.rate=[0]");
  const Finished accepted(eagle);
  const auto refusal = [](const Finished& run, const std::string& file, const std::string& pattern,
                          const std::string& by, bool everywhere = false) {
    const std::string original = read_text_file(run.out + "/" + file);
    const auto flags =
        everywhere ? std::regex_constants::format_default : std::regex_constants::format_first_only;
    run.scratch.write("out/" + file, std::regex_replace(original, std::regex(pattern), by, flags));
    const std::string message = error_of([&] { (void)read_result(run.out); });
    run.scratch.write("out/" + file, original);
    return message;
  };
  const std::string steps = R"(,"step_tokens":\[[0-9,]*\])";
  CHECK(contains(refusal(rejected, "requests.jsonl", steps, "", true),
                 "requests.jsonl: has no step_tokens; allowed: "));
  CHECK(contains(refusal(rejected, "requests.jsonl", steps, ""), "requests.jsonl:2: "));
  CHECK(contains(refusal(accepted, "requests.jsonl", R"("step_tokens":\[1,)", "\"step_tokens\":["),
                 "requests.jsonl:1: step_tokens: has "));
  CHECK(
      contains(refusal(accepted, "requests.jsonl", R"("step_tokens":\[1,)", "\"step_tokens\":[0,"),
               "requests.jsonl:1: step_tokens[0]: "));
  CHECK(contains(refusal(accepted, "result.json", R"("spec_decode_drafted_per_position": \[)",
                         "\"spec_decode_drafted_per_position\": [9223372036854775806, "),
                 "result.json: spec_decode_drafted_per_position[0]: "));
  CHECK(contains(
      refusal(accepted, "result.json", R"("spec_decode_accepted_per_position": \[\s*[0-9]+,)",
              "\"spec_decode_accepted_per_position\": ["),
      "spec_decode_accepted_per_position: has not as many entries"));
}

TEST_CASE("what is no result is refused by file, line and key", "[reports][reader]") {
  const Finished run("");
  struct Case {
    const char* file;
    const char* from;  // its first occurrence is replaced
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"result.json", "\"metronome_schema\": 1", "\"metronome_schema\": 9",
       "result.json: metronome_schema: is the schema of another version; allowed: 1"},
      {"result.json", "\"seed\": 3", "\"seed\": \"3\"",
       "result.json: seed: is not a whole number; allowed: 0 to "},
      {"result.json", "\"completed\": 20", "\"completed\": 21",
       "requests.jsonl: has 20 completed requests; allowed: 21, as result.json says"},
      {"result.json", "\"label\"", "\"lable\"", "result.json: label: is missing; allowed: "},
      {"result.json", "{", "[", "result.json: is not JSON: "},
      {"steps.jsonl", "\"prefills\":[[0,", "\"prefills\":[[99,",
       "steps.jsonl:1: prefills: has a request that is not in requests.jsonl"},
      {"steps.jsonl", "\"prefills\":[[0,", "\"prefills\":[[",
       "steps.jsonl:1: prefills[0]: has 2 numbers; allowed: 3"},
      {"steps.jsonl", "\"prefill_tokens\":", "\"prefill_tokens\":1",
       "steps.jsonl:1: prefills: has "},
      {"steps.jsonl", "\"started_ns\":", "\"started_ns\":-", "steps.jsonl:1: started_ns: -"},
      {"steps.jsonl", "\"step\":0", "\"step\":0,", "steps.jsonl:1: is not JSON: "},
      {"steps.jsonl", "\"step\":1,", "\"step\":2,",
       "steps.jsonl:2: step: is not 1, the next step; allowed: every step"},
      {"requests.jsonl", "\"runs\":[[0,", "\"runs\":[[999999,",
       "requests.jsonl:1: runs[0]: is not after the previous run, or not within the lines of "
       "steps.jsonl"},
      {"requests.jsonl", "\"output_tokens\":20", "\"output_tokens\":19",
       "requests.jsonl:1: runs: has 20 tokens, but output_tokens is 19"},
      {"requests.jsonl", "\"end\":\"length\"", "\"end\":\"width\"",
       "requests.jsonl:1: end: 'width' is not a known reason for the end of a request"},
  };
  for (const Case& c : cases) {
    INFO(c.message);
    const std::string path = run.out + "/" + c.file;
    const std::string original = read_text_file(path);
    std::string text = original;
    const std::size_t at = text.find(c.from);
    REQUIRE(at != std::string::npos);
    text.replace(at, std::string(c.from).size(), c.to);
    run.scratch.write(std::string("out/") + c.file, text);
    const std::string message = error_of([&] { (void)read_result(run.out); });
    INFO(message);
    CHECK(contains(message, run.out + "/" + c.message));
    run.scratch.write(std::string("out/") + c.file, original);
  }
  std::filesystem::remove(run.out + "/steps.jsonl");
  CHECK(contains(error_of([&] { (void)read_result(run.out); }),
                 "steps.jsonl: missing; allowed: a run with --set results.steps=true"));
}

}  // namespace TEST_FILE
