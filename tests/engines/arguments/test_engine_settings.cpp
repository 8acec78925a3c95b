// SPDX-License-Identifier: Apache-2.0
// Settings of engines' logs and command lines as keys of a scenario: known answers, and flags that
// come back as the settings they were printed for.
#include <algorithm>

#include "core/base/command_errors.h"
#include "core/base/rng.h"
#include "core/scenario/scenario.h"
#include "engines/arguments/engine_settings.h"
#include "engines/command/pasted_command.h"
#include "engines/flags/server_flags.h"
#include "engines/log/log_dialect.h"
#include "engines/sglang/product.h"
#include "engines/sglang/settings.h"
#include "engines/vllm/product.h"
#include "engines/vllm/settings.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/draws.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Texts = std::vector<std::string>;

const LogDialect* dialect_of(const ServerArguments& server) {
  for (const LogDialect* dialect : log_dialects()) {
    if (dialect->server == &server) return dialect;
  }
  return nullptr;
}

EngineLog log_of(const ServerArguments& server, const EngineArguments& settings) {
  EngineLog log;
  log.dialect = dialect_of(server);
  log.settings = settings;
  return log;
}

EngineSettings settings_of(const ServerArguments& server, const EngineArguments& settings,
                           const std::string& flags) {
  return scenario_settings(
      server,
      merged_arguments(log_of(server, settings), read_flags(server, flags, "--flags").arguments));
}

std::string refusal(const ServerArguments& server, const std::string& flags) {
  return error_of<UsageError>([&] { (void)read_flags(server, flags, "--flags"); });
}

Scenario scenario_with(const Texts& assignments) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("small.yaml", kSmallScenario);
  return load_scenario(file, assignments, std::nullopt).variants.front();
}

}  // namespace

TEST_CASE("the settings of an SGLang log are keys of policy sglang", "[engines][settings]") {
  const EngineSettings settings =
      settings_of(kSglangArguments,
                  {{"model_path", "x"},
                   {"chunked_prefill_size", "4096"},
                   {"prefill_decode_interval", "2"},
                   {"prefill_max_requests", "None"},
                   {"enable_mixed_chunk", "True"},
                   {"disable_radix_cache", "True"},
                   {"disable_overlap_schedule", "False"},
                   {"schedule_conservativeness", "1.3"},
                   {"schedule_policy", "random"},
                   {"mem_fraction_static", "0.85"},
                   {"page_size", "16"},
                   {"max_total_tokens", "None"},
                   {"max_total_num_tokens", "32768"},
                   {"context_len", "8192"},
                   {"max_running_requests", "256"}},
                  "--max-running-requests 128 --prefill-max-requests=4");
  CHECK(settings.assignments ==
        Texts{"scheduler.policy=sglang", "scheduler.chunked_prefill_size=4096",
              "scheduler.schedule_conservativeness=1.3", "scheduler.enable_mixed_chunk=true",
              "scheduler.prefill_decode_interval=2", "scheduler.prefill_max_requests=4",
              "engine.max_num_seqs=128", "engine.max_model_len=8192", "kv_cache.block_size=16",
              "kv_cache.enable_prefix_caching=false", "kv_cache.num_blocks=2048",
              "engine.async_depth=2"});
  CHECK(settings.flags == Texts{"--chunked-prefill-size 4096", "--schedule-conservativeness 1.3",
                                "--enable-mixed-chunk", "--prefill-decode-interval 2",
                                "--prefill-max-requests 4", "--max-running-requests 128",
                                "--page-size 16", "--disable-radix-cache",
                                "--mem-fraction-static 0.85"});
  CHECK(settings.chosen == Texts{"context_length 8192"});
  CHECK(settings.pool == "KV cache 32,768 tokens (in the log)");
  CHECK(settings.notes ==
        Texts{"--schedule-policy random is not simulated: the scenario's value stays."});
  const Scenario scenario = scenario_with(settings.assignments);
  CHECK(scenario.scheduler.settings<SglangConfig>().prefill_max_requests == 4);
  CHECK(scenario.kv_cache.num_blocks == 2048);
  CHECK(scenario_settings(kSglangArguments, {}).assignments.empty());
  CHECK(settings_of(kSglangArguments, {{"schedule_policy", "lof"}}, "").assignments ==
        Texts{"scheduler.policy=sglang", "scheduler.schedule_policy=lof"});
}

