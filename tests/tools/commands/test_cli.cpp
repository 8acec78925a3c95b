// SPDX-License-Identifier: Apache-2.0
// The command line as a user meets it: the built program is run, its output and exit code read.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/base/files.h"
#include "core/base/json.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using metronome::Json;
using namespace metronome::testing;

namespace {

const std::string kScenario =
    std::string("description: two ways to prefill\n") + kSmallScenario + kTwoVariants;

struct Workplace {
  ScratchFolder folder;
  std::string scenario = folder.write("small.yaml", kScenario);
  std::string out = folder.path() + "/out";

  CommandResult run(const std::string& options, const std::string& prefix = "") const {
    return run_metronome("run '" + scenario + "' --out '" + out + "' " + options, prefix);
  }
};

// One line, in the form that every error has.
void check_error(const CommandResult& result, int exit_code, const std::string& message) {
  INFO("stderr: " << result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out.empty());
  CHECK(result.err.starts_with("metronome: error: "));
  CHECK(result.err.find('\n') == result.err.size() - 1);
  CHECK(contains(result.err, message));
}

}  // namespace

TEST_CASE("help, version and unknown commands", "[cli]") {
  const CommandResult help = run_metronome("--help");
  CHECK(help.exit_code == 0);
  CHECK(contains(help.out, "usage: metronome COMMAND"));
  CHECK(contains(help.out, "examples:"));
  CHECK(help.err.empty());

  for (const char* command : {"run --help", "run -h", "list --help", "list models --help"}) {
    const CommandResult result = run_metronome(command);
    INFO(command);
    CHECK(result.exit_code == 0);
    CHECK(contains(result.out, "usage: metronome "));
    CHECK(contains(result.out, "examples:"));
  }
  const CommandResult version = run_metronome("--version");
  CHECK(version.exit_code == 0);
  CHECK(version.out.starts_with("metronome "));

  CHECK(run_metronome("").exit_code == 2);
  check_error(run_metronome("lst"), 2, "unknown command 'lst', did you mean 'list'?");
  check_error(run_metronome("rnu x.yaml"), 2, "unknown command 'rnu', did you mean 'run'?");
  check_error(run_metronome("run quickstrat"), 2,
              "quickstrat: no such file or built-in scenario, did you mean 'quickstart'?");
  check_error(run_metronome("bench-serve --scenario quickstart"), 2,
              "bench-serve: no URL; allowed: one, as the argument or as --url URL");
  check_error(run_metronome("bench-serve h:1 --url h:1 --scenario quickstart"), 2,
              "bench-serve: h:1 and --url are two URLs; allowed: one, as the argument or as --url");
  check_error(run_metronome("bench-serve quickstart --url h:1 --scenario quickstart"), 2,
              "bench-serve: quickstart and --scenario are two scenarios; allowed: one");
  check_error(run_metronome("bench-serve quickstart --url 127.0.0.1:1"), 2,
              "--variant: quickstart.yaml has 3 variants");
  // Nothing listens there.
  CHECK(contains(run_metronome("bench-serve --url 127.0.0.1:1/v1 --scenario quickstart "
                               "--variant chunked-512 --out /tmp/none")
                     .err,
                 "http://127.0.0.1:1"));
  check_error(run_metronome("list modles"), 2, "did you mean 'models'?");
  check_error(run_metronome("list"), 2, "list: no topic; allowed: models, hardware, ");
  check_error(run_metronome("run"), 2,
              "run: no SCENARIO given; allowed: a scenario file, --command ");
  check_error(run_metronome("run a.yaml b.yaml"), 2, "give one scenario file");
  check_error(run_metronome("run a.yaml --sett x=1"), 2, "--sett");
  check_error(run_metronome("run a.yaml --seed -1"), 2, "--seed");
}

