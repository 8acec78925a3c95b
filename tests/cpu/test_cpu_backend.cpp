// SPDX-License-Identifier: Apache-2.0
// `metronome run --backend=cpu`, from the command line to the files it writes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "core/base/base64.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "cpu/cpu_backend.h"
#include "models/weights/safetensors.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/expected.h"
#include "tests/places.h"

namespace TEST_FILE {

namespace fs = std::filesystem;
using metronome::Json;
using namespace metronome::testing;

namespace {

constexpr const char* kScenario = R"(seed: 3
model: tiny-llama
engine: {max_num_seqs: 4, max_model_len: 256}
workload:
  num_requests: 6
  arrivals: {process: poisson, rate: 200}
  prompt_tokens: {distribution: uniform, min: 10, max: 150}
  output_tokens: {distribution: fixed, value: 8}
results: {outputs: true}
)";
constexpr const char* kVariants = R"(variants:
  - {name: whole, scheduler: {policy: continuous}}
  - {name: pieces, scheduler: {policy: chunked, prefill_chunk_size: 16}}
  - {name: slots, kv_cache: {backend: slotted}, engine: {async_depth: 2}}
)";

constexpr const char* kStateVariants = R"(variants:
  - {name: whole, scheduler: {policy: continuous}}
  - {name: pieces, scheduler: {policy: chunked, prefill_chunk_size: 16}}
  - {name: slots, kv_cache: {backend: slotted}, scheduler: {policy: chunked}}
  - {name: blocks, scheduler: {policy: vllm, max_num_batched_tokens: 64}, engine: {async_depth: 2}}
  - {name: uncached, scheduler: {policy: vllm}, kv_cache: {enable_prefix_caching: false}}
  - {name: tight, scheduler: {policy: vllm}, kv_cache: {num_blocks: 24}}
)";

struct Workplace {
  ScratchFolder folder;
  std::string out = folder.path() + "/out";

  CommandResult run(const std::string& scenario, const std::string& options = "") const {
    return run_metronome("run '" + folder.write("case.yaml", scenario) + "' --out '" + out +
                         "' --backend=cpu " + options);
  }
  Json result(const std::string& variant = "") const {
    return Json::parse(read_text_file(fs::path(out) / variant / "result.json"));
  }
  std::vector<Json> lines(const std::string& file) const {
    std::istringstream in(read_text_file(fs::path(out) / file));
    std::vector<Json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }
};

void check_refused(const CommandResult& result, const std::string& message) {
  INFO("stderr: " << result.err);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err.find(message) != std::string::npos);
}

}  // namespace

TEST_CASE("a measured run writes the files of a simulated one", "[cpu][cli]") {
  const Workplace place;
  const CommandResult run = place.run(std::string(kScenario) + kVariants);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("output tokens: ") != std::string::npos);
  CHECK(run.out.find("the same in every variant") != std::string::npos);
  CHECK(run.out.find("random, from seed 3") != std::string::npos);

  const Json whole = place.result("whole");
  CHECK(whole["backend"] == "cpu");
  CHECK(whole["date"] != "19700101-000000");
  CHECK(whole["completed"] == 6);
  CHECK(whole["mean_ttft_ms"].get<double>() > 0.0);
  CHECK(whole["output_digest"].get<std::string>().size() == 16);
  CHECK(whole["output_digest"] == place.result("pieces")["output_digest"]);
  CHECK(whole["output_digest"] == place.result("slots")["output_digest"]);
  CHECK(place.lines("whole/requests.jsonl").size() == 6);
  CHECK(place.lines("whole/steps.jsonl").size() == whole["num_steps"]);
  for (const Json& step : place.lines("whole/steps.jsonl")) {
    CHECK(step["started_ns"].get<std::int64_t>() < step["finished_ns"].get<std::int64_t>());
  }
  const std::vector<Json> outputs = place.lines("whole/outputs.jsonl");
  REQUIRE(outputs.size() == 6);
  CHECK(outputs[5]["request"] == 5);
  CHECK(outputs[5]["token_ids"].size() == 8);
  CHECK(outputs == place.lines("slots/outputs.jsonl"));
}