TEST_CASE("the settings of a vLLM log are keys of policy vllm", "[engines][settings]") {
  const EngineSettings settings = settings_of(kVllmArguments,
                                              {{"model", "x"},
                                               {"version", "0.30.1"},
                                               {"max_num_batched_tokens", "4096"},
                                               {"kv_cache_size_tokens", "160000"},
                                               {"async_scheduling", "False"},
                                               {"enable_prefix_caching", "True"},
                                               {"gpu_memory_utilization", "0.9"}},
                                              "--no-enable-prefix-caching --max-num-seqs 32");
  CHECK(settings.assignments ==
        Texts{"scheduler.policy=vllm", "scheduler.version=0.30",
              "scheduler.max_num_batched_tokens=4096", "engine.max_num_seqs=32",
              "kv_cache.enable_prefix_caching=false", "engine.async_depth=1"});
  CHECK(settings.pool_tokens == 160000);
  CHECK(settings.flags == Texts{"--max-num-batched-tokens 4096", "--max-num-seqs 32",
                                "--no-enable-prefix-caching", "--gpu-memory-utilization 0.9",
                                "--no-async-scheduling"});
  CHECK(scenario_with(settings.assignments).scheduler.settings<VllmConfig>().minor() == 30);
  CHECK(settings_of(kVllmArguments, {{"version", "1.0"}}, "").notes ==
        Texts{"vLLM 1.0 is simulated with the rules of 0.33, the nearest that are known."});
  CHECK(settings_of(kVllmArguments, {{"version", "0.10.1.1"}}, "").assignments[1] ==
        "scheduler.version=0.19");
  CHECK(settings_of(kVllmArguments, {{"version", "0.33.0rc1"}}, "").notes.empty());
}

TEST_CASE("the token budget that vLLM does not print", "[engines][settings]") {
  const auto budget = [](EngineArguments arguments, const std::string& flags = "") {
    const EngineSettings settings = settings_of(kVllmArguments, arguments, flags);
    for (const std::string& assignment : settings.assignments) {
      const std::string key = "scheduler.max_num_batched_tokens=";
      if (assignment.starts_with(key)) {
        return assignment.substr(key.size()) + (settings.notes.empty() ? "" : ", noted");
      }
    }
    return std::string("the scenario's");
  };
  CHECK(budget({{"model", "x"}, {"version", "0.32.0"}}) == "2048, noted");
  CHECK(budget({{"model_tag", "x"}, {"version", "0.33.1"}}) == "2048, noted");
  CHECK(budget({{"model", "x"}, {"version", "0.32.0"}, {"max_num_batched_tokens", "8192"}}) ==
        "8192");
  CHECK(budget({{"model", "x"}, {"version", "0.32.0"}}, "--max-num-batched-tokens 512") == "512");
  // Older ones print it, as do those that were not seen to start.
  CHECK(budget({{"model", "x"}, {"version", "0.31.0"}}) == "the scenario's");
  CHECK(budget({{"version", "0.32.0"}}) == "the scenario's");
  CHECK(budget({{"model", "x"}, {"version", "0.32.0"}, {"enable_chunked_prefill", "False"}}) ==
        "the scenario's");
}

