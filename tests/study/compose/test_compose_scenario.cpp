// SPDX-License-Identifier: Apache-2.0
// Scenarios that are composed from a pasted command or from options: known answers, refusals, and
// texts that read back as themselves.
#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/settings.h"
#include "sim/simulation.h"
#include "study/compose/scenario_request.h"
#include "study/compose/yaml_draft.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

ScenarioRequest of_command(const std::string& command) {
  ScenarioRequest request;
  request.command = command;
  request.gpu = "h100";
  request.prompt = "1000";
  request.output = "200";
  request.rate = 2;
  return request;
}

Scenario read(const ComposedScenario& composed) {
  return parse_scenario(composed.yaml, "composed.yaml", {}).variants.front();
}

Scenario composed(const std::string& command) {
  return read(compose_scenario(of_command(command)));
}

std::string refusal(const ScenarioRequest& request) {
  return error_of<UsageError>([&] { (void)compose_scenario(request); });
}

bool has_note(const ComposedScenario& composed, const std::string& part) {
  for (const std::string& note : composed.notes) {
    if (note.find(part) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a hybrid model under an old release has the first rules that know states",
          "[study][compose]") {
  ScenarioRequest request = of_command("vllm serve Qwen/Qwen3.5-4B");
  request.engine_version = "0.19.1";
  const ComposedScenario hybrid = compose_scenario(request);
  CHECK(read(hybrid).scheduler.settings<VllmConfig>().minor() == 33);
  CHECK(has_note(hybrid, "The rules are those of vLLM 0.33"));
  request.command = "vllm serve Qwen/Qwen3-8B";
  const ComposedScenario dense = compose_scenario(request);
  CHECK(read(dense).scheduler.settings<VllmConfig>().minor() == 19);
  CHECK(!has_note(dense, "The rules are those"));
}

TEST_CASE("a word of an older release is known where it has a meaning", "[study][compose]") {
  const auto format_of = [](const std::string& name) {
    return composed("vllm serve Qwen/Qwen3-8B --quantization " + name).quantization;
  };
  CHECK(format_of("auto_round") == format_of("auto-round"));
  CHECK(format_of("auto_round") != composed("vllm serve Qwen/Qwen3-8B").quantization);
  const std::string answer =
      refusal(of_command("vllm serve Qwen/Qwen3-8B --quantization gptq-marlin"));
  CHECK(answer.find("'gptq-marlin', did you mean 'gptq_marlin'?") != std::string::npos);
}

TEST_CASE("a command of vLLM is a scenario", "[study][compose]") {
  const ComposedScenario answer = compose_scenario(
      of_command("vllm serve Qwen/Qwen3-32B -tp 2 --max-num-batched-tokens 8K --max_model_len=16k "
                 "--kv-cache-dtype fp8 --host 0.0.0.0 --port 8000 --data-parallel-size 4 "
                 "--compilation-config '{\"cudagraph_mode\": \"FULL_DECODE_ONLY\"}' "
                 "--speculative-config '{\"method\": \"ngram\", \"num_speculative_tokens\": 4}' "
                 "--no-enable-prefix-caching"));
  INFO(answer.yaml);
  const Scenario scenario = read(answer);
  CHECK(scenario.model == "qwen3-32b");
  CHECK(scenario.hardware == "h100");
  CHECK(scenario.scheduler.policy == "vllm");
  CHECK(scenario.cost_model.tensor_parallel_size == 2);
  CHECK(scenario.scheduler.max_num_batched_tokens == 8192);
  CHECK(scenario.engine.max_model_len == 16000);
  CHECK(scenario.kv_dtype == KvDtype::Fp8);
  CHECK(scenario.cost_model.max_prompt_graph_tokens == 0);
  CHECK(scenario.speculative.method == SpeculativeMethod::Ngram);
  CHECK(scenario.speculative.num_speculative_tokens == 4);
  CHECK(scenario.kv_cache.enable_prefix_caching == false);
  CHECK(scenario.workload.arrivals.rate == 2);
  CHECK(scenario.fleet.replicas == 4);
  CHECK(scenario.fleet.router == "vllm_dp");
  CHECK(scenario.workload.prompt_tokens.value == 1000);
  CHECK(answer.name == "qwen3-32b_h100_vllm");
  CHECK(has_note(answer, "passed over: --host, --port."));
  CHECK(has_note(answer, "The 4 data-parallel ranks are replicas behind the router vllm_dp"));
  CHECK_FALSE(has_note(answer, "--data-parallel-size"));
}

TEST_CASE("commands of other servers are scenarios", "[study][compose]") {
  const Scenario sglang = composed(
      "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=2048 python3 -m sglang.launch_server --model-path "
      "Qwen/Qwen3-8B --tp 2 --chunked-prefill-size 4096 --cuda-graph-max-bs 32 "
      "--disable-radix-cache");
  CHECK(sglang.scheduler.policy == "sglang");
  CHECK(sglang.scheduler.settings<SglangConfig>().chunked_prefill_size == 4096);
  CHECK(sglang.scheduler.settings<SglangConfig>().clip_max_new_tokens == 2048);
  CHECK(sglang.cost_model.tensor_parallel_size == 2);
  CHECK(sglang.cost_model.max_graph_tokens == 32);
  CHECK(sglang.kv_cache.enable_prefix_caching == false);
  const Scenario trtllm = composed(
      "cat > c.yml <<EOF\nenable_chunked_prefill: true\ncuda_graph_config:\n  batch_sizes: [1, 2, "
      "64]\nkv_cache_config:\n  dtype: fp8\n  free_gpu_memory_fraction: 0.8\nEOF\n"
      "trtllm-serve Qwen/Qwen3-8B --tp_size 2 --max_num_tokens 4096 --max_batch_size 128 "
      "--extra_llm_api_options c.yml");
  CHECK(trtllm.scheduler.policy == "tensorrt_llm");
  CHECK(trtllm.scheduler.settings<TensorRtLlmConfig>().max_num_tokens == 4096);
  CHECK(trtllm.scheduler.settings<TensorRtLlmConfig>().enable_chunked_context);
  CHECK(trtllm.engine.max_num_seqs == 128);
  CHECK(trtllm.kv_dtype == KvDtype::Fp8);
  CHECK(trtllm.cost_model.gpu_memory_utilization == 0.8);
  CHECK(trtllm.cost_model.max_graph_tokens == 64);
  const Scenario llama =
      composed("llama-server -hf Qwen/Qwen3-8B-GGUF:Q4_K_M -np 4 -c 32768 -b 1024");
  CHECK(llama.scheduler.policy == "llama_cpp");
  CHECK(llama.engine.max_num_seqs == 4);
}

TEST_CASE("one line without a command is a scenario", "[study][compose]") {
  ScenarioRequest request;
  request.model = "llama-3.1-8b";
  request.gpu = "h100-sxm";
  request.workload = "chat";
  request.rate = 8;
  request.tensor_parallel_size = 2;
  const ComposedScenario answer = compose_scenario(request);
  INFO(answer.yaml);
  const Scenario scenario = read(answer);
  CHECK(scenario.scheduler.policy == "vllm");
  CHECK(scenario.cost_model.tensor_parallel_size == 2);
  CHECK(scenario.workload.prompt_tokens.median == 1020);
  CHECK(scenario.workload.num_requests == 960);
  CHECK((scenario.slo.ttft_ms == 1000 && scenario.slo.itl_ms == 50));
  CHECK(answer.yaml.find("# median and p99 of the Azure") != std::string::npos);
  request.workload.clear();
  request.prompt = "500-900";
  request.output = "100:300";
  request.rate.reset();
  request.clients = 16;
  request.itl_ms = 30;
  const Scenario other = read(compose_scenario(request));
  CHECK((other.workload.prompt_tokens.min == 500 && other.workload.prompt_tokens.max == 900));
  CHECK((other.workload.output_tokens.median == 100 && other.workload.output_tokens.p99 == 300));
  CHECK(other.workload.arrivals.concurrency == 16);
  CHECK(other.workload.num_requests == 160);
  CHECK((other.slo.itl_ms == 30 && !other.slo.ttft_ms));
}

TEST_CASE("a request that contradicts itself is refused", "[study][compose]") {
  ScenarioRequest request = of_command("vllm serve Qwen/Qwen3-8B");
  request.clients = 4;
  CHECK(refusal(request) == "--rate: contradicts --clients; allowed: one of them");
  request = of_command("vllm serve Qwen/Qwen3-8B");
  request.trace = "x.csv";
  CHECK(refusal(request).starts_with("--trace: contradicts --prompt and --output"));
  request = of_command("vllm serve Qwen/Qwen3-8B");
  request.output.clear();
  CHECK(refusal(request).starts_with("--output: is missing"));
  request = of_command("vllm serve Qwen/Qwen3-8B");
  request.prompt = "12x";
  CHECK(refusal(request) ==
        "--prompt: '12x' is no length; allowed: TOKENS, LEAST-MOST, or MEDIAN:P99");
  request = of_command("vllm serve Qwen/Qwen3-8B");
  request.engine = "sglang";
  CHECK(refusal(request).starts_with("--engine: the command starts vLLM"));
  request.engine = "triton";
  CHECK(refusal(request).starts_with("--engine: 'triton' is no engine with a command line"));
  request = of_command("vllm serve Qwen/Qwen3-8B");
  request.gpu.clear();
  CHECK(refusal(request).starts_with("--gpu: is missing; allowed: "));
  CHECK(refusal(of_command("vllm serve --max-num-seqs 8")).starts_with("--model: is missing"));
  CHECK(refusal(of_command("vllm serve Qwen/Qwen3-8B --max-num-seqz 8"))
            .starts_with("--command: '--max-num-seqz' is no flag of vLLM, did you mean "
                         "'--max-num-seqs'?"));
  CHECK(refusal(of_command("vllm serve Qwen/Qwen3-8B --max-num-seqs many")) ==
        "--command: '--max-num-seqs' has the value 'many'; allowed: an integer");
  CHECK(refusal(of_command("vllm serve Qwen/Qwen3-8B --max-num-seqs")) ==
        "--command: '--max-num-seqs' has no value; allowed: one");
}

TEST_CASE("a pool in tokens is as many blocks of the server's size", "[study][compose]") {
  const auto pool_of = [](const std::string& command) {
    const Scenario scenario = composed(command);
    return *scenario.kv_cache.num_blocks * scenario.kv_cache.block_size;
  };
  CHECK(pool_of("llama-server -m Qwen3-8B-Q8_0.gguf -c 8192 -np 4") == 8192);
  CHECK(pool_of("python -m sglang.launch_server --model-path Qwen/Qwen3-8B "
                "--max-total-tokens 32000") == 32000);
  CHECK(pool_of("python -m sglang.launch_server --model-path Qwen/Qwen3-8B "
                "--max-total-tokens 32000 --page-size 64") == 32000);
}

TEST_CASE("values that a server derives from others", "[study][compose]") {
  const Scenario ngram = composed(
      "vllm serve Qwen/Qwen3-8B --speculative-config '{\"model\": \"ngram\", "
      "\"num_speculative_tokens\": 4, \"prompt_lookup_max\": 4}'");
  CHECK(ngram.speculative.method == SpeculativeMethod::Ngram);
  CHECK(ngram.speculative.prompt_lookup_min == 4);
  CHECK(composed("vllm serve Qwen/Qwen3-8B --max-model-len -1").engine.max_model_len ==
        std::nullopt);
  CHECK(composed("vllm serve Qwen/Qwen3-8B --enforce-eager --cudagraph-capture-sizes 1 2 4")
            .cost_model.max_graph_tokens == 0);
  CHECK(composed("vllm serve Qwen/Qwen3-8B --cudagraph-capture-sizes 1 2 4")
            .cost_model.max_graph_tokens == 4);
  CHECK(composed("vllm serve Qwen/Qwen3-8B -O.cudagraph_mode=NONE").cost_model.max_graph_tokens ==
        0);
}

TEST_CASE("several GPUs are variants with recipes of their own", "[study][compose]") {
  ScenarioRequest request;
  request.model = "llama-3.3-70b-FP8";
  request.gpu = "h100=2.5,b200=5,t4";
  request.tensor_parallel_size = 4;
  request.rate = 2;
  const ComposedScenario answer = compose_scenario(request);
  INFO(answer.yaml);
  const ScenarioFile file = parse_scenario(answer.yaml, "composed.yaml", {});
  REQUIRE(file.variants.size() == 2);
  CHECK((file.variants[0].name == "h100" && file.variants[0].price_per_gpu_hour == 2.5));
  CHECK(file.variants[0].cost_model.prompt_factor == 1);
  CHECK(file.variants[1].cost_model.prompt_factor > 1);
  CHECK(has_note(answer, "t4 is left out: "));
  // The order of the GPUs changes nothing.
  request.gpu = "b200=5,h100=2.5";
  const ScenarioFile other = parse_scenario(compose_scenario(request).yaml, "composed.yaml", {});
  CHECK(other.variants[0].to_json() == file.variants[1].to_json());
  request.gpu = "h100,h100";
  CHECK(refusal(request) == "--gpu: names h100 twice; allowed: each GPU once");
  request.gpu = "h100=cheap";
  CHECK(refusal(request).starts_with("--gpu: 'h100=cheap' is not valid; allowed: NAME or "));
}

TEST_CASE("one line is served up to its longest request", "[study][compose]") {
  ScenarioRequest request;
  request.model = "llama-3.3-70b";
  request.gpu = "h100";
  request.tensor_parallel_size = 2;
  request.prompt = "1k-2k";
  request.output = "250";
  CHECK(read(compose_scenario(request)).engine.max_model_len == 2250);
  request.sharegpt = "chats.json";
  request.prompt.clear();
  request.output.clear();
  const ComposedScenario chats = compose_scenario(request);
  CHECK(read(chats).workload.trace.characters_per_token == 4);
  CHECK(has_note(chats, "Lengths of --sharegpt are estimates"));
  request.tokenizer = "tokenizer.json";
  CHECK_FALSE(read(compose_scenario(request)).workload.trace.characters_per_token.has_value());
}

TEST_CASE("data-parallel ranks are replicas where the model is dense", "[study][compose]") {
  ScenarioRequest request = of_command("vllm serve Qwen/Qwen3-8B -dp 8");
  const Scenario dense = read(compose_scenario(request));
  CHECK(dense.fleet.replicas == 8);
  CHECK(dense.workload.arrivals.rate == 2);
  request.command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --dp 2";
  CHECK(read(compose_scenario(request)).fleet.router == "round_robin");
  // Ranks of a model with experts meet in each layer: the scenario is one of them.
  const ComposedScenario experts =
      compose_scenario(of_command("vllm serve Qwen/Qwen3-30B-A3B -dp 8"));
  CHECK_FALSE(read(experts).fleet.is_on());
  CHECK(read(experts).workload.arrivals.rate == 0.25);
  CHECK(has_note(experts, "The scenario is one of 8 data-parallel ranks, with its share of the "));
}

TEST_CASE("drafts of every method of vLLM are simulated, or told", "[study][compose]") {
  const auto answer = [](const std::string& config) {
    return compose_scenario(
        of_command("vllm serve Qwen/Qwen3-8B --speculative-config '{" + config + "}'"));
  };
  for (const char* method : {"mtp", "qwen3_5_mtp", "nemotron_h_mtp", "gemma4_mtp", "step5_mtp"}) {
    INFO(method);
    const Scenario scenario =
        read(answer(R"("method": ")" + std::string(method) + R"(", "num_speculative_tokens": 2)"));
    CHECK(scenario.speculative.method == SpeculativeMethod::Mtp);
    CHECK(scenario.speculative.num_speculative_tokens == 2);
  }
  CHECK(read(answer(R"("method": "ngram_gpu", "num_speculative_tokens": 3)")).speculative.method ==
        SpeculativeMethod::Ngram);
  for (const char* method : {"medusa", "mlp_speculator", "suffix", "dflash", "dspark"}) {
    INFO(method);
    const ComposedScenario composed =
        answer(R"("method": ")" + std::string(method) +
               R"(", "model": "a/b", "num_speculative_tokens": 3, "prompt_lookup_max": 4)");
    CHECK(has_note(composed, "Not simulated: the drafts of method " + std::string(method) + ":"));
    CHECK(read(composed).speculative.method == SpeculativeMethod::None);
  }
  CHECK(has_note(answer(R"("model": "z-lab/Qwen3-8B-DFlash", "num_speculative_tokens": 15)"),
                 "Not simulated: the drafts of method dflash:"));
}

TEST_CASE("a KV cache of so many bytes has as many blocks as they hold", "[study][compose]") {
  const auto blocks = [](const std::string& command) {
    const Scenario scenario = read(compose_scenario(of_command(command)));
    return prepare_simulation(scenario).setup.kv_cache.num_blocks;
  };
  const std::string command = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 8192 ";
  // 28 layers of 4 heads of 128 keys and as many values, in 16 bits, for 16 tokens.
  constexpr std::int64_t kBlock = 28 * 2 * 4 * 128 * 2 * 16;
  constexpr std::int64_t kBytes = std::int64_t{16} << 30;
  CHECK(blocks(command + "--kv-cache-memory-bytes 17179869184") == kBytes / kBlock);
  CHECK(blocks(command + "--kv-cache-memory-bytes=16G --gpu-memory-utilization 0.5") ==
        kBytes / kBlock);
  CHECK(blocks(command + "-tp 2 --kv-cache-memory-bytes 16G") == 2 * kBytes / kBlock);
  CHECK(refusal(of_command(command + "--kv-cache-memory-bytes 80G"))
            .starts_with("--command: --kv-cache-memory-bytes is 85899345920; allowed: 1 to "));
  for (const std::string value : {"auto", "1e22", "12.5", "9999999999G"}) {
    CHECK(refusal(of_command(command + "--kv-cache-memory-bytes " + value))
              .starts_with("--command: '--kv-cache-memory-bytes' has the value '" + value +
                           "'; allowed: a whole number"));
  }
}

TEST_CASE("positions that a command scales give a longer context", "[study][compose]") {
  const std::string yarn = R"({"rope_type": "yarn", "factor": 4.0,
                               "original_max_position_embeddings": 32768})";
  for (const std::string& command :
       {"vllm serve Qwen/Qwen3-32B --rope-scaling '" + yarn + "' --max-model-len 131072 -tp 4",
        "vllm serve Qwen/Qwen3-32B --hf-overrides '{\"rope_scaling\": " + yarn +
            "}' --max-model-len 128K -tp 4",
        "python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 4 --context-length 131072 "
        "--json-model-override-args '{\"rope_scaling\": " +
            yarn + "}'"}) {
    INFO(command);
    const Scenario scenario = composed(command);
    CHECK(scenario.model == "qwen3-32b-128k");
    CHECK(prepare_simulation(scenario).setup.max_model_len == 131072);
  }
  CHECK(composed("vllm serve Qwen/Qwen3-8B-FP8 --rope-scaling '{\"factor\": 2.0}'").quantization ==
        Quantization::Fp8Block);
}

