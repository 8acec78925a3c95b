// SPDX-License-Identifier: Apache-2.0
// Settings that vLLM's and SGLang's servers choose. The tables below are the answers of the
// engines' own functions (get_batch_defaults, handle_gpu_memory_settings), run for these GPUs.
#include <algorithm>

#include "core/base/json.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/scenario.h"
#include "engines/sglang/serve_defaults.h"
#include "engines/sglang/settings.h"
#include "engines/vllm/serve_defaults.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/expected.h"

namespace metronome::TEST_FILE {
namespace {

constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

HardwareSpec gpu(const std::string& name, double gib, double compute_capability) {
  HardwareSpec spec;
  spec.name = name;
  spec.memory_bytes = static_cast<std::int64_t>(gib * kGib);
  spec.compute_capability = compute_capability;
  return spec;
}

HardwareSpec known(const std::string& name) { return find_hardware(name, {}); }

// Memory as the CUDA runtime reports it.
const HardwareSpec kB200 = gpu("NVIDIA B200", 178.35, 10.0);
const HardwareSpec kB300 = gpu("NVIDIA B300", 267.6, 10.3);
const HardwareSpec kSmallA100 = gpu("NVIDIA A100-SXM4-40GB", 39.49, 8.0);
const HardwareSpec kL4 = gpu("NVIDIA L4", 22.05, 8.9);
const HardwareSpec kGb10 = gpu("NVIDIA GB10", 119.6, 12.1);

const ServeDefault& find(const std::vector<ServeDefault>& defaults, const std::string& key) {
  for (const ServeDefault& found : defaults) {
    if (found.key == key) return found;
  }
  FAIL("no default of " << key);
  return defaults.front();
}

std::string value(const std::vector<ServeDefault>& defaults, const std::string& key) {
  return find(defaults, key).value;
}

// "8192 1024": tokens and sequences.
std::string batch(int minor, const HardwareSpec& gpu, const VllmServeOptions& chosen = {}) {
  const auto defaults = vllm_serve_defaults(minor, gpu, chosen);
  return value(defaults, "scheduler.max_num_batched_tokens") + " " +
         value(defaults, "engine.max_num_seqs");
}

std::string budget_reason(int minor, const HardwareSpec& gpu, const VllmServeOptions& chosen = {}) {
  return find(vllm_serve_defaults(minor, gpu, chosen), "scheduler.max_num_batched_tokens").reason;
}

std::string graph_tokens(int minor, const HardwareSpec& gpu, const VllmServeOptions& chosen = {}) {
  return value(vllm_serve_defaults(minor, gpu, chosen), "cost_model.max_graph_tokens");
}

// "8192 256 0.829": chunk, largest decode graph, share of memory.
std::string sglang(const HardwareSpec& gpu, const SglangServeOptions& chosen = {}) {
  const auto defaults = sglang_serve_defaults(gpu, chosen);
  return value(defaults, "scheduler.chunked_prefill_size") + " " +
         value(defaults, "cost_model.max_graph_tokens") + " " +
         value(defaults, "cost_model.gpu_memory_utilization");
}

TEST_CASE("vLLM's batch limits follow GPU and version", "[core][scenario]") {
  for (int minor = 19; minor <= 33; ++minor) {
    INFO("vLLM 0." << minor);
    for (const char* large : {"h100-sxm", "h200", "rtx-pro-6000"}) {
      INFO(large);
      CHECK(batch(minor, known(large)) == "8192 1024");
    }
    for (const char* small : {"a100-80gb", "l40s", "rtx-4090", "rtx-5080"}) {
      INFO(small);
      CHECK(batch(minor, known(small)) == "2048 256");
    }
    CHECK(batch(minor, kSmallA100) == "2048 256");
    CHECK(batch(minor, kL4) == "2048 256");
    CHECK(batch(minor, kB200) == (minor >= 28 ? "16384 1024" : "8192 1024"));
    CHECK(batch(minor, kGb10) == (minor >= 33 ? "2048 256" : "8192 1024"));
  }
}

TEST_CASE("vLLM's limits of memory are exact", "[core][scenario]") {
  const auto with_bytes = [](std::int64_t bytes) {
    HardwareSpec spec;
    spec.memory_bytes = bytes;
    return spec;
  };
  constexpr std::int64_t kOneGib = std::int64_t{1} << 30;
  CHECK(batch(33, with_bytes(70 * kOneGib - 1)) == "2048 256");
  CHECK(batch(33, with_bytes(70 * kOneGib)) == "8192 1024");
  CHECK(batch(33, with_bytes(160 * kOneGib - 1)) == "8192 1024");
  CHECK(batch(33, with_bytes(160 * kOneGib)) == "16384 1024");
}

TEST_CASE("vLLM's other defaults follow the version", "[core][scenario]") {
  for (int minor = 19; minor <= 33; ++minor) {
    INFO("vLLM 0." << minor);
    const auto defaults = vllm_serve_defaults(minor, known("h100-sxm"), {});
    CHECK(defaults.size() == 8);
    CHECK(value(defaults, "engine.async_depth") == "2");
    CHECK(value(defaults, "scheduler.enable_chunked_prefill") == "true");
    CHECK(value(defaults, "kv_cache.enable_prefix_caching") == "true");
    CHECK(value(defaults, "kv_cache.block_size") == "16");
    CHECK(value(defaults, "cost_model.gpu_memory_utilization") == (minor >= 20 ? "0.92" : "0.9"));
    CHECK(graph_tokens(minor, known("h100-sxm")) == "512");
    CHECK(graph_tokens(minor, kB200) == (minor >= 28 ? "1024" : "512"));
    CHECK(graph_tokens(minor, kB300) == (minor >= 28 ? "1024" : "512"));
    CHECK(graph_tokens(minor, known("rtx-5080")) == "512");  // Blackwell, but no data centre's
  }
}

TEST_CASE("vLLM's defaults follow what the user chose", "[core][scenario]") {
  const HardwareSpec h100 = known("h100-sxm");
  // A smaller budget limits the sequences, and both the graphs.
  const VllmServeOptions small_budget = {.max_num_batched_tokens = 300};
  CHECK(batch(33, h100, small_budget) == "300 300");
  CHECK(graph_tokens(33, h100, small_budget) == "300");
  CHECK(graph_tokens(33, h100, {.max_num_seqs = 100}) == "200");
  CHECK(graph_tokens(33, h100, {.max_num_seqs = 100, .max_num_batched_tokens = 128}) == "128");
  CHECK(graph_tokens(33, h100, {.max_num_seqs = 20, .num_speculative_tokens = 3}) == "160");
  // Few short requests need no large budget, and a prompt that is not chunked needs all of it.
  CHECK(batch(33, h100, {.max_num_seqs = 2, .max_model_len = 1000}) == "2000 2");
  CHECK(batch(33, h100, {.max_model_len = 40960, .enable_chunked_prefill = false}) == "40960 1024");
  CHECK(batch(33, h100, {.max_model_len = 4096, .enable_chunked_prefill = false}) == "8192 1024");
  CHECK(batch(33, h100, {.max_model_len = 40960}) == "8192 1024");
  CHECK(batch(33, known("rtx-4090"), {.max_num_seqs = 1, .max_model_len = 512}) == "512 1");
}

TEST_CASE("vLLM's defaults follow speculative decoding", "[core][scenario]") {
  const HardwareSpec h100 = known("h100-sxm");
  // A decode has so many tokens more.
  CHECK(graph_tokens(33, h100, {.max_num_seqs = 20, .num_speculative_tokens = 3}) == "160");
  CHECK(graph_tokens(33, h100, {.max_num_seqs = 100, .num_speculative_tokens = 3}) == "512");
  const auto depth = [&](const VllmServeOptions& chosen) {
    return value(vllm_serve_defaults(33, h100, chosen), "engine.async_depth");
  };
  CHECK(depth({.num_speculative_tokens = 3}) == "2");
  CHECK(depth({.num_speculative_tokens = 3, .looks_up_drafts = true}) == "1");
}

TEST_CASE("reasons say what decided", "[core][scenario]") {
  CHECK(budget_reason(33, known("h100-sxm")) ==
        "vLLM 0.33 serve default for a GPU of 70 GiB or more");
  CHECK(budget_reason(22, kB200) == "vLLM 0.22 serve default for a GPU of 70 GiB or more");
  CHECK(budget_reason(28, kB200) == "vLLM 0.28 serve default for a GPU of 160 GiB or more");
  CHECK(budget_reason(25, kL4) == "vLLM 0.25 serve default for a GPU below 70 GiB");
  CHECK(budget_reason(25, kSmallA100) == "vLLM 0.25 serve default for a GPU below 70 GiB");
  CHECK(budget_reason(25, known("a100-80gb")) ==
        "vLLM 0.25 serve default for A100, whatever its memory");
  CHECK(budget_reason(33, kGb10) == "vLLM 0.33 serve default for GB10, whatever its memory");
  CHECK(budget_reason(33, known("h200"), {.max_num_seqs = 2, .max_model_len = 1000}) ==
        "vLLM 0.33 serve default: max_num_seqs x max_model_len");
  CHECK(
      budget_reason(33, known("h200"), {.max_model_len = 40960, .enable_chunked_prefill = false}) ==
      "vLLM 0.33 serve default: max_model_len, because prompts are not chunked");
  CHECK(find(sglang_serve_defaults(kB200, {}), "scheduler.chunked_prefill_size").reason ==
        "SGLang 0.5.23 launch default for a GPU of 160 GiB or more");
  CHECK(
      find(sglang_serve_defaults(known("h100-sxm"), {}), "scheduler.chunked_prefill_size").reason ==
      "SGLang 0.5.23 launch default for a GPU of 60 to 90 GiB");
  CHECK(
      find(sglang_serve_defaults(known("rtx-5080"), {}), "scheduler.chunked_prefill_size").reason ==
      "SGLang 0.5.23 launch default for a GPU below 20 GiB");
}

TEST_CASE("SGLang's chunk, graphs and memory follow the GPU", "[core][scenario]") {
  CHECK(sglang(known("h100-sxm")) == "8192 256 0.829");
  CHECK(sglang(known("h200")) == "8192 256 0.903");
  CHECK(sglang(kB200) == "16384 512 0.853");
  CHECK(sglang(kSmallA100) == "4096 32 0.821");
  CHECK(sglang(known("a100-80gb")) == "8192 256 0.829");
  CHECK(sglang(kL4) == "4096 48 0.678");
  CHECK(sglang(known("rtx-4090")) == "4096 48 0.698");
  CHECK(sglang(known("l40s")) == "4096 32 0.839");
  CHECK(sglang(known("rtx-pro-6000")) == "8192 256 0.857");
  CHECK(sglang(known("rtx-5080")) == "2048 8 0.744");
  CHECK(sglang(kGb10) == "8192 256 0.886");
}

TEST_CASE("SGLang's defaults follow what the user chose", "[core][scenario]") {
  const HardwareSpec h100 = known("h100-sxm");
  CHECK(sglang(h100, {.tensor_parallel_size = 4}) == "8192 512 0.817");
  CHECK(sglang(known("rtx-4090"), {.tensor_parallel_size = 4}) == "4096 160 0.672");
  CHECK(sglang(h100, {.max_num_seqs = 64}) == "8192 64 0.833");
  // A tower of 1,152 dimensions: 0.95 * (1 - 0.1 * (1.2656 - 1)) of the share.
  CHECK(sglang(h100, {.vision_dim = 1152}) == "8192 256 0.767");
  const auto share = [&h100](const SglangServeOptions& chosen) {
    return value(sglang_serve_defaults(h100, chosen), "cost_model.gpu_memory_utilization");
  };
  CHECK(share({.chunked_prefill_size = 2048}) == "0.874");
  CHECK(share({.chunked_prefill_size = -1}) == "0.683");
  CHECK(share({.chunked_prefill_size = -1, .max_prefill_tokens = 32768}) == "0.380");
  // A GPU without room for what SGLang keeps free.
  CHECK(value(sglang_serve_defaults(gpu("tiny", 2, 8.0), {}),
              "cost_model.gpu_memory_utilization") == "0.010");
}

TEST_CASE("SGLang's other defaults", "[core][scenario]") {
  const auto defaults = sglang_serve_defaults(known("h100-sxm"), {});
  CHECK(defaults.size() == 11);
  CHECK(value(defaults, "scheduler.max_prefill_tokens") == "16384");
  CHECK(value(defaults, "scheduler.enable_mixed_chunk") == "false");
  CHECK(value(defaults, "scheduler.schedule_policy") == "fcfs");
  CHECK(value(defaults, "scheduler.schedule_conservativeness") == "1");
  CHECK(value(defaults, "engine.max_num_seqs") == "2048");
  CHECK(value(defaults, "engine.async_depth") == "2");
  CHECK(value(defaults, "kv_cache.enable_prefix_caching") == "true");
  CHECK(value(defaults, "kv_cache.block_size") == "1");
  CHECK(value(sglang_serve_defaults(kB200, {}), "kv_cache.block_size") == "64");
  CHECK(value(sglang_serve_defaults(known("rtx-pro-6000"), {}), "kv_cache.block_size") == "1");
}

// ---- in a scenario ----

constexpr const char* kChat = R"(model: llama-3.1-8b
hardware: h100-sxm
engine: {max_model_len: 16384}
workload:
  num_requests: 4
  arrivals: {process: poisson, rate: 2}
  prompt_tokens: {distribution: fixed, value: 100}
  output_tokens: {distribution: fixed, value: 10}
)";

Scenario scenario(const std::vector<std::string>& assignments) {
  return parse_scenario(kChat, "chat.yaml", assignments).variants.front();
}

std::vector<std::string> keys_of(const Scenario& scenario) {
  std::vector<std::string> keys;
  for (const ServeDefault& added : scenario.serve_defaults) keys.push_back(added.key);
  return keys;
}

// The sections with such defaults: up to `sampling`.
TEST_CASE("the resolved config says why it has a server's defaults", "[core][scenario]") {
  const auto sections = [](const std::string& policy) {
    const std::string text = scenario({"scheduler.policy=" + policy}).to_yaml();
    return text.substr(0, text.find("  \"sampling\""));
  };
  testing::check_expected("serve_defaults/vllm.txt", sections("vllm"));
  testing::check_expected("serve_defaults/sglang.txt", sections("sglang"));
}

TEST_CASE("a scenario takes the defaults of its version", "[core][scenario]") {
  const Scenario old = scenario({"scheduler.policy=vllm", "scheduler.version=0.19"});
  CHECK(old.cost_model.gpu_memory_utilization == 0.9);
  CHECK(old.scheduler.max_num_batched_tokens == 8192);
  CHECK(old.engine.max_num_seqs == 1024);
  CHECK(old.engine.async_depth == 2);
  const Scenario small = scenario({"scheduler.policy=vllm", "hardware=a100-80gb"});
  CHECK(small.cost_model.gpu_memory_utilization == 0.92);
  CHECK(small.scheduler.max_num_batched_tokens == 2048);
  CHECK(small.engine.max_num_seqs == 256);
}

TEST_CASE("what the user sets wins over a server's default", "[core][scenario]") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"vllm",
       {"scheduler.max_num_batched_tokens=4096", "engine.max_num_seqs=100", "engine.async_depth=1",
        "scheduler.enable_chunked_prefill=true", "kv_cache.enable_prefix_caching=false",
        "kv_cache.block_size=32", "cost_model.gpu_memory_utilization=0.8",
        "cost_model.max_graph_tokens=64"}},
      {"sglang",
       {"scheduler.chunked_prefill_size=2048", "scheduler.max_prefill_tokens=8192",
        "scheduler.enable_mixed_chunk=true", "scheduler.schedule_policy=lpm",
        "scheduler.schedule_conservativeness=0.5", "engine.max_num_seqs=100",
        "engine.async_depth=1", "kv_cache.enable_prefix_caching=false", "kv_cache.block_size=16",
        "cost_model.gpu_memory_utilization=0.8", "cost_model.max_graph_tokens=64"}},
  };
  for (const auto& [policy, assignments] : cases) {
    const Scenario plain = scenario({"scheduler.policy=" + policy});
    CHECK(plain.serve_defaults.size() == assignments.size());
    for (const std::string& assignment : assignments) {
      INFO(policy << ", " << assignment);
      const std::string key(assignment_key(assignment));
      const Scenario own = scenario({"scheduler.policy=" + policy, assignment});
      const std::vector<std::string> plain_keys = keys_of(plain), own_keys = keys_of(own);
      CHECK(std::count(plain_keys.begin(), plain_keys.end(), key) == 1);
      CHECK(std::count(own_keys.begin(), own_keys.end(), key) == 0);
      CHECK(own_keys.size() == plain_keys.size() - 1);
      const std::string shown = "\"" + key.substr(key.find('.') + 1) +
                                "\": " + assignment.substr(assignment.find('=') + 1);
      const bool is_word = assignment.ends_with("=lpm");
      CHECK(own.to_yaml().find(is_word ? "\"schedule_policy\": \"lpm\"" : shown) !=
            std::string::npos);
    }
    std::vector<std::string> all = assignments;
    all.push_back("scheduler.policy=" + policy);
    CHECK(scenario(all).serve_defaults.empty());
    CHECK(scenario(all).to_yaml() == scenario(all).to_json());
  }
}