TEST_CASE("the pool of a log is no flag that anyone set", "[engines][settings]") {
  const EngineArguments log = {{"kv_cache_size_tokens", "93184"},
                               {"gpu_memory_utilization", "0.5"}};
  const EngineSettings unknown = settings_of(kVllmArguments, log, "");
  CHECK(unknown.flags == Texts{"--gpu-memory-utilization 0.5"});
  CHECK(unknown.assignments == Texts{"scheduler.policy=vllm"});
  CHECK(unknown.pool_tokens == 93184);
  CHECK(unknown.pool == "KV cache 93,184 tokens (in the log; the block's size is not)");
  const EngineSettings known = settings_of(kVllmArguments, log, "--block-size 128");
  CHECK(known.flags == Texts{"--block-size 128", "--gpu-memory-utilization 0.5"});
  CHECK(known.assignments ==
        Texts{"scheduler.policy=vllm", "kv_cache.block_size=128", "kv_cache.num_blocks=728"});
  CHECK_FALSE(known.pool_tokens.has_value());
  // A setting of the user replaces the log's pool.
  const EngineSettings set = settings_of(kVllmArguments, log, "--num-gpu-blocks-override 500");
  CHECK((set.pool.empty() &&
         set.flags == Texts{"--num-gpu-blocks-override 500", "--gpu-memory-utilization 0.5"}));
  for (const char* flags : {"--kv-cache-dtype fp8", "-tp 4", "--quantization fp8"}) {
    INFO(flags);  // another number of tokens fits than in the log
    CHECK_FALSE(settings_of(kVllmArguments, log, flags).pool_tokens.has_value());
  }
  CHECK(settings_of(kVllmArguments, log, "--max-num-seqs 8").pool_tokens == 93184);
  const EngineSettings share = settings_of(kVllmArguments, log, "--gpu-memory-utilization 0.6");
  CHECK(share.pool.empty());
  CHECK(share.assignments ==
        Texts{"scheduler.policy=vllm", "cost_model.gpu_memory_utilization=0.6"});
  // A page size that the server chose, and the requests at once.
  EngineLog sglang = log_of(kSglangArguments, {{"max_running_requests", "64"},
                                               {"max_total_num_tokens", "96000"},
                                               {"chunked_prefill_size", "8192"}});
  sglang.chosen = {"max_running_requests", "max_total_num_tokens"};
  const EngineSettings chosen = scenario_settings(kSglangArguments, merged_arguments(sglang, {}));
  CHECK(chosen.flags == Texts{"--chunked-prefill-size 8192"});
  CHECK(chosen.chosen == Texts{"max_running_requests 64"});
  CHECK(chosen.pool_tokens == 96000);
}

TEST_CASE("servers without CUDA graphs", "[engines][settings]") {
  const auto assignments = [](const ServerArguments& server, const EngineArguments& settings,
                              const std::string& flags) {
    Texts found = settings_of(server, settings, flags).assignments;
    found.erase(found.begin());  // the policy
    return found;
  };
  const EngineArguments vllm = {{"max_cudagraph_capture_size", "512"}, {"enforce_eager", "False"}};
  CHECK(assignments(kVllmArguments, vllm, "") == Texts{"cost_model.max_graph_tokens=512"});
  const Texts eager = assignments(kVllmArguments, vllm, "--enforce-eager");
  CHECK(scenario_with(eager).cost_model.max_graph_tokens == 0);
  CHECK(assignments(kVllmArguments, {{"enforce_eager", "True"}}, "--no-enforce-eager").empty());
  CHECK(settings_of(kVllmArguments, {{"enforce_eager", "True"}}, "").flags ==
        Texts{"--enforce-eager"});
  CHECK(assignments(kSglangArguments,
                    {{"disable_cuda_graph", "True"}, {"disable_prefill_cuda_graph", "False"}},
                    "") == Texts{"cost_model.max_graph_tokens=0"});
  CHECK(assignments(kSglangArguments, {}, "--disable-prefill-cuda-graph") ==
        Texts{"cost_model.max_prompt_graph_tokens=0"});
  CHECK(refusal(kVllmArguments, "--enforce-eager=1")
            .ends_with("has the value '1'; allowed: no value"));
}