TEST_CASE("a scaling of positions that cannot be used is told", "[study][compose]") {
  const auto with = [](const std::string& scaling) {
    return compose_scenario(
        of_command("vllm serve meta-llama/Llama-2-7b-hf --rope-scaling '" + scaling + "'"));
  };
  CHECK(read(with(R"({"type": "linear", "factor": 2.0})")).model == "llama-2-7b-8k");
  CHECK(read(with(R"({'type': 'linear', 'factor': 2.0})")).model == "llama-2-7b-8k");
  using Case = std::pair<const char*, const char*>;
  for (const Case& one : {Case(R"({"type": "linear"})", "it has no factor."),
                          {R"({"factor": -4})", "a factor that is not above 0."},
                          {R"({"factor": 1e300})", "more than 16,777,216 tokens."},
                          {R"({"factor": 0.5})", "less than the model's own"}}) {
    INFO(one.first);
    const ComposedScenario made = with(one.first);
    CHECK(read(made).model == "llama-2-7b");
    const bool is_told = std::any_of(made.notes.begin(), made.notes.end(), [&](const auto& note) {
      return note.starts_with("Not simulated: --rope-scaling ") &&
             note.find(one.second) != std::string::npos;
    });
    CHECK(is_told);
  }
  CHECK(refusal(of_command("vllm serve Qwen/Qwen3-32B --rope-scaling yarn"))
            .starts_with("--command: '--rope-scaling' has the value 'yarn'; allowed: JSON"));
}