TEST_CASE("auto and null ask for a server's default", "[core][scenario]") {
  const std::string plain = scenario({"scheduler.policy=vllm"}).to_yaml();
  CHECK(scenario({"scheduler.policy=vllm", "scheduler.max_num_batched_tokens=auto",
                  "kv_cache.enable_prefix_caching=auto", "cost_model.max_graph_tokens=auto"})
            .to_yaml() == plain);
  // Sections without other keys.
  CHECK(parse_scenario(std::string(kChat) + "kv_cache: {}\ncost_model: {max_graph_tokens: auto}\n",
                       "chat.yaml", {"scheduler.policy=vllm"})
            .variants.front()
            .to_yaml() == plain);
}

TEST_CASE("a resolved config with a server's defaults reads back as itself", "[core][scenario]") {
  for (const char* policy : {"vllm", "sglang"}) {
    const Scenario first = scenario({std::string("scheduler.policy=") + policy});
    CHECK_FALSE(first.serve_defaults.empty());
    const Scenario again = parse_scenario(first.to_yaml(), "resolved.yaml", {}).variants.front();
    CHECK(again.to_json() == first.to_json());
    CHECK(again.serve_defaults.empty());
  }
}

TEST_CASE("without a known GPU or server, today's defaults hold", "[core][scenario]") {
  const auto check_plain = [](const std::vector<std::string>& assignments) {
    const Scenario plain = scenario(assignments);
    INFO(plain.to_yaml());
    CHECK(plain.serve_defaults.empty());
    CHECK(plain.engine.max_num_seqs == 256);
    CHECK(plain.engine.async_depth == 1);
    CHECK(plain.kv_cache.block_size == 16);
    CHECK(plain.cost_model.gpu_memory_utilization == 0.9);
    CHECK_FALSE(plain.cost_model.max_graph_tokens.has_value());
  };
  for (const std::string policy : {"vllm", "sglang"}) {
    check_plain({"scheduler.policy=" + policy, "hardware=''"});
    check_plain({"scheduler.policy=" + policy, "hardware=gpu-of-mine"});
    check_plain({"scheduler.policy=" + policy, "hardware=/"});
  }
  check_plain({"scheduler.policy=token_budget"});
  check_plain({"scheduler.policy=nano_vllm"});
  check_plain({"scheduler.policy=tensorrt_llm"});
}

