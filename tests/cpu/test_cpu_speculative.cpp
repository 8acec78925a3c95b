// SPDX-License-Identifier: Apache-2.0
// Speculative decoding with --backend=cpu, from the command line.
#include <filesystem>

#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "cpu/cpu_backend.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/expected.h"

namespace fs = std::filesystem;

namespace metronome::testing::TEST_FILE {
namespace {

constexpr const char* kScenario = R"(seed: 3
model: tiny-llama
engine: {max_num_seqs: 4, max_model_len: 256}
scheduler: {policy: vllm, max_num_batched_tokens: 64}
workload:
  num_requests: 6
  arrivals: {process: poisson, rate: 200}
  prompt_tokens: {distribution: uniform, min: 10, max: 150}
  output_tokens: {distribution: fixed, value: 12}
)";
constexpr const char* kVariants = R"(variants:
  - {name: plain}
  - {name: lookup, speculative: {method: ngram, prompt_lookup_min: 1, prompt_lookup_max: 3}}
  - {name: model, speculative: {method: draft_model, model: tiny-qwen3, num_speculative_tokens: 2}}
  - name: itself
    engine: {async_depth: 2}
    speculative: {method: draft_model, model: tiny-llama, num_speculative_tokens: 4}
  - {name: none, speculative: {method: ngram, num_speculative_tokens: 0}}
)";

}  // namespace

TEST_CASE("variants with and without drafts give the same tokens", "[cpu][cli][drafts]") {
  const ScratchFolder folder;
  const std::string out = folder.path() + "/out";
  const CommandResult run =
      run_metronome("run '" + folder.write("case.yaml", std::string(kScenario) + kVariants) +
                    "' --out '" + out + "' --backend=cpu");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.out.find("the same in every variant") != std::string::npos);
  const auto result = [&](const char* variant) {
    return Json::parse(read_text_file(fs::path(out) / variant / "result.json"));
  };
  CHECK(result("model")["weights"] ==
        "random, from seed 3, 2.5 MiB; drafts by tiny-qwen3, random, from seed 3, 2.5 MiB");
  CHECK(result("plain")["weights"] == "random, from seed 3, 2.5 MiB");
  // Every draft is right: 12 tokens of a request are the prompt's, then up to five a step.
  CHECK(result("itself")["num_steps"].get<int>() < result("plain")["num_steps"].get<int>());
}

TEST_CASE("a draft model takes its share of the memory", "[cpu][drafts]") {
  const ScratchFolder folder;
  const std::string path = folder.write("case.yaml", kScenario);
  const auto num_blocks = [&](std::vector<std::string> assignments) {
    assignments.push_back("cpu.kv_cache_gib=0.001");
    const auto file = load_scenario(path, assignments, std::nullopt, "cpu");
    return CpuBackend().prepare(file.variants[0])->setup.kv_cache.num_blocks;
  };
  // tiny-llama and tiny-qwen3 alike: 4 layers, 2 heads of 32, keys and values in float32.
  CHECK(num_blocks({}) == 1'073'741 / (2048 * 16));
  CHECK(num_blocks({"speculative.method=ngram"}) == 1'073'741 / (2048 * 16));
  CHECK(num_blocks({"speculative.method=draft_model", "speculative.model=tiny-qwen3"}) ==
        1'073'741 / (2 * 2048 * 16));
}

TEST_CASE("drafts that the CPU does not compute", "[cpu][cli][drafts]") {
  const ScratchFolder folder;
  const std::string path = folder.write("case.yaml", kScenario);
  const std::string config =
      read_text_file(fs::path(source_dir()) / "tests/fixtures/models/llama-mha/config.json");
  folder.write("bare/config.json", config);
  Json shorter = Json::parse(config);
  shorter["vocab_size"] = 4096;
  shorter["max_position_embeddings"] = 128;
  folder.write("short/config.json", shorter.dump());
  const std::string model = "--set speculative.method=draft_model --set speculative.model=";
  Answers answers("cpu_backend/drafts.txt");
  for (const std::string& options :
       {std::string("--set speculative.method=eagle"), std::string("--set speculative.method=mtp"),
        model + "mini-llama", model + "gpt-oss-120b", model + "'" + folder.path() + "/bare'",
        model + "'" + folder.path() + "/short' --set weights=random",
        std::string("--set speculative.method=draft_model"),
        std::string("--set speculative.method=ngram --set engine.async_depth=2"),
        std::string("--set speculative.method=ngram --set scheduler.policy=sarathi")}) {
    const CommandResult run = run_metronome("run '" + path + "' --out '" + folder.path() +
                                            "/out' --backend=cpu " + options);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    answers.add(with_name_for(folder.path(), "FOLDER", options),
                with_name_for(folder.path(), "FOLDER", run.err));
  }
}

}  // namespace metronome::testing::TEST_FILE