TEST_CASE("policy slo predicts steps that are computed from `hardware`", "[cpu][cli][slo]") {
  const std::string slo =
      "slo: {itl_ms: 50}\nvariants:\n"
      "  - {name: whole, scheduler: {policy: continuous}}\n"
      "  - {name: timed, scheduler: {policy: slo, tile_tokens: 8}}\n";
  const Workplace place;
  const CommandResult run = place.run(std::string(kScenario) + "hardware: h200\n" + slo);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("the same in every variant") != std::string::npos);
  CHECK(place.result("timed")["completed"] == 6);
  CHECK(place.result("timed")["policy"] == "slo");

  check_refused(Workplace().run(std::string(kScenario) + slo),
                "hardware: required key is missing: policy 'slo' predicts step times; allowed: a "
                "name of the catalogue, or the path of a YAML file with one entry; or "
                "cost_model.file in its place");
}

TEST_CASE("a model folder, through the command line, says what transformers says", "[cpu][cli]") {
  const fs::path models = fs::path(source_dir()) / "tests/fixtures/models";
  for (const char* name : {"llama-gqa2-llama3", "qwen3-gqa2", "gemma3-every6-window16"}) {
    INFO(name);
    const metronome::SafetensorsFile expected((models / name / "expected.safetensors").string());
    const auto ids_of = [&](const char* tensor) {
      const auto bytes = expected.find(tensor)->bytes;
      std::vector<std::int32_t> ids(bytes.size() / sizeof(std::int32_t));
      std::memcpy(ids.data(), bytes.data(), bytes.size());
      return ids;
    };
    const std::vector<std::int32_t> prompt = ids_of("prompt");
    const std::vector<std::int32_t> greedy = ids_of("greedy");
    const Workplace place;
    place.folder.write("trace.jsonl", Json({{"input_toks", prompt.size()},
                                            {"output_toks", greedy.size()},
                                            {"arrival_time_ns", 0},
                                            {"input_tok_ids", prompt}})
                                              .dump() +
                                          "\n");
    const CommandResult run = place.run(
        "model: " + (models / name).string() +
        "\nengine: {max_num_seqs: 1, max_model_len: 256}\n"
        "scheduler: {policy: vllm, max_num_batched_tokens: 16}\n"
        "workload: {trace: trace.jsonl}\nresults: {outputs: true}\nsampling: {logprobs: 2}\n");
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    const Json output = place.lines("outputs.jsonl").at(0);
    CHECK(output["token_ids"] == Json(greedy));
    REQUIRE(output["logprobs"].size() == greedy.size());
    // Greedy: the sampled token is the likeliest.
    CHECK(output["logprobs"][0].size() == 3);
    CHECK(output["logprobs"][0][0] == output["logprobs"][0][1]);
    CHECK(output["logprobs"][0][1][1].get<double>() > output["logprobs"][0][2][1].get<double>());
  }
}

TEST_CASE("pictures of a trace are computed, and a broken one is refused", "[cpu][cli][images]") {
  const std::string fixtures = source_dir() + "/tests/fixtures";
  const auto url_of = [&](const std::string& name) {
    return "data:image/png;base64," +
           metronome::encode_base64(metronome::read_file(fixtures + "/images/" + name).value());
  };
  const auto run = [&](const Workplace& place, const std::string& url) {
    Json image = {{"first_token", 2}, {"rows", 3}, {"columns", 2}, {"content", 5}};
    Json line = {{"input_toks", 10}, {"output_toks", 12}, {"arrival_time_ns", 0}};
    line["input_tok_ids"] = std::vector<int>{1, 2, 9, 9, 9, 9, 9, 9, 3, 4};
    line["images"] = std::vector<Json>{image};
    Json other = line;
    if (!url.empty()) other["images"][0]["url"] = url;
    place.folder.write("trace.jsonl", line.dump() + "\n" + other.dump() + "\n");
    return place.run("model: " + fixtures +
                     "/vision_models/one-image\nengine: {max_num_seqs: 2, max_model_len: 64}\n"
                     "scheduler: {policy: vllm, max_num_batched_tokens: 4}\n"
                     "workload: {trace: trace.jsonl}\nresults: {outputs: true}\n"
                     "sampling: {logprobs: 2}\n");
  };
  std::vector<Json> found;
  for (const std::string& url : {std::string(), url_of("grey.png"), url_of("colours.png")}) {
    const Workplace place;
    const CommandResult result = run(place, url);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    const std::vector<Json> outputs = place.lines("outputs.jsonl");
    REQUIRE(outputs.size() == 2);
    CHECK(outputs[0]["logprobs"] == outputs[1]["logprobs"]);  // one image, one file
    found.push_back(outputs[0]["logprobs"]);
  }
  CHECK(found[0] != found[1]);
  CHECK(found[1] != found[2]);
  check_refused(run(Workplace(), "data:image/png;base64,AAAA"),
                "trace.jsonl:2: images.url: is neither PNG nor JPEG; allowed: ");
}

