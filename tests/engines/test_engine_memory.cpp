// SPDX-License-Identifier: Apache-2.0
// The memory that engines kept from KV blocks, by their own logs. Simulations keep as much.
#include <vector>

#include "core/engine/memory_facts.h"
#include "core/engine/policies/registry.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/settings.h"
#include "sim/cost/device_share.h"
#include "sim/simulation.h"
#include "tests/catch.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// vLLM on an H100 of 80 GB with its defaults there: 1,024 sequences, 8,192 tokens a step.
MemoryFacts vllm_settings(int minor, std::int64_t tp = 1) {
  SchedulerConfig scheduler;
  scheduler.edit<VllmConfig>().version = minor - kFirstVllmMinor;
  return {.scheduler = scheduler,
          .tensor_parallel_size = tp,
          .num_tokens = 8192,
          .num_seqs = 1024,
          .max_graph_tokens = 512};
}

double reserved_memory_gib(MemoryFacts facts, const ModelConfig& model,
                           const char* policy = "vllm") {
  facts.weight_bytes = device_weight_bytes(model, facts.tensor_parallel_size);
  return find_policy(policy)->reserved_gib(facts, model);
}

double reserved(const MemoryFacts& facts, const std::string& model, const char* policy = "vllm") {
  return reserved_memory_gib(facts, find_model(model, {}), policy);
}

MemoryFacts tensorrt_llm_settings(std::int32_t max_num_tokens, double share) {
  MemoryFacts facts = {.num_seqs = 256, .gpu_memory_utilization = share};
  facts.scheduler.edit<TensorRtLlmConfig>().max_num_tokens = max_num_tokens;
  return facts;
}

struct Mlps {
  std::int64_t hidden_dim, ffn_dim, vocab_size;
  std::int64_t n_experts_per_token = 0, expert_ffn_dim = 0, shared_expert_ffn_dim = 0;
};

// All that decides it.
ModelConfig model_of(const Mlps& mlps) {
  ModelConfig model;
  model.hidden_dim = mlps.hidden_dim;
  model.ffn_dim = mlps.ffn_dim;
  model.vocab_size = mlps.vocab_size;
  model.n_layers = 24;
  model.n_experts = mlps.n_experts_per_token > 0 ? 64 : 0;
  model.n_experts_per_token = mlps.n_experts_per_token;
  model.expert_ffn_dim = mlps.expert_ffn_dim;
  model.shared_expert_ffn_dim = mlps.shared_expert_ffn_dim;
  return model;
}

}  // namespace

// "Torch peak activation" in logs of vLLM 0.18 and 0.19 on an H100 (llm-d-incubation/llm-d-planner,
// accuracy/), GiB. The runtime had 0.24 to 0.46 in addition; it counts as 0.25 here.
TEST_CASE("vLLM's largest step takes what its logs say", "[engines][memory]") {
  struct Row {
    ModelConfig model;
    double peak_gib;
  };
  const std::vector<Row> rows = {
      {find_model("llama-3.1-8b", {}), 1.89},
      {find_model("qwen2.5-7b", {}), 2.21},
      {find_model("qwen3-14b", {}), 2.23},
      {find_model("qwen3-8b", {}), 2.21},
      {find_model("phi-4", {}), 1.52},
      {model_of({4096, 11008, 32016}), 0.77},                  // CodeLlama-7b: its pass
      {model_of({3072, 24576, 256000}), 3.63},                 // gemma-7b
      {model_of({2048, 5632, 151936, 4, 1408, 5632}), 2.47},   // Qwen1.5-MoE-A2.7B
      {model_of({2048, 10944, 102400, 6, 1408, 2816}), 1.93},  // DeepSeek-V2-Lite
  };
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    CHECK(reserved_memory_gib(vllm_settings(19), rows[i].model) - 0.25 ==
          Approx(rows[i].peak_gib).margin(0.04));
  }
  // Kernels of these have further buffers.
  CHECK(reserved(vllm_settings(19), "qwen3-30b-a3b") - 0.25 == Approx(2.68).margin(0.15));
  CHECK(reserved(vllm_settings(19), "granite-3.1-8b") - 0.25 == Approx(0.85).margin(0.05));
  // On two GPUs. One in 16 bits has experts' buffers, one in mxfp4 none.
  CHECK(reserved(vllm_settings(19, 2), "mixtral-8x7b") - 1.5 == Approx(1.21).margin(0.06));
  CHECK(reserved(vllm_settings(19, 2), "gpt-oss-20b") - 1.5 == Approx(2.87).margin(0.02));
  // Buffers of collectives: 2.07 and 2.13 GiB here, 0.95 elsewhere.
  for (const std::int64_t tp : {2, 4}) {
    CHECK(reserved(vllm_settings(19, tp), "llama-3.1-8b") == Approx(2.1 + 1.89).margin(0.7));
  }
}