TEST_CASE("flags without a key are told, and no flags are refused", "[engines][settings]") {
  const GivenFlags sglang =
      read_flags(kSglangArguments, "--host 0.0.0.0 --port 30000 --dp 8 --chunked-prefill-size 2048",
                 "--flags");
  CHECK(sglang.arguments == EngineArguments{{"chunked_prefill_size", "2048"}});
  CHECK(sglang.ignored == Texts{"--host", "--port"});
  REQUIRE(sglang.not_modelled.size() == 1);
  CHECK(sglang.not_modelled[0].first == "--dp 8");
  Texts notes;
  add_notes(sglang, notes);
  CHECK(notes[0] == "Without influence on times, and passed over: --host, --port.");
  CHECK(notes[1].starts_with("Not simulated: --dp 8: "));
  CHECK(refusal(kVllmArguments, "--chunked-prefill-size 8")
            .starts_with("--flags: '--chunked-prefill-size' is no flag of vLLM"));
  CHECK(refusal(kSglangArguments, "--chunked-prefill-size 8k") ==
        "--flags: '--chunked-prefill-size' has the value '8k'; allowed: an integer");
  CHECK(refusal(kSglangArguments, "--chunked-prefill-size") ==
        "--flags: '--chunked-prefill-size' has no value; allowed: one");
  CHECK(refusal(kSglangArguments, "--schedule-conservativeness x") ==
        "--flags: '--schedule-conservativeness' has the value 'x'; allowed: a number");
  CHECK(refusal(kSglangArguments, "--enable-mixed-chunk=1") ==
        "--flags: '--enable-mixed-chunk' has the value '1'; allowed: no value");
  CHECK(refusal(kSglangArguments, "--no-enable-mixed-chunk").starts_with("--flags: '--no-"));
  CHECK(refusal(kSglangArguments, "vllm serve x") ==
        "--flags: is a command of vLLM; allowed: flags of SGLang");
}

TEST_CASE("property: printed flags come back as their settings", "[engines][settings]") {
  const std::uint64_t seed = 11;
  Rng rng(seed, "settings");
  for (int round = 0; round < 100; ++round) {
    const bool is_vllm = chance(rng, 0.5);
    const auto number = [&rng](int low, int high) { return std::to_string(draw(rng, low, high)); };
    Texts assignments = {"engine.max_num_seqs=" + number(1, 200)};
    assignments.push_back("engine.async_depth=" + number(1, 2));
    assignments.push_back("kv_cache.num_blocks=" + number(500, 5000));
    assignments.emplace_back(chance(rng, 0.5) ? "kv_cache.enable_prefix_caching=true"
                                              : "kv_cache.enable_prefix_caching=false");
    if (is_vllm) {
      assignments.emplace_back("scheduler.policy=vllm");
      assignments.push_back("scheduler.max_num_batched_tokens=" + number(256, 9000));
      assignments.push_back("scheduler.long_prefill_token_threshold=" + number(0, 900));
      if (chance(rng, 0.5)) assignments.emplace_back("scheduler.scheduler_reserve_full_isl=false");
    } else {
      assignments.emplace_back("scheduler.policy=sglang");
      // Whole pages.
      assignments.push_back(
          "scheduler.chunked_prefill_size=" +
          (chance(rng, 0.1) ? "-1" : std::to_string(16 * rng.uniform_int(1, 560))));
      assignments.push_back("scheduler.max_prefill_tokens=" + number(256, 9000));
      assignments.push_back("scheduler.schedule_conservativeness=0." + number(1, 9));
      if (chance(rng, 0.5)) assignments.emplace_back("scheduler.enable_mixed_chunk=true");
      if (chance(rng, 0.5)) {
        assignments.push_back("scheduler.prefill_decode_interval=" + number(1, 9));
        assignments.push_back("scheduler.prefill_decode_interval_min_bs=" + number(0, 9));
      }
      if (chance(rng, 0.5)) {
        assignments.push_back("scheduler.prefill_max_requests=" + number(1, 9));
      }
      if (chance(rng, 0.3)) assignments.emplace_back("scheduler.enable_priority_scheduling=true");
    }
    const Scenario scenario = scenario_with(assignments);
    const EngineFlags flags = engine_flags(scenario).front();
    INFO("seed " << seed << ", round " << round << ": " << joined_flags(flags));
    // Without its flag a switch of SGLang is off.
    const EngineArguments off = {{"disable_radix_cache", "False"},
                                 {"disable_overlap_schedule", "False"}};
    const EngineSettings back = is_vllm ? settings_of(kVllmArguments, {}, joined_flags(flags))
                                        : settings_of(kSglangArguments, off, joined_flags(flags));
    CHECK(joined_flags(engine_flags(scenario_with(back.assignments)).front()) ==
          joined_flags(flags));
  }
}

}  // namespace TEST_FILE