TEST_CASE("a model's file that is elsewhere has a name", "[study][compose]") {
  const auto model = [](const std::string& path) {
    return read(compose_scenario(of_command("llama-server -m '" + path + "' -np 4"))).model;
  };
  CHECK(model("/m/Qwen3-8B-Q4_K_M.gguf") == "qwen3-8b");
  CHECK(model("/m/gpt-oss-120b-mxfp4-00001-of-00003.gguf") == "gpt-oss-120b");
  CHECK(model("Qwen3-8B-UD-Q4_K_XL-00001-of-00002.gguf") == "qwen3-8b");
  CHECK(model("/m/Meta-Llama-3.1-70B-Instruct/ggml-model-Q6_K.gguf") == "llama-3.1-70b");
  CHECK(model("C:\\Users\\a\\Qwen3-VL-4B-Instruct-Q8_0.gguf") == "qwen3-vl-4b");
}

TEST_CASE("a value that changes nothing is not told", "[study][compose]") {
  const auto told = [](const std::string& command) {
    return has_note(compose_scenario(of_command(command)), "Not simulated:");
  };
  CHECK_FALSE(told("llama-server -m /m/Qwen3-8B-Q4_K_M.gguf -ngl 999"));
  CHECK_FALSE(told("llama-server -m /m/Qwen3-8B-Q4_K_M.gguf -ngl all -fa on"));
  CHECK_FALSE(told("llama-server -m /m/Qwen3-8B-Q4_K_M.gguf -fa 1"));
  CHECK_FALSE(told("llama-server -m /m/Qwen3-8B-Q4_K_M.gguf -fa"));
  CHECK(told("llama-server -m /m/Qwen3-8B-Q4_K_M.gguf -ngl 20"));
  CHECK(told("llama-server -m /m/Qwen3-8B-Q4_K_M.gguf -fa off"));
  CHECK_FALSE(told("trtllm-serve Qwen/Qwen3-8B --pp_size 1 --ep_size 1"));
  CHECK(told("trtllm-serve Qwen/Qwen3-8B --pp_size 2"));
  // A flag of an older release.
  CHECK(told("python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --enable-ep-moe"));
}