TEST_CASE("a number that an option does not take has one text of what it takes", "[cli]") {
  struct Row {
    const char* command;
    const char* allowed;
    std::vector<const char*> bad;
  };
  const Row rows[] = {
      {"serve quickstart --speed", "0.001 to 1000000", {"0", "1e7", "-1"}},
      {"serve quickstart --drain-seconds", "0 to 1000000", {"-0.1", "1e7"}},
      {"bench-serve quickstart --url h:1 --timeout", "above 0 to 604800 seconds", {"0", "1e6"}},
      {"chat tiny-llama --temperature", "0 to 2", {"-1", "2.1"}},
      {"tune quickstart --load", "1e-06 to 1000000 requests per second", {"0", "1e7"}},
      {"tune quickstart --attainment", "above 0 to 0.9999", {"0", "1"}},
      {"tune quickstart --time-limit", "above 0 to 10000000 seconds", {"0", "1e8"}},
      {"tune quickstart --seeds", "1 to 100", {"0", "1.5"}},
      {"validate a b --after", "0 to 1000000000 seconds", {"-1", "1e10"}},
      {"calibrate --from a --until", "above 0 to 1000000000 seconds", {"0", "1e10"}},
      {"calibrate --backend cpu --seconds", "1 to 86400", {"0.5", "1e6"}},
      {"diagnose a --target-itl", "0.001 to 3600000 milliseconds", {"0", "4e6"}},
      {"diagnose a --top", "1 to 10000", {"0", "10001"}},
  };
  for (const Row& row : rows) {
    std::vector<const char*> values = row.bad;
    values.insert(values.end(), {"nan", "inf", "abc", "1 2", "0x1p70"});
    for (const char* value : values) {
      const std::string command = std::string(row.command) + " '" + value + "'";
      INFO(command);
      const CommandResult result = run_metronome(command);
      check_error(result, 2, std::string("; allowed: ") + row.allowed);
    }
  }
  check_error(run_metronome("tune quickstart --attainment 99"), 2,
              "--attainment: 99 is out of range, did you mean '0.99'?; allowed: above 0 to 0.9999");
}

TEST_CASE("built-in scenarios run where there is no folder of them", "[cli]") {
  const ScratchFolder folder;
  const CommandResult result =
      run_metronome("run quickstart --variant chunked-512 --set workload.num_requests=4 --out '" +
                    folder.path() + "/out'");
  INFO(result.err);
  CHECK(result.exit_code == 0);
  const CommandResult workload = run_metronome("workload quickstart --json");
  CHECK(workload.exit_code == 0);
  const Json json = Json::parse(workload.out);
  CHECK(json.at("workloads")[0].at("num_requests").get<std::int64_t>() > 0);
  CHECK(json.at("workloads")[0].at("prompt_tokens").at("p50").get<std::int64_t>() > 0);
  CHECK(json.at("workloads")[0].at("variants")[0].at("most_requests_per_s").get<double>() > 0);
}

TEST_CASE("lists", "[cli]") {
  CHECK(contains(run_metronome("list models").out, "qwen3-4b"));
  CHECK(contains(run_metronome("list hardware").out, "h200"));
  CHECK(contains(run_metronome("list policies").out, "single_prefill"));
  CHECK(contains(run_metronome("list scenarios").out, "\nquickstart "));
  CHECK(contains(run_metronome("list scenarios scenarios").out, "scenarios/quickstart.yaml"));
  CHECK(contains(run_metronome("list keys").out, "engine.max_num_seqs"));
  const CommandResult section = run_metronome("list keys slo");
  CHECK(contains(section.out, "slo.itl_ms"));
  CHECK_FALSE(contains(section.out, "engine."));
  check_error(run_metronome("list keys nothing"), 2, "no scenario key 'nothing'");
  check_error(run_metronome("list scenarios /no/such/folder"), 2, "/no/such/folder");
}

TEST_CASE("a workload is described before it runs", "[cli]") {
  const Workplace place;
  const CommandResult result = run_metronome("workload '" + place.folder.path() + "/small.yaml'");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "requests    20\n"));
  CHECK(contains(result.out, "arrivals    poisson, the last after 2.0 s: 10.000 requests/s\n"));
  CHECK(contains(result.out, "\noutput  20.0 "));
  CHECK(contains(result.out, "\noffered         10.00 "));
  for (const char* variant : {"whole on h200 ", "pieces on h200 "}) {
    CHECK(contains(result.out, variant));
  }
  const CommandResult closed =
      run_metronome("workload '" + place.folder.path() +
                    "/small.yaml' --variant whole --set workload.arrivals.process=closed_loop "
                    "--set workload.arrivals.concurrency=3");
  CHECK(contains(closed.out, "arrivals    closed loop of 3 requests\n"));
  CHECK_FALSE(contains(closed.out, "offered"));
  check_error(run_metronome("workload scenarios/sessions.yaml --variant x"), 2, "no variant 'x'");
}