// A model that takes images is profiled with as many of the largest as the encoder's budget holds.
TEST_CASE("vLLM's profiling encodes images first", "[engines][memory]") {
  // Gemma-3-27B: 32 images of 64 x 64 patches, each 256 embeddings of 5,376 dimensions. Its log has
  // 3.99 GiB, and its vocabulary takes 3.68 without images.
  ModelConfig gemma = find_model("gemma-3-1b", {});
  MemoryFacts facts = vllm_settings(19);
  const double blind = reserved_memory_gib(facts, gemma);
  gemma.vision.depth = 27;
  gemma.vision.hidden_dim = 1152;
  gemma.vision.ffn_dim = 4304;
  gemma.vision.patch_size = 14;
  gemma.vision.temporal_patch_size = 1;
  gemma.vision.merge_size = 4;
  gemma.vision.out_dim = 5376;
  facts.image_tokens = 256;
  const double pixels = 32. * 896 * 896 * 3 * 2;
  const double embeddings = 32. * 256 * 5376 * 2;
  CHECK(reserved_memory_gib(facts, gemma) - blind == Approx((pixels + embeddings) / kGib));
  CHECK(reserved_memory_gib(facts, gemma) - 0.25 == Approx(3.99).margin(0.1));

  // Qwen3.5-27B with eight sequences: one image of 16,384 embeddings, 65,536 patches of 1,536
  // values. Of each there is the embedding of its position, the residual stream, its norm, and the
  // MLP before and after GELU. A log of its successor in four bits has 2.21 GiB (RTX 5090, 2,048
  // tokens; vLLM issue 52872).
  const ModelConfig qwen = find_model("qwen3.5-27b", {});
  MemoryFacts few = vllm_settings(33);
  few.num_tokens = 2048;
  few.num_seqs = 8;
  few.max_graph_tokens = 0;
  few.image_tokens = 16384;
  const double counts = 4. * 8 * 248'320;
  const double encoder = 2. * 65'536 * (1536 + 3 * 1152 + 2 * 4304);
  CHECK(reserved_memory_gib(few, qwen) == Approx(0.25 + (encoder + counts) / kGib));
  few.tensor_parallel_size = 2;
  CHECK(reserved_memory_gib(few, qwen) ==
        Approx(1.5 + (2. * 65'536 * (1536 + 3 * 1152 + 4304) + counts) / kGib));
  // With 1,024 sequences sampling takes more, beside the embeddings.
  MemoryFacts many = vllm_settings(33);
  many.image_tokens = 16384;
  const double logits = 1024. * 248'320;
  CHECK(reserved_memory_gib(many, qwen) ==
        Approx(0.25 + 1 + 0.18 + (18 * logits + 2. * 16'384 * 5120) / kGib));
  // The first runner also holds the pixels.
  many.looks_up_drafts = true;
  CHECK(reserved_memory_gib(many, qwen) ==
        Approx(0.25 + 1 + 0.18 + (14 * logits + 2. * 16'384 * 5120 + 2. * 65'536 * 1536) / kGib));
}

// vLLM 0.31 on an A100 with its defaults there took 72.91 - 15.00 - 56.21 GiB, CUDA graphs
// included.
TEST_CASE("later vLLM keeps memory for CUDA graphs", "[engines][memory]") {
  MemoryFacts settings = vllm_settings(31);
  settings.num_tokens = 2048;
  settings.num_seqs = 256;
  const double all = reserved(settings, "llama-3.1-8b");
  CHECK(all == Approx(1.70).margin(0.15));
  settings.max_graph_tokens = 1024;
  CHECK(reserved(settings, "llama-3.1-8b") == all);
  settings.max_graph_tokens = 256;
  CHECK(reserved(settings, "llama-3.1-8b") == Approx(all - 0.5));
  settings.max_graph_tokens = 0;
  CHECK(reserved(settings, "llama-3.1-8b") == Approx(all - 1));
}

// vLLM 0.11 with Qwen3-32B on 80 GB, prompts of 3,996 tokens and answers of 200 without pause
// (gpustack, docs/performance-lab/qwen3-32b). The rate of tokens times the time of each says how
// many requests decoded on average: as many as the pool that remains has room for, less the one
// whose prompt is computed. 40,960 tokens, the model's context, have no room there: the page of the
// A100 starts the server with 32,768.
TEST_CASE("a published run shows how much KV vLLM keeps", "[engines][memory]") {
  struct Run {
    const char* gpu;
    std::int64_t num_seqs, num_tokens;  // defaults of the server on it
    double tokens_per_second, tpot_ms;
  };
  const ModelConfig model = find_model("qwen3-32b", {});
  for (const Run& run : {Run{"h100-sxm", 1024, 8192, 102.21, 66.61},
                         Run{"a100-80gb", 256, 2048, 0.44 * 200, 96.19}}) {
    CAPTURE(run.gpu);
    MemoryFacts facts = vllm_settings(19);
    facts.num_seqs = run.num_seqs;
    facts.num_tokens = run.num_tokens;
    const double room = 0.9 * static_cast<double>(find_hardware(run.gpu, {}).memory_bytes) -
                        static_cast<double>(model.weight_bytes()) -
                        reserved_memory_gib(facts, model) * kGib;
    const double tokens = room / static_cast<double>(model.kv_bytes_per_token());
    const double num_decoding = run.tokens_per_second * run.tpot_ms / 1000;
    CHECK(num_decoding == Approx(tokens / 4196 - 1).margin(0.6));
    CHECK(tokens < 40'960);
  }
}

// By version, on an H100: use_v2_model_runner, VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS and
// profile_cudagraph_memory of each.
TEST_CASE("vLLM's memory follows its model runner", "[engines][memory]") {
  const ModelConfig llama = find_model("llama-3.1-8b", {});
  const auto llama_gib = [&llama](int minor, bool looks_up_drafts = false) {
    MemoryFacts settings = vllm_settings(minor);
    settings.looks_up_drafts = looks_up_drafts;
    return reserved_memory_gib(settings, llama);
  };
  const double first = llama_gib(19);
  const double counts = 4 * 1024. * 128256 / kGib;
  const double pass = 8192. * (6 * 14336 + 8 * 4096) / kGib;
  CHECK(llama_gib(20) == Approx(first + 1));
  CHECK(llama_gib(22) == Approx(first + 1));
  for (const int minor : {23, 24, 25, 28}) {
    CHECK(llama_gib(minor) == Approx(0.25 + pass + counts));
  }
  for (const int minor : {29, 32}) CHECK(llama_gib(minor) == Approx(0.25 + pass + counts + 1));
  CHECK(llama_gib(33) == Approx(first + counts + 1));
  CHECK(llama_gib(33, true) == Approx(first + 1));  // the first runner

  const auto is_second = [](int minor, const ModelConfig& model) {
    MemoryFacts settings = vllm_settings(minor);
    const double gib = reserved_memory_gib(settings, model);
    settings.looks_up_drafts = true;
    return gib != reserved_memory_gib(settings, model);
  };
  const ModelConfig qwen = find_model("qwen3-8b", {});
  ModelConfig quantised = qwen;
  quantised.linear_format = WeightFormat::Fp8;
  CHECK_FALSE(is_second(21, qwen));
  CHECK(is_second(22, qwen));
  CHECK_FALSE(is_second(22, llama));
  CHECK_FALSE(is_second(23, quantised));
  CHECK(is_second(24, quantised));
  CHECK_FALSE(is_second(24, find_model("phi-4", {})));
  CHECK(is_second(25, find_model("phi-4", {})));
  for (const char* late : {"qwen3-30b-a3b", "qwen3.5-9b"}) {
    CHECK_FALSE(is_second(28, find_model(late, {})));
    CHECK(is_second(29, find_model(late, {})));
  }
}

TEST_CASE("vLLM's first engine sorts what it samples", "[engines][memory]") {
  CHECK(reserved(vllm_settings(33), "llama-3.1-8b", "vllm_prefill_first") ==
        Approx(0.25 + 38 * 1024. * 128256 / kGib));
}

// Its logs of Llama-3.1-8B on 80 GB: 78.81 GiB free before the weights, 63.72 after, 54.26 of KV.
TEST_CASE("SGLang takes its share of free memory", "[engines][memory]") {
  MemoryFacts settings = {.gpu_memory_utilization = 0.88};
  const double total = 79.19;
  const double one = reserved(settings, "llama-3.1-8b", "sglang");
  CHECK(0.88 * total - one - (78.81 - 63.72) == Approx(54.26).margin(0.2));
  ModelConfig seeing = find_model("llama-3.1-8b", {});
  seeing.vision = find_model("qwen3-vl-4b", {}).vision;  // embeddings of images: 100 MiB
  CHECK(reserved_memory_gib(settings, seeing, "sglang") == Approx(one + 100. / 1024));
  settings.tensor_parallel_size = 8;  // 77.43 were free
  CHECK(reserved(settings, "llama-3.1-8b", "sglang") ==
        Approx(0.88 * (total - 77.43)).margin(0.25));
}

// KV blocks get 0.9 of what weights and the largest step leave.
TEST_CASE("TensorRT-LLM takes its share of the rest", "[engines][memory]") {
  const ModelConfig model = find_model("llama-3.1-70b", {});
  MemoryFacts settings = tensorrt_llm_settings(8192, 1);
  settings.tensor_parallel_size = 4;
  const double peak = reserved_memory_gib(settings, model, "tensorrt_llm");  // of the whole memory
  CHECK(peak == Approx(1.5 + 8192. * (6 * 28672 / 4 + 8 * 8192) / kGib));
  settings.gpu_memory_utilization = 0.9;
  const double weights = device_weight_bytes(model, 4) / kGib;
  const double total = 139.81;
  CHECK(0.9 * total - weights - reserved_memory_gib(settings, model, "tensorrt_llm") ==
        Approx(0.9 * (total - weights - peak)));
  // A log of gpt-oss-120b: 0.85 GiB of activations for 8,192 tokens.
  CHECK(reserved(tensorrt_llm_settings(8192, 1), "gpt-oss-120b", "tensorrt_llm") - 0.25 ==
        Approx(0.85).margin(0.2));
}

// The scenario's engine decides, with the settings of its largest step.
TEST_CASE("simulations keep their engine's memory", "[engines][memory]") {
  const ScratchFolder folder;
  const ModelConfig model = find_model("llama-3.1-8b", {});
  const auto num_blocks = [&folder](const std::string& rest) {
    const std::string path = folder.write(
        "s.yaml",
        "model: llama-3.1-8b\nhardware: h100-sxm\nkv_cache: {block_size: 16}\n"
        "workload: {num_requests: 1, arrivals: {process: burst}, prompt_tokens: {distribution: "
        "fixed, value: 9}, output_tokens: {distribution: fixed, value: 9}}\n" +
            rest);
    return prepare_simulation(load_scenario(path, {}, std::nullopt).variants.front())
        .setup.kv_cache.num_blocks;
  };
  const auto expected = [&model](double share, double reserved_gib) {
    const double room = share * static_cast<double>(find_hardware("h100-sxm", {}).memory_bytes) -
                        static_cast<double>(model.weight_bytes()) - reserved_gib * kGib;
    return static_cast<std::int64_t>(room / (16 * 131'072));
  };
  CHECK(num_blocks("scheduler: {policy: vllm}\n") ==
        expected(0.92, reserved_memory_gib(vllm_settings(33), model)));
  MemoryFacts small = vllm_settings(33);
  small.num_tokens = 2048;
  small.num_seqs = 128;
  small.max_graph_tokens = 256;
  CHECK(num_blocks("scheduler: {policy: vllm, max_num_batched_tokens: 2048}\n"
                   "engine: {max_num_seqs: 128}\n") ==
        expected(0.92, reserved_memory_gib(small, model)));
  CHECK(num_blocks("scheduler: {policy: sglang}\ncost_model: {gpu_memory_utilization: 0.8}\n") ==
        expected(0.8, reserved_memory_gib({.gpu_memory_utilization = 0.8}, model, "sglang")));
  CHECK(
      num_blocks("scheduler: {policy: tensorrt_llm, max_num_tokens: 4096}\n") ==
      expected(0.9, reserved_memory_gib(tensorrt_llm_settings(4096, 0.9), model, "tensorrt_llm")));
  // Its steps have whole prompts, and a token for each sequence.
  CHECK(num_blocks("scheduler: {policy: vllm_prefill_first}\n"
                   "engine: {max_model_len: 4096, max_num_seqs: 5000}\n") ==
        expected(0.9, reserved_memory_gib({.num_tokens = 4096, .num_seqs = 4096}, model,
                                          "vllm_prefill_first")));
  CHECK(num_blocks("scheduler: {policy: chunked}\n") == expected(0.9, 2e9 / kGib));
  CHECK(num_blocks("scheduler: {policy: vllm}\ncost_model: {reserved_memory_gib: 0}\n") ==
        num_blocks("scheduler: {policy: chunked}\ncost_model: {reserved_memory_gib: 0, "
                   "gpu_memory_utilization: 0.92}\n"));
}

}  // namespace metronome::testing::TEST_FILE