TEST_CASE("a GPU of a file has a server's defaults", "[core][scenario]") {
  const testing::ScratchFolder folder;
  const std::string file =
      folder.write("b200.yaml",
                   "b200: {peak_flops: 2.25e15, peak_bandwidth: 8e12, memory_bytes: 191500000000, "
                   "compute_capability: 10.0}\n");
  const Scenario now = scenario({"scheduler.policy=vllm", "hardware=" + file});
  CHECK(now.scheduler.max_num_batched_tokens == 16384);
  CHECK(now.cost_model.max_graph_tokens == 1024);
  const Scenario old =
      scenario({"scheduler.policy=vllm", "scheduler.version=0.25", "hardware=" + file});
  CHECK(old.scheduler.max_num_batched_tokens == 8192);
  CHECK(old.cost_model.max_graph_tokens == 512);
  const Scenario sglang = scenario({"scheduler.policy=sglang", "hardware=" + file});
  CHECK(sglang.scheduler.settings<SglangConfig>().chunked_prefill_size == 16384);
  CHECK(sglang.kv_cache.block_size == 64);
}

TEST_CASE("a server's defaults fit the rest of a scenario", "[core][scenario]") {
  // A pool counted in blocks keeps their size.
  const Scenario pool = scenario({"scheduler.policy=sglang", "kv_cache.num_blocks=500"});
  CHECK(pool.kv_cache.block_size == 16);
  CHECK(scenario({"scheduler.policy=sglang"}).kv_cache.block_size == 1);
  // Slots have no blocks.
  const std::vector<std::string> slots =
      keys_of(scenario({"scheduler.policy=vllm", "kv_cache.backend=slotted"}));
  CHECK(std::count(slots.begin(), slots.end(), "kv_cache.block_size") == 0);
  CHECK(std::count(slots.begin(), slots.end(), "engine.max_num_seqs") == 1);
  // Whole prompts need a step as long as the longest: that of the scenario, else of the model.
  const Scenario whole =
      scenario({"scheduler.policy=vllm", "scheduler.enable_chunked_prefill=false"});
  CHECK(whole.scheduler.max_num_batched_tokens == 16384);
  const Scenario model = scenario({"scheduler.policy=vllm", "engine.max_model_len=auto",
                                   "scheduler.enable_chunked_prefill=false"});
  CHECK(model.scheduler.max_num_batched_tokens == 131072);
  // Other keys stay as they are.
  CHECK(pool.engine.max_model_len == 16384);
  CHECK(pool.location_of("engine.max_num_seqs").line == 3);
}