TEST_CASE("sessions run in the simulator alone", "[cli]") {
  const std::string scenario =
      "scenarios/sessions.yaml --set model=tiny-llama --set "
      "engine.max_model_len=2048 --set hardware=h100-sxm ";
  check_error(run_metronome("run " + scenario + "--backend=cpu --out /nowhere/x"), 2,
              "workload.sessions: only the simulator continues sessions; allowed: --backend=sim");
  check_error(run_metronome("tune " + scenario + "--over engine.max_num_seqs=4,8"), 2,
              "workload.sessions: tune has no load of sessions");
}

TEST_CASE("a run leaves its files and says where", "[cli]") {
  const Workplace place;
  const CommandResult result = place.run("");
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "seed        3\n"));
  CHECK(contains(result.out, "whole: policy=continuous"));
  CHECK(contains(result.out, "pieces"));
  CHECK(result.out.ends_with("results: " + place.out + "\n"));

  const auto files = folder_content(place.out);
  for (const char* variant : {"whole", "pieces"}) {
    for (const char* name : {"result.json", "requests.jsonl", "steps.jsonl", "trace.json"}) {
      CHECK(files.count(std::string(variant) + "/" + name) == 1);
    }
  }
  CHECK(files.count("report.html") == 1);
  CHECK(files.size() == 10);
  const auto summary = Json::parse(files.at("summary.json"));
  REQUIRE(summary.size() == 2);
  CHECK(summary[0].at("completed") == 20);
}

TEST_CASE("the same run gives the same bytes", "[cli]") {
  const Workplace a;
  const Workplace b;
  REQUIRE(a.run("--quiet").exit_code == 0);
  REQUIRE(b.run("").exit_code == 0);
  CHECK(folder_content(a.out) == folder_content(b.out));
  // And again into the same folder, which holds a result now.
  const auto before = folder_content(a.out);
  REQUIRE(a.run("--quiet").exit_code == 0);
  CHECK(folder_content(a.out) == before);
  REQUIRE(a.run("--quiet --seed 4").exit_code == 0);
  CHECK(folder_content(a.out) != before);
}

TEST_CASE("quiet, JSON, verbose and step log", "[cli]") {
  const Workplace place;
  const CommandResult quiet = place.run("--quiet");
  CHECK(quiet.exit_code == 0);
  CHECK(quiet.out.empty());
  CHECK(quiet.err.empty());

  const CommandResult json = place.run("--json");
  CHECK(json.exit_code == 0);
  CHECK(Json::parse(json.out).size() == 2);
  CHECK(json.out == folder_content(place.out).at("summary.json"));
  CHECK(contains(json.err, "seed        3\n"));
  const CommandResult quiet_json = place.run("--json --quiet");
  CHECK(quiet_json.out == json.out);
  CHECK(quiet_json.err.empty());

  CHECK(contains(place.run("--verbose").out, "\"gpu_memory_utilization\": 0.9"));
  const CommandResult log = place.run("--trace-steps --variant pieces");
  CHECK(contains(log.out, "prefill 0..128"));
  CHECK_FALSE(contains(log.out, "whole"));
}