TEST_CASE("pictures of a folder are computed on drawn weights", "[cpu][cli][images]") {
  const Workplace place;
  const CommandResult run = place.run(
      std::string(kScenario) + kVariants,
      "--set model=tiny-qwen3-vl --set engine.max_model_len=1024 --set workload.images.kind=folder "
      "--set results.steps=true --set workload.images.max_pixels=131072 "
      "--set workload.images.folder='" +
          std::string(source_dir()) + "/tests/fixtures/images'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("the same in every variant") != std::string::npos);
  CHECK(place.result("whole")["completed"] == 6);
  CHECK(place.result("whole")["total_input_tokens"].get<int>() > 6 * 64);
  std::int64_t encode_ns = 0;
  for (const Json& step : place.lines("whole/steps.jsonl")) {
    if (const Json* part = step.find("encode_ns")) encode_ns += part->get<std::int64_t>();
  }
  CHECK(encode_ns > 0);
}

TEST_CASE("every architecture of the catalogue runs on drawn weights", "[cpu][cli]") {
  for (const char* model : {"tiny-llama", "tiny-qwen3", "tiny-gemma3"}) {
    INFO(model);
    const Workplace place;
    const CommandResult run = place.run(kScenario, "--set model=" + std::string(model));
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(place.result()["completed"] == 6);
  }
}

TEST_CASE("a hybrid model's window layers may have block tables of their own", "[cpu][cli]") {
  const Workplace place;
  const std::string gemma =
      "--set model=tiny-gemma3 --set scheduler.policy=vllm --set engine.max_model_len=512 "
      "--set workload.prompt_tokens='{distribution: fixed, value: 300}' ";
  REQUIRE(place.run(kScenario, gemma).exit_code == 0);
  const Json one_table = place.result();
  const CommandResult hybrid = place.run(kScenario, gemma + "--set kv_cache.sliding_window=128");
  INFO(hybrid.err);
  REQUIRE(hybrid.exit_code == 0);
  CHECK(place.result()["output_digest"] == one_table["output_digest"]);
  CHECK(place.result()["peak_kv_use"] != one_table["peak_kv_use"]);

  check_refused(place.run(kScenario, gemma + "--set kv_cache.sliding_window=64"),
                "--set kv_cache.sliding_window: 64 is not the window of tiny-gemma3, 128; allowed: "
                "0 or 128");
  check_refused(
      place.run(kScenario, "--set scheduler.policy=vllm --set kv_cache.sliding_window=64"),
      "64 is not the window of tiny-llama, which has none; allowed: 0");
}

TEST_CASE("stop tokens end requests early", "[cpu][cli]") {
  const Workplace place;
  REQUIRE(place.run(kScenario).exit_code == 0);
  const Json output = place.lines("outputs.jsonl").at(2);
  const std::string stop = output["token_ids"][3].dump();
  REQUIRE(place.run(kScenario, "--set sampling.stop_token_ids=[" + stop + "]").exit_code == 0);
  const Json stopped = place.lines("outputs.jsonl").at(2)["token_ids"];
  CHECK(stopped.size() <= 4);
  CHECK(stopped.back().dump() == stop);
  CHECK(place.lines("requests.jsonl").at(2)["end"] == "stop");
  CHECK(place.result()["completed"] == 6);
}

TEST_CASE("the sampling keys reach the executor", "[cpu][cli]") {
  const Workplace place;
  const auto outputs = [&place](const std::string& options) {
    const CommandResult run = place.run(kScenario, options);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return place.lines("outputs.jsonl");
  };
  const auto greedy = outputs("");
  const std::string hot = "--set sampling.temperature=2 ";
  const auto drawn = outputs(hot);
  CHECK(drawn != greedy);
  CHECK(outputs(hot) == drawn);
  CHECK(outputs(hot + "--set sampling.seed=3") == drawn);  // the scenario's
  CHECK(outputs(hot + "--set sampling.seed=4") != drawn);
  // Each leaves nothing but the likeliest token.
  CHECK(outputs(hot + "--set sampling.top_k=1") == greedy);
  CHECK(outputs(hot + "--set sampling.top_p=1e-6") == greedy);
  CHECK(outputs(hot + "--set sampling.min_p=1") == greedy);
}

TEST_CASE("variants have weights, threads and memory of their own", "[cpu][cli]") {
  const Workplace place;
  const CommandResult run = place.run(
      std::string(kScenario) +
      "variants:\n"
      "  - {name: one, cpu: {threads: 1}}\n"
      "  - {name: three, cpu: {threads: 3}}\n"
      "  - {name: other, cpu: {threads: 1}, seed: 4}\n"
      "  - {name: small, cpu: {threads: 1, kv_cache_gib: 0.001}, kv_cache: {block_size: 32}}\n");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("output tokens differ") != std::string::npos);
  const Json one = place.result("one");
  const Json three = place.result("three");
  CHECK(three["output_digest"] == one["output_digest"]);
  CHECK(place.result("small")["output_digest"] == one["output_digest"]);
  CHECK(place.result("other")["output_digest"] != one["output_digest"]);
  CHECK(one["hardware"].get<std::string>().find(", 1 threads") != std::string::npos);
  CHECK(three["hardware"].get<std::string>().find(", 3 threads") != std::string::npos);
  CHECK(one["num_kv_blocks"] == 4 * 256 / 16);  // as many as max_num_seqs requests can use
  // 4 layers, 2 heads of 32, keys and values in float32: 2,048 bytes a token.
  CHECK(place.result("small")["num_kv_blocks"] == 1'073'741 / (2048 * 32));
}

