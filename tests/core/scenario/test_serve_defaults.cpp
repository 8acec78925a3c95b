// What vLLM's and SGLang's servers set by themselves. The tables below are the answers of the
// engines' own functions (get_batch_defaults, handle_gpu_memory_settings), run for these GPUs.
#include "core/base/error.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/scenario/serve_defaults.h"
#include "tests/catch.h"

namespace metronome {
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
std::string batch(int minor, const HardwareSpec& gpu, const ServeOptions& chosen = {}) {
  const auto defaults = vllm_serve_defaults(minor, gpu, chosen);
  return value(defaults, "scheduler.max_num_batched_tokens") + " " +
         value(defaults, "engine.max_num_seqs");
}

std::string budget_reason(int minor, const HardwareSpec& gpu, const ServeOptions& chosen = {}) {
  return find(vllm_serve_defaults(minor, gpu, chosen), "scheduler.max_num_batched_tokens").reason;
}

std::string graph_tokens(int minor, const HardwareSpec& gpu, const ServeOptions& chosen = {}) {
  return value(vllm_serve_defaults(minor, gpu, chosen), "cost_model.max_graph_tokens");
}

// "8192 256 0.828": chunk, largest decode graph, share of memory.
std::string sglang(const HardwareSpec& gpu, const ServeOptions& chosen = {}) {
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
  const ServeOptions small_budget = {.max_num_batched_tokens = 300};
  CHECK(batch(33, h100, small_budget) == "300 300");
  CHECK(graph_tokens(33, h100, small_budget) == "300");
  CHECK(graph_tokens(33, h100, {.max_num_seqs = 100}) == "200");
  CHECK(graph_tokens(33, h100, {.max_num_seqs = 100, .max_num_batched_tokens = 128}) == "128");
  // Few short requests need no large budget, and a prompt that is not chunked needs all of it.
  CHECK(batch(33, h100, {.max_num_seqs = 2, .max_model_len = 1000}) == "2000 2");
  CHECK(batch(33, h100, {.max_model_len = 40960, .enable_chunked_prefill = false}) == "40960 1024");
  CHECK(batch(33, h100, {.max_model_len = 4096, .enable_chunked_prefill = false}) == "8192 1024");
  CHECK(batch(33, h100, {.max_model_len = 40960}) == "8192 1024");
  CHECK(batch(33, known("rtx-4090"), {.max_num_seqs = 1, .max_model_len = 512}) == "512 1");
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
  CHECK(sglang(known("h100-sxm")) == "8192 256 0.828");
  CHECK(sglang(known("h200")) == "8192 256 0.902");
  CHECK(sglang(kB200) == "16384 512 0.853");
  CHECK(sglang(kSmallA100) == "4096 32 0.821");
  CHECK(sglang(known("a100-80gb")) == "8192 256 0.828");
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
  const auto share = [&h100](const ServeOptions& chosen) {
    return value(sglang_serve_defaults(h100, chosen), "cost_model.gpu_memory_utilization");
  };
  CHECK(share({.chunked_prefill_size = 2048}) == "0.873");
  CHECK(share({.chunked_prefill_size = -1}) == "0.682");
  CHECK(share({.chunked_prefill_size = -1, .max_prefill_tokens = 32768}) == "0.378");
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

}  // namespace
}  // namespace metronome