TEST_CASE("a load is divided among data-parallel ranks", "[study][compose]") {
  ScenarioRequest request = of_command("vllm serve Qwen/Qwen3-8B -dp 8");
  request.has_one_engine = true;
  CHECK(read(compose_scenario(request)).workload.arrivals.rate == 0.25);
  request.rate.reset();
  request.clients = 20;
  CHECK(read(compose_scenario(request)).workload.arrivals.concurrency == 3);
  request.command = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --dp 2";
  CHECK(read(compose_scenario(request)).workload.arrivals.concurrency == 10);
  // Attention alone is divided: the engine is one.
  request.command += " --enable-dp-attention";
  const ComposedScenario joint = compose_scenario(request);
  CHECK(read(joint).workload.arrivals.concurrency == 20);
  CHECK(has_note(joint, "Not simulated: --dp 2: "));
  request = of_command("vllm serve Qwen/Qwen3-8B -dp 4");
  request.has_one_engine = true;
  request.rate.reset();
  request.prompt.clear();
  request.output.clear();
  request.trace = "trace.csv";
  CHECK(read(compose_scenario(request)).workload.trace.rate_scale == 0.25);
}

TEST_CASE("a word that a server refuses is refused", "[study][compose]") {
  const auto refused = [](const std::string& flags) {
    return refusal(of_command("vllm serve Qwen/Qwen3-8B " + flags));
  };
  CHECK(refused("--kv-cache-dtype fp9")
            .starts_with("--command: '--kv-cache-dtype' has the value 'fp9', did you mean 'fp8'?; "
                         "allowed: auto, float16, "));
  CHECK(refused("--load-format=x --scheduling-policy lpm") ==
        "--command: '--scheduling-policy' has the value 'lpm'; allowed: fcfs, priority");
  CHECK(refused("--speculative-config '{\"method\": \"eagel\"}'").find("has the value 'eagel'") !=
        std::string::npos);
  CHECK(refusal(of_command("llama-server -m Qwen3-8B-Q8_0.gguf -ctk q9_0"))
            .starts_with("--command: '-ctk' has the value 'q9_0'"));
  // It takes these, which are not simulated.
  const ComposedScenario other =
      compose_scenario(of_command("vllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8_ds_mla"));
  CHECK(has_note(other, "--kv-cache-dtype fp8_ds_mla is not simulated"));
}

TEST_CASE("a drafted YAML keeps sections together", "[study][compose]") {
  YamlDraft draft;
  draft.set("a.x", "1", "why");
  draft.set_text("b", "x: y");
  draft.set("a.c.d", "[1, 2]");
  draft.set("a.x", "2");
  draft.set_text("f", "true");
  CHECK(draft.flow() == "{a: {x: 2, c: {d: [1, 2]}}, b: \"x: y\", f: \"true\"}");
  CHECK(draft.text({"head"}) ==
        "# head\na:\n  x: 2\n  c:\n    d: [1, 2]\nb: \"x: y\"\nf: \"true\"\n");
}

}  // namespace TEST_FILE