TEST_CASE("blocks that were never filled are forgotten where there is arithmetic", "[cpu]") {
  const ScratchFolder folder;
  const auto file = metronome::load_scenario(folder.write("case.yaml", kScenario),
                                             {"scheduler.policy=vllm"}, std::nullopt, "cpu");
  metronome::CpuBackend backend;
  CHECK(backend.prepare(file.variants[0])->setup.kv_cache.forgets_unfilled_blocks);
}

TEST_CASE("a model in the current folder is its files, however it is named", "[cpu][cli]") {
  const fs::path fixture = fs::path(source_dir()) / "tests/fixtures/models/llama-mha";
  std::vector<std::string> digests;
  for (const char* name : {".", "./config.json", "config.json"}) {
    INFO(name);
    const Workplace place;
    for (const char* file : {"config.json", "model.safetensors"}) {
      fs::copy_file(fixture / file, fs::path(place.folder.path()) / file);
    }
    place.folder.write("case.yaml", kScenario);
    const CommandResult run =
        run_metronome("run case.yaml --backend=cpu --set model=" + std::string(name),
                      "cd '" + place.folder.path() + "' &&");
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(run.out.find("files in .") != std::string::npos);
    digests.push_back(run.out.substr(run.out.find("output tokens: "), 31));
  }
  CHECK(digests[0] == digests[1]);
  CHECK(digests[0] == digests[2]);
}

TEST_CASE("measured results do not take the place of simulated ones", "[cpu][cli]") {
  const ScratchFolder folder;
  folder.write("case.yaml", std::string(kScenario) + "hardware: h200\n");
  const auto run = [&folder](const std::string& options) {
    const CommandResult result =
        run_metronome("run case.yaml " + options, "cd '" + folder.path() + "' &&");
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    CHECK(result.err.find("replaced") == std::string::npos);
  };
  run("");
  run("--backend=cpu");
  CHECK(fs::exists(folder.path() + "/results/case/result.json"));
  CHECK_FALSE(fs::exists(folder.path() + "/results/case/outputs.jsonl"));
  CHECK(fs::exists(folder.path() + "/results/case.cpu/outputs.jsonl"));
}

