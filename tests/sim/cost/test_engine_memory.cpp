// sim/cost/engine_memory: what engines kept from KV blocks, by their own logs.
#include <vector>

#include "core/hardware/hardware.h"
#include "core/model/model_catalogue.h"
#include "sim/cost/device_share.h"
#include "sim/cost/engine_memory.h"
#include "tests/catch.h"

namespace metronome::testing {
namespace {

// vLLM on an H100 of 80 GB with its defaults there: 1,024 sequences, 8,192 tokens a step.
EngineLoad vllm_load(int minor, std::int64_t tp = 1) {
  return {.rule = KvMemory::Vllm,
          .vllm_minor = minor,
          .tensor_parallel_size = tp,
          .num_tokens = 8192,
          .num_seqs = 1024,
          .max_graph_tokens = 512};
}

double reserved(const EngineLoad& load, const std::string& model) {
  return reserved_memory_gib(load, find_model(model, {}));
}

}  // namespace

// Logs of vLLM 0.18 and 0.19 (llm-d-incubation/llm-d-planner, accuracy/): "non-torch" and "torch
// peak activation", GiB. Where a row lacks the former, it is that of the others, 0.25.
TEST_CASE("vLLM keeps what its logs say", "[sim][memory]") {
  struct Row {
    const char* model;
    int minor;
    std::int64_t tp;
    double gib;
  };
  const std::vector<Row> rows = {
      {"llama-3.1-8b", 19, 1, 0.25 + 1.89},  {"granite-3.1-8b", 19, 1, 0.46 + 0.85},
      {"qwen2.5-7b", 19, 1, 0.24 + 2.21},    {"qwen3-14b", 18, 1, 0.25 + 2.23},
      {"qwen3-8b", 19, 1, 0.25 + 2.21},      {"phi-4", 19, 1, 0.25 + 1.52},
      {"qwen3-30b-a3b", 19, 1, 0.25 + 2.68},
  };
  for (const Row& row : rows) {
    CAPTURE(row.model, row.tp);
    CHECK(reserved(vllm_load(row.minor, row.tp), row.model) == Approx(row.gib).margin(0.25));
  }
  // "Peak activation" alone, on two GPUs.
  CHECK(reserved(vllm_load(19, 2), "mixtral-8x7b") - 1.5 == Approx(1.21).margin(0.1));
  CHECK(reserved(vllm_load(19, 2), "gpt-oss-20b") - 1.5 == Approx(2.87).margin(0.1));
  // Buffers of collectives differ more between hosts: 2.07 and 2.13 GiB here, 0.95 elsewhere.
  for (const std::int64_t tp : {2, 4}) {
    CHECK(reserved(vllm_load(19, tp), "llama-3.1-8b") == Approx(2.1 + 1.89).margin(0.7));
  }
}

// vLLM 0.31 on an A100 with its defaults there took 72.91 - 15.00 - 56.21 GiB, CUDA graphs
// included.
TEST_CASE("later vLLM keeps memory for CUDA graphs", "[sim][memory]") {
  EngineLoad load = vllm_load(31);
  load.num_tokens = 2048;
  load.num_seqs = 256;
  CHECK(reserved(load, "llama-3.1-8b") == Approx(1.70).margin(0.25));
  load.max_graph_tokens = 0;
  CHECK(reserved(load, "llama-3.1-8b") == Approx(0.70).margin(0.25));
  load.vllm_minor = 19;
  const double before = reserved(load, "llama-3.1-8b");
  load.max_graph_tokens = 512;
  CHECK(reserved(load, "llama-3.1-8b") == before);  // 0.19 did not count them
}

// Its logs of Llama-3.1-8B on 80 GB: 78.81 GiB free before the weights, 63.72 after, 54.26 of KV.
TEST_CASE("SGLang takes its share of free memory", "[sim][memory]") {
  const EngineLoad load = {.rule = KvMemory::Sglang, .gpu_memory_utilization = 0.88};
  const double total = 79.19;
  CHECK(0.88 * total - reserved(load, "llama-3.1-8b") - (78.81 - 63.72) ==
        Approx(54.26).margin(0.3));
}

// KV blocks get 0.9 of what weights and the largest step leave.
TEST_CASE("TensorRT-LLM takes its share of the rest", "[sim][memory]") {
  const ModelConfig model = find_model("llama-3.1-70b", {});
  EngineLoad load = {.rule = KvMemory::TensorRtLlm,
                     .tensor_parallel_size = 4,
                     .num_tokens = 8192,
                     .num_seqs = 256,
                     .gpu_memory_utilization = 1};
  const double peak = reserved_memory_gib(load, model);  // of the whole memory
  CHECK(peak > 1.5);
  CHECK(peak < 3.5);
  load.gpu_memory_utilization = 0.9;
  const double weights = device_weight_bytes(model, 4) / kGib;
  const double total = 139.81;
  CHECK(0.9 * total - weights - reserved_memory_gib(load, model) ==
        Approx(0.9 * (total - weights - peak)));
}

TEST_CASE("other engines keep 2 GB", "[sim][memory]") {
  CHECK(reserved({}, "llama-3.1-8b") * kGib == 2e9);
}

}  // namespace metronome::testing