TEST_CASE("lost requests are warned of, even when quiet", "[cli]") {
  const Workplace place;
  const CommandResult some = place.run("--quiet --set kv_cache.num_blocks=40");
  CHECK(some.exit_code == 0);
  CHECK(contains(some.err, "warning: whole: "));
  CHECK(contains(some.err, " of 20 requests can never fit; first: request "));

  const CommandResult result =
      place.run("--quiet --set kv_cache.num_blocks=2 --set workload.output_tokens.value=40");
  CHECK(result.out.empty());
  for (const std::string variant : {"whole", "pieces"}) {
    CHECK(contains(result.err, "warning: " + variant +
                                   ": 20 of 20 requests can never fit; first: request 0: needs "));
  }
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 3);

  const CommandResult refused = place.run(
      "--quiet --variant whole --set engine.max_num_seqs=1 --set engine.max_waiting_requests=1");
  INFO(refused.err);
  CHECK(contains(refused.err, " of 20 requests were refused; first: request "));
  CHECK(contains(refused.err, "max_waiting_requests = 1\n"));
}

TEST_CASE("a run in which a variant completes no request fails and keeps its results", "[cli]") {
  const Workplace place;
  const CommandResult result = place.run("--set variants.pieces.kv_cache.num_blocks=1");
  CHECK(result.exit_code == 1);
  CHECK(contains(result.out, "results: "));
  CHECK(contains(result.err,
                 "metronome: error: no request was completed by pieces, for the reason "
                 "in the warning above; the results are in " +
                     place.out + "\n"));
  const Json summary = Json::parse(folder_content(place.out).at("summary.json"));
  CHECK(summary[0].at("completed") == 20);
  CHECK(summary[1].at("completed") == 0);
}

TEST_CASE("results say how requests arrived in the words of vLLM's benchmark", "[cli]") {
  const Workplace place;
  const auto result_with = [&place](const std::string& arrivals) {
    const std::string written = "{process: poisson, rate: 10}";
    std::string text = kScenario;
    text.replace(text.find(written), written.size(), arrivals);
    place.folder.write("small.yaml", text);
    const CommandResult run = place.run("--quiet --variant whole");
    INFO(arrivals << run.err);
    REQUIRE(run.exit_code == 0);
    return Json::parse(folder_content(place.out).at("whole/result.json"));
  };
  CHECK(result_with("{process: poisson, rate: 10}").at("burstiness") == 1);
  const auto constant = result_with("{process: constant, rate: 10}");
  CHECK(constant.at("burstiness") == "inf");
  CHECK(constant.at("request_rate") == 10);
  CHECK(result_with("{process: gamma, rate: 10, burstiness: .inf}").at("burstiness") == "inf");
  CHECK(result_with("{process: gamma, rate: 10, burstiness: 0.5}").at("burstiness") == 0.5);
  const auto bursts = result_with("{process: burst, burst_size: 5, burst_interval_s: 2}");
  CHECK(bursts.at("request_rate") == 2.5);
  CHECK(bursts.at("burstiness") == 1);
  CHECK(result_with("{process: burst}").at("request_rate") == "inf");
  // One burst is all there is.
  CHECK(result_with("{process: burst, burst_size: 20, burst_interval_s: 2}").at("request_rate") ==
        "inf");
}

TEST_CASE("overrides and variants", "[cli]") {
  const Workplace place;
  REQUIRE(place
              .run("--quiet --set workload.num_requests=5 --set engine.max_num_seqs=2 "
                   "--set variants.pieces.scheduler.prefill_chunk_size=64 --seed 9")
              .exit_code == 0);
  const auto pieces = Json::parse(folder_content(place.out).at("pieces/result.json"));
  CHECK(pieces.at("num_prompts") == 5);
  CHECK(pieces.at("config").at("seed") == 9);
  CHECK(pieces.at("config").at("engine").at("max_num_seqs") == 2);
  CHECK(pieces.at("config").at("scheduler").at("prefill_chunk_size") == 64);

  REQUIRE(place.run("--quiet --variant whole").exit_code == 0);
  CHECK_FALSE(fs::exists(place.out + "/pieces"));
  CHECK(fs::exists(place.out + "/whole/result.json"));

  check_error(place.run("--variant piece"), 2, "did you mean 'pieces'?");
  check_error(place.run("--set engine.max_num_seq=1"), 2, "did you mean 'max_num_seqs'?");
  check_error(place.run("--set engine.max_num_seqs=0"), 2, "engine.max_num_seqs");
  check_error(place.run("--set engine"), 2, "--set");
}