TEST_CASE("Ctrl-C does not wait for a long forward pass", "[cpu][cli]") {
  const Workplace place;
  const std::string scenario = place.folder.write(
      "long.yaml",
      "model: mini-llama\nengine: {max_model_len: 32768}\nscheduler: {policy: continuous}\n"
      "workload: {num_requests: 1, arrivals: {process: burst},\n"
      "  prompt_tokens: {distribution: fixed, value: 30000},\n"
      "  output_tokens: {distribution: fixed, value: 2}}\n");
  const CommandResult run = run_metronome(
      "run '" + scenario + "' --out '" + place.out + "' --backend=cpu", interrupted_by("INT", 100));
  CHECK(run.exit_code == 130);
  CHECK(run.err == "metronome: interrupted, no results written\n");
  CHECK(std::distance(fs::directory_iterator(place.folder.path()), {}) == 1);
}

TEST_CASE("weights of another model are warned of", "[cpu][cli]") {
  const Workplace place;
  const fs::path fixture = fs::path(source_dir()) / "tests/fixtures/models/llama-mha";
  Json config = Json::parse(read_text_file(fixture / "config.json"));
  config["num_hidden_layers"] = 1;
  place.folder.write("m/config.json", config.dump());
  fs::copy_file(fixture / "model.safetensors",
                fs::path(place.folder.path()) / "m/model.safetensors");
  const CommandResult run = place.run(kScenario, "--set model='" + place.folder.path() + "/m'");
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("9 tensors are not used") != std::string::npos);
  CHECK(place.result()["weights"].get<std::string>().starts_with("files in "));
}

TEST_CASE("what a backend that computes cannot do", "[cpu][cli]") {
  const Workplace place;
  const std::string folder = place.folder.path();
  Answers answers("cpu_backend/refusals.txt");
  const auto add = [&](const std::string& question, const CommandResult& result) {
    check_refused(result, "metronome: error: ");
    answers.add(with_name_for(folder, "FOLDER", question),
                with_name_for(folder, "FOLDER", result.err));
  };
  const std::string config =
      read_text_file(fs::path(source_dir()) / "tests/fixtures/models/llama-mha/config.json");
  place.folder.write("bare/config.json", config);
  Json other = Json::parse(config);
  other["hidden_act"] = "relu";
  place.folder.write("other/config.json", other.dump());
  for (const std::string& options :
       {"--set model='" + folder + "/bare'",
        "--set model='" + folder + "/other' --set weights=random",
        std::string("--set kv_cache.block_size=1024 --set cpu.kv_cache_gib=0.001"),
        std::string("--set sampling.stop_token_ids=[5,4096]"),
        std::string("--set backends.cpu.model=tiny-qwen3")}) {
    add(options, place.run(kScenario, options));
  }
  place.folder.write("trace.jsonl",
                     "{\"input_toks\": 2, \"output_toks\": 1, \"arrival_time_ns\": 0, "
                     "\"input_tok_ids\": [7, 100000]}\n");
  add("a trace", place.run("model: tiny-llama\nworkload: {trace: trace.jsonl}\n"));
  check_refused(place.run(kScenario, "--set model=llama-3.1-70b"),
                "--set model: the weights of llama-3.1-70b take 131.4 GiB; the machine has ");
  check_refused(place.run(kScenario, "--set kv_cache.num_blocks=60000000"),
                "--set kv_cache.num_blocks: the KV cache takes 1831.1 GiB; the machine has ");
  CHECK_FALSE(fs::exists(place.out));
  for (const char* backend : {"cuda", "gpu"}) {
    const std::string run = "run scenarios/quickstart.yaml --backend=" + std::string(backend);
    add(run, run_metronome(run));
  }
}

TEST_CASE("a model with recurrent states says the same under every policy", "[cpu][cli][states]") {
  const Workplace place;
  const std::string scenario = std::string(kScenario) + kStateVariants;
  const std::string model = " --set model=" + source_dir() + "/tests/fixtures/models/qwen3-next";
  const CommandResult run = place.run(scenario, model);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("the same in every variant") != std::string::npos);
  for (const char* variant : {"pieces", "slots", "blocks", "uncached", "tight"}) {
    INFO(variant);
    CHECK(place.result(variant)["completed"] == 6);
    CHECK(place.result(variant)["output_digest"] == place.result("whole")["output_digest"]);
  }

  check_refused(place.run(kScenario, model + " --set scheduler.policy=sglang"),
                "kv_cache.enable_prefix_caching: policy sglang caches no states");
  check_refused(place.run(kScenario, model + " --set scheduler.policy=vllm"
                                             " --set speculative.method=ngram"),
                "speculative.method: drafts are not computed with the states of");
}

}  // namespace TEST_FILE