TEST_CASE("limits that do not fit a server's default are refused", "[core][scenario]") {
  CHECK(testing::error_of([] {
          scenario({"scheduler.policy=vllm", "hardware=rtx-4090", "engine.max_num_seqs=4096"});
        }) ==
        "--set engine.max_num_seqs: 4096 is more than scheduler.max_num_batched_tokens 2048, but "
        "each running request needs one token in each step; allowed: at most 2048");
  CHECK(scenario({"scheduler.policy=vllm", "scheduler.max_num_batched_tokens=100"})
            .engine.max_num_seqs == 100);
}

// ---- shown and written ----

TEST_CASE("a run shows and writes a server's defaults", "[cli]") {
  const testing::ScratchFolder folder;
  const std::string file = folder.write("chat.yaml", kChat);
  const auto run = [&](const std::string& options) {
    return testing::run_metronome("run '" + file + "' --out '" + folder.path() + "/out' " +
                                  options);
  };
  const testing::CommandResult plain = run("--set scheduler.policy=vllm");
  INFO(plain.err);
  REQUIRE(plain.exit_code == 0);
  CHECK(testing::contains(plain.out, "defaults    chat: scheduler.max_num_batched_tokens=8192 "));
  CHECK_FALSE(testing::contains(plain.out, "serve default"));
  CHECK(testing::contains(run("--set scheduler.policy=vllm --verbose").out,
                          "    \"max_num_batched_tokens\": 8192,  # vLLM 0.33 serve default for a "
                          "GPU of 70 GiB or more\n"));
  const Json result = Json::parse(testing::read_text_file(folder.path() + "/out/result.json"));
  CHECK(result.at("config_reasons").at("engine.async_depth") ==
        "vLLM 0.33 serve default: asynchronous scheduling");
  CHECK(result.at("config").at("engine").at("async_depth") == 2);
  const testing::CommandResult other = run("--set scheduler.policy=token_budget");
  CHECK_FALSE(testing::contains(other.out, "\ndefaults "));
  CHECK_FALSE(Json::parse(testing::read_text_file(folder.path() + "/out/result.json"))
                  .contains("config_reasons"));
}

}  // namespace
}  // namespace metronome::TEST_FILE