TEST_CASE("bad scenarios name file, line and key", "[cli]") {
  const Workplace place;
  const auto check_bad = [&place](const std::string& from, const std::string& to,
                                  const std::string& message) {
    std::string text = kScenario;
    text.replace(text.find(from), from.size(), to);
    place.folder.write("small.yaml", text);
    INFO(to);
    check_error(place.run(""), 2, message);
    CHECK_FALSE(fs::exists(place.out));
  };
  check_bad("max_num_seqs: 8", "max_num_sequences: 8", "small.yaml:5: engine.max_num_sequences");
  check_bad("seed: 3", "seed: three", "small.yaml:2: seed");
  check_bad("rate: 10", "rate: -1", "small.yaml:8: workload.arrivals.rate");
  check_bad("policy: chunked", "policy: static", "small.yaml:13: scheduler.prefill_chunk_size");
  check_bad("workload:", "workload: [", "small.yaml:");
  // An error that shows when the requests are drawn.
  check_bad("  num_requests: 20\n",
            "  sessions: {kind: chat, num_sessions: 1, turns: {value: 200000}, think_time_ms: "
            "{value: 1}}\n",
            "small.yaml:7: workload.sessions: the sessions are too long");
  check_error(run_metronome("run /no/such.yaml"), 2, "/no/such.yaml");
}

TEST_CASE("a folder that holds something else is left alone", "[cli]") {
  const Workplace place;
  place.folder.write("out/letter.txt", "keep me");
  check_error(place.run(""), 2, place.out);
  CHECK(folder_content(place.out) == std::map<std::string, std::string>{{"letter.txt", "keep me"}});

  place.folder.write("file", "not a folder");
  check_error(
      run_metronome("run '" + place.scenario + "' --out '" + place.folder.path() + "/file'"), 2,
      "/file");
  check_error(run_metronome("run '" + place.scenario + "' --out /proc/nobody/results"), 2, "/proc");
}

TEST_CASE("nothing half-written is left behind", "[cli]") {
  const Workplace place;
  const CommandResult interrupted =
      place.run("--set workload.num_requests=300000 --set workload.output_tokens.value=2000",
                interrupted_by("INT", 30));
  INFO(interrupted.err);
  CHECK(interrupted.exit_code == 130);
  CHECK(contains(interrupted.err, "interrupted"));
  // Neither the folder nor a temporary one: only the scenario is there.
  CHECK(folder_content(place.folder.path()).size() == 1);

  // A file size limit makes writing fail in the middle.
  const CommandResult full = place.run("", "ulimit -f 8; trap '' XFSZ;");
  INFO(full.err);
  CHECK(full.exit_code == 1);
  CHECK(contains(full.err, "metronome: error: "));
  CHECK(folder_content(place.folder.path()).size() == 1);
}

TEST_CASE("run takes a server's command, and writes the scenario that it used", "[cli]") {
  const ScratchFolder folder;
  const std::string in_folder = "cd '" + folder.path() + "' && ";
  const std::string command =
      "run --command 'vllm serve Qwen/Qwen3-8B --port 80 --max-num-batched-tokens 2K' --gpu h100 "
      "--rate 2 --prompt 500 --output 50 --requests 20";
  const CommandResult done = run_metronome(command, in_folder);
  INFO(done.err);
  CHECK(done.exit_code == 0);
  CHECK(contains(done.out, "passed over: --port."));
  const std::string yaml = folder.path() + "/results/qwen3-8b_h100_vllm.yaml";
  CHECK(contains(metronome::read_file(yaml).value_or(""), "  max_num_batched_tokens: 2048\n"));
  CHECK(run_metronome("run results/qwen3-8b_h100_vllm.yaml", in_folder).exit_code == 0);
  CHECK(run_metronome(command, in_folder).exit_code == 0);  // a composed file may be replaced
  folder.write("mine.yaml", "model: x\n");
  check_error(run_metronome(command + " --out mine", in_folder), 2,
              "--out: mine.yaml exists and is not a composed scenario");
  check_error(run_metronome(command + " small.yaml", in_folder), 2,
              "run: has both SCENARIO 'small.yaml' and options that describe one");
}

}  // namespace TEST_FILE
