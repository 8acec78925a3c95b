// SPDX-License-Identifier: Apache-2.0
// Settings as flags of engines: known answers, and no flag the engines do not have.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"
#include "engines/flags/known_flags.h"
#include "engines/flags/server_flags.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

Scenario scenario_with(const std::vector<std::string>& assignments) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("small.yaml", kSmallScenario);
  return load_scenario(file, assignments, std::nullopt).variants.front();
}

EngineFlags flags_of(const std::string& engine, const std::vector<std::string>& assignments) {
  for (EngineFlags& flags : engine_flags(scenario_with(assignments))) {
    if (flags.engine == engine) return flags;
  }
  return {};
}

bool mentions(const std::vector<std::string>& notes, const std::string& part) {
  return std::any_of(notes.begin(), notes.end(), [&part](const std::string& note) {
    return note.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("policy vllm has vLLM's flags, and nothing to add", "[tools][flags]") {
  const EngineFlags plain = flags_of("vLLM", {"scheduler.policy=vllm"});
  CHECK(joined_flags(plain) ==
        "--max-num-batched-tokens 8192 --enable-chunked-prefill --scheduling-policy fcfs "
        "--scheduler-reserve-full-isl --max-num-seqs 8 --max-model-len 4096 --block-size 16 "
        "--enable-prefix-caching --gpu-memory-utilization 0.92 --async-scheduling");
  CHECK(plain.notes.empty());
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=vllm", "engine.async_depth=1"}))
            .ends_with(" --no-async-scheduling"));
  const EngineFlags other = flags_of(
      "vLLM", {"scheduler.policy=vllm", "scheduler.max_num_batched_tokens=4096",
               "scheduler.scheduling_policy=priority", "scheduler.enable_chunked_prefill=false",
               "scheduler.scheduler_reserve_full_isl=false", "engine.async_depth=2",
               "kv_cache.num_blocks=500", "kv_cache.enable_prefix_caching=false",
               "cost_model.tensor_parallel_size=2"});
  CHECK(joined_flags(other) ==
        "--max-num-batched-tokens 4096 --no-enable-chunked-prefill --scheduling-policy priority "
        "--no-scheduler-reserve-full-isl --max-num-seqs 8 --max-model-len 4096 --block-size 16 "
        "--no-enable-prefix-caching --num-gpu-blocks-override 500 --async-scheduling "
        "--tensor-parallel-size 2");
  CHECK(other.notes.empty());
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=vllm",
                                       "scheduler.long_prefill_token_threshold=256"}))
            .find("--long-prefill-token-threshold 256 ") != std::string::npos);
}

TEST_CASE("formats of weights and caches, and eager steps", "[tools][flags]") {
  const std::vector<std::string> formats = {"scheduler.policy=vllm", "quantization=fp8",
                                            "kv_cache.dtype=fp8", "cost_model.max_graph_tokens=0"};
  CHECK(joined_flags(flags_of("vLLM", formats))
            .ends_with(" --quantization fp8 --kv-cache-dtype fp8 --enforce-eager"));
  CHECK(joined_flags(flags_of("SGLang", formats))
            .ends_with(" --quantization fp8 --kv-cache-dtype fp8_e4m3 --disable-cuda-graph"));
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=vllm", "kv_cache.dtype=bf16"}))
            .ends_with(" --kv-cache-dtype bfloat16"));
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=vllm", "cost_model.max_graph_tokens=64"}))
            .ends_with(" --max-cudagraph-capture-size 64"));
  CHECK(joined_flags(flags_of("SGLang", {"cost_model.max_graph_tokens=64"}))
            .ends_with(" --cuda-graph-max-bs-decode 64"));
  const std::string prompts = "cost_model.max_prompt_graph_tokens=";
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=vllm", prompts + "0"}))
            .ends_with(R"( --compilation-config '{"cudagraph_mode":"FULL_DECODE_ONLY"}')"));
  CHECK(mentions(flags_of("vLLM", {"scheduler.policy=vllm", prompts + "2048"}).notes,
                 "max_prompt_graph_tokens has no flag"));
  CHECK(joined_flags(flags_of("SGLang", {"scheduler.policy=sglang", prompts + "0"}))
            .ends_with(" --disable-prefill-cuda-graph"));
  CHECK(joined_flags(flags_of("SGLang", {"scheduler.policy=sglang", prompts + "2048"}))
            .ends_with(" --cuda-graph-max-bs-prefill 2048"));
  CHECK(flags_of("vLLM", {"scheduler.policy=vllm", prompts + "1048576"}).notes.empty());
  CHECK(joined_flags(flags_of("SGLang", {"cost_model.max_graph_tokens=0", prompts + "0"}))
            .ends_with(" --disable-cuda-graph"));
  // A repository of fp8 needs no flag.
  for (const char* engine : {"vLLM", "SGLang"}) {
    std::vector<std::string> stored = formats;
    stored.emplace_back("model=deepseek-v3");
    CHECK(joined_flags(flags_of(engine, stored)).find("--quantization") == std::string::npos);
  }
  const EngineFlags other = flags_of("vLLM", {"scheduler.policy=vllm", "quantization=int4"});
  CHECK(joined_flags(other).find("--quantization") == std::string::npos);
  CHECK(mentions(other.notes, "serve a checkpoint in that format"));
}

TEST_CASE("drafts are vLLM's --speculative-config", "[tools][flags]") {
  const std::vector<std::string> lookup = {"scheduler.policy=vllm", "speculative.method=ngram",
                                           "speculative.num_speculative_tokens=4",
                                           "speculative.prompt_lookup_min=2"};
  CHECK(joined_flags(flags_of("vLLM", lookup))
            .find("--speculative-config '{\"method\":\"ngram\",\"num_speculative_tokens\":4,"
                  "\"prompt_lookup_max\":5,\"prompt_lookup_min\":2}' --no-async") !=
        std::string::npos);
  CHECK(mentions(flags_of("SGLang", lookup).notes, "schedules drafts differently"));
  const std::vector<std::string> by_size = {
      "scheduler.policy=vllm", "speculative.method=eagle",
      "speculative.num_speculative_tokens_per_batch_size=[[1, 8, 3], [9, 64, 0]]"};
  CHECK(joined_flags(flags_of("vLLM", by_size))
            .find("\"num_speculative_tokens_per_batch_size\":[[1,8,3],[9,64,0]]}'") !=
        std::string::npos);
  CHECK(mentions(flags_of("vLLM", by_size).notes, "the path of the EAGLE head"));
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=vllm", "speculative.method=eagle",
                                       "speculative.num_speculative_tokens=0"}))
            .find("speculative") == std::string::npos);
}

TEST_CASE("policy sglang has SGLang's flags", "[tools][flags]") {
  const EngineFlags plain = flags_of("SGLang", {"scheduler.policy=sglang"});
  CHECK(joined_flags(plain) ==
        "--chunked-prefill-size 8192 --max-prefill-tokens 16384 --schedule-policy fcfs "
        "--schedule-conservativeness 1 --max-running-requests 8 --context-length 4096 "
        "--page-size 1 --mem-fraction-static 0.906");
  CHECK(plain.notes.empty());
  CHECK(joined_flags(flags_of("SGLang", {"scheduler.policy=sglang", "engine.async_depth=1"}))
            .ends_with(" --disable-overlap-schedule"));
  const EngineFlags other = flags_of(
      "SGLang",
      {"scheduler.policy=sglang", "scheduler.chunked_prefill_size=-1",
       "scheduler.schedule_policy=lpm", "scheduler.schedule_conservativeness=1.25",
       "scheduler.retract_decode_steps=30", "kv_cache.num_blocks=500", "engine.async_depth=2",
       "engine.max_waiting_requests=9", "kv_cache.enable_prefix_caching=false"});
  CHECK(joined_flags(other) ==
        "--chunked-prefill-size -1 --max-prefill-tokens 16384 --schedule-policy lpm "
        "--schedule-conservativeness 1.25 --max-running-requests 8 --context-length 4096 "
        "--page-size 16 --disable-radix-cache --max-total-tokens 8000 --max-queued-requests 9");
  CHECK(other.notes ==
        std::vector<std::string>{"set the environment variable SGLANG_RETRACT_DECODE_STEPS=30"});
}

TEST_CASE("other policies have the nearest flags and say what is missing", "[tools][flags]") {
  const std::vector<std::string> chunked = {"scheduler.policy=chunked",
                                            "scheduler.prefill_chunk_size=128"};
  const EngineFlags vllm = flags_of("vLLM", chunked);
  CHECK(
      joined_flags(vllm).starts_with("--max-num-batched-tokens 1024 --enable-chunked-prefill "
                                     "--long-prefill-token-threshold 128 "));
  CHECK(mentions(vllm.notes, "chunked has no token budget"));
  CHECK(joined_flags(flags_of("SGLang", chunked))
            .starts_with("--chunked-prefill-size 128 --enable-mixed-chunk "));

  const std::vector<std::string> budget = {
      "scheduler.policy=token_budget",    "scheduler.max_num_batched_tokens=512",
      "scheduler.prefill_chunk_size=256", "scheduler.max_num_partial_prefills=2",
      "scheduler.order=priority",         "engine.max_waiting_requests=5"};
  const EngineFlags near = flags_of("vLLM", budget);
  CHECK(joined_flags(near).starts_with(
      "--max-num-batched-tokens 512 --enable-chunked-prefill --long-prefill-token-threshold 256 "
      "--scheduling-policy priority --max-num-seqs 8 "));
  CHECK(mentions(near.notes, "max_num_partial_prefills"));
  CHECK(mentions(near.notes, "engine.max_waiting_requests has no flag"));
  const EngineFlags sglang = flags_of("SGLang", budget);
  CHECK(joined_flags(sglang).find("--enable-priority-scheduling "
                                  "--schedule-low-priority-values-first") != std::string::npos);
  CHECK(mentions(sglang.notes, "not the chunk of one request"));
  // Whole pages of 16, at least one.
  for (const auto& [size, chunk] : {std::pair("511", "496 "), std::pair("9", "16 ")}) {
    const EngineFlags flags = flags_of(
        "SGLang",
        {"scheduler.policy=token_budget", "scheduler.max_num_batched_tokens=" + std::string(size)});
    CHECK(joined_flags(flags).starts_with("--chunked-prefill-size " + std::string(chunk)));
  }

  const EngineFlags whole = flags_of("vLLM", {"scheduler.policy=continuous"});
  CHECK(
      joined_flags(whole).starts_with("--max-num-batched-tokens 4096 "
                                      "--no-enable-chunked-prefill "));
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=sarathi"}))
            .starts_with("--max-num-batched-tokens 512 "));
  // vLLM counts its null block, which only the policy vllm has, too.
  CHECK(joined_flags(flags_of("vLLM", {"scheduler.policy=sarathi", "kv_cache.num_blocks=600"}))
            .find("--num-gpu-blocks-override 601") != std::string::npos);
  CHECK(joined_flags(flags_of("SGLang", {"scheduler.policy=vllm", "kv_cache.num_blocks=601"}))
            .find("--max-total-tokens 9600") != std::string::npos);
}

TEST_CASE("every policy has flags, all of them known to the engine", "[tools][flags]") {
  for (const PolicyInfo& policy : all_policies()) {
    INFO(policy.name);
    const std::string name(policy.name);
    for (const EngineFlags& flags :
         engine_flags(scenario_with({"scheduler.policy=" + name, "slo.itl_ms=30"}))) {
      INFO(flags.engine);
      const ServerFlags* own = product_of(name).flags;
      CHECK(flags.is_comparison == (own != nullptr && own->server != flags.engine));
      CHECK(flags.refusal.empty());
      if (flags.engine != "vLLM" && flags.engine != "SGLang") continue;
      CHECK(flags.flags.size() >= 6);
      std::set<std::string> seen;
      for (const std::string& flag : flags.flags) {
        const std::string word = flag.substr(0, flag.find(' '));
        INFO(word);
        CHECK(find_flag(find_server(flags.engine)->name, word) != nullptr);
        CHECK(seen.insert(word).second);
      }
      const bool is_own = (name == "vllm" && flags.engine == "vLLM") ||
                          (name == "sglang" && flags.engine == "SGLang");
      CHECK(flags.notes.empty() == is_own);
    }
  }
}

TEST_CASE("the engine of the policy comes first, with its own names", "[tools][flags]") {
  const auto first = [](const std::vector<std::string>& assignments) {
    return engine_flags(scenario_with(assignments)).front();
  };
  CHECK(first({"scheduler.policy=sglang"}).engine == "SGLang");
  const EngineFlags llama =
      first({"scheduler.policy=llama_cpp", "scheduler.n_batch=4864", "kv_cache.num_blocks=500",
             "kv_cache.enable_prefix_caching=false", "scheduler.cont_batching=false"});
  CHECK(llama.engine == "llama-server");
  CHECK(joined_flags(llama) ==
        "-b 4864 -ub 512 -np 8 -kvu -c 8000 --no-cont-batching --no-cache-prompt");
  CHECK(joined_flags(first({"scheduler.policy=llama_cpp"})) ==
        "-b 2048 -ub 512 -np 8 -kvu --slot-prompt-similarity 0.1 --cache-ram 0");
  const EngineFlags trtllm =
      first({"scheduler.policy=tensorrt_llm", "scheduler.max_num_tokens=1024",
             "scheduler.capacity_scheduler_policy=MAX_UTILIZATION",
             "scheduler.enable_chunked_context=false", "cost_model.tensor_parallel_size=2"});
  CHECK(trtllm.engine == "trtllm-serve");
  CHECK(flag_lines(trtllm) ==
        std::vector<std::string>{
            "max_num_tokens: 1024", "enable_chunked_prefill: false",
            "scheduler_config:", "  capacity_scheduler_policy: MAX_UTILIZATION",
            "  context_chunking_policy: FIRST_COME_FIRST_SERVED", "max_batch_size: 8",
            "max_seq_len: 4096", "kv_cache_config:", "  enable_block_reuse: true",
            "  tokens_per_block: 16", "  free_gpu_memory_fraction: 0.9",
            "disable_overlap_scheduler: true", "tensor_parallel_size: 2"});
  CHECK(flag_lines(llama) == std::vector<std::string>{joined_flags(llama)});
}

TEST_CASE("flags that an engine refuses are not printed", "[tools][flags]") {
  const EngineFlags small = flags_of(
      "vLLM",
      {"scheduler.policy=sglang", "scheduler.chunked_prefill_size=128", "engine.max_num_seqs=256"});
  CHECK(small.refusal == "it refuses --max-num-batched-tokens 128 below --max-num-seqs 256");
  CHECK(small.flags.empty());
  const EngineFlags whole =
      flags_of("vLLM", {"scheduler.policy=vllm_prefill_first", "engine.max_model_len=8192",
                        "scheduler.max_num_batched_tokens=4096"});
  CHECK((whole.flags.empty() == !whole.refusal.empty()));
  CHECK(flag_changes({}, small).refusal == small.refusal);
  CHECK(flag_changes({}, small).empty());
}

// Refusals of the engines, from their sources: vllm/config/scheduler.py and the attention backends
// of vLLM, srt/server_args.py of SGLang, llama-context.cpp, and kvCacheUtils.h of TensorRT-LLM.
TEST_CASE("no engine refuses the flags of any policy", "[tools][flags]") {
  constexpr std::int64_t kOwnLength = 131072;  // of llama-3.2-1b
  int num_checked = 0;
  const auto check = [&](const EngineFlags& flags) {
    if (!flags.refusal.empty()) {
      CHECK(flags.flags.empty());
      return;
    }
    INFO(flags.engine << ": " << joined_flags(flags));
    std::map<std::string, std::string> given;
    for (const std::string& flag : flags.flags) {
      const std::size_t end = std::min(flag.find(' '), flag.size());
      given[flag.substr(0, end)] = end < flag.size() ? flag.substr(end + 1) : "";
    }
    const auto number = [&given](const std::string& name, std::int64_t otherwise) {
      return given.count(name) == 0 ? otherwise : std::atoll(given.at(name).c_str());
    };
    const std::int64_t budget = number("--max-num-batched-tokens", kOwnLength);
    CHECK(budget >= number("--max-num-seqs", 1));
    if (given.count("--no-enable-chunked-prefill") > 0) {
      CHECK(given.count("--max-num-batched-tokens") == 1);
      CHECK(budget >= number("--max-model-len", kOwnLength));
    }
    CHECK(number("--block-size", 16) % 16 == 0);
    CHECK(number("--num-gpu-blocks-override", 2) >= 2);
    const bool has_ngram = given["--speculative-config"].find("ngram") != std::string::npos;
    CHECK((!has_ngram || given.count("--async-scheduling") == 0));
    const std::int64_t chunk = number("--chunked-prefill-size", -1);
    CHECK((chunk <= 0 || chunk % number("--page-size", 1) == 0));
    CHECK(number("-np", 1) <= 256);
    const std::int64_t tokens_per_block = number("kv_cache_config.tokens_per_block:", 32);
    CHECK((tokens_per_block & (tokens_per_block - 1)) == 0);
    ++num_checked;
  };
  for (const PolicyInfo& policy : all_policies()) {
    for (const char* block : {"1", "8", "16", "24", "31"}) {
      for (const char* others :
           {"engine.async_depth=1", "engine.max_model_len=auto", "engine.max_num_seqs=300",
            "kv_cache.num_blocks=900", "speculative={method: ngram, num_speculative_tokens: 2}"}) {
        CAPTURE(policy.name, block, others);
        try {
          const Scenario scenario =
              scenario_with({"scheduler.policy=" + std::string(policy.name), "slo.itl_ms=30",
                             "kv_cache.block_size=" + std::string(block), others});
          for (const EngineFlags& flags : engine_flags(scenario)) check(flags);
        } catch (const ConfigError&) {
          // The policy has no such setting.
        }
      }
    }
  }
  CHECK(num_checked > 300);
}

TEST_CASE("a value that an engine does not take becomes the nearest, and a note says so",
          "[tools][flags]") {
  const EngineFlags pages = flags_of(
      "vLLM", {"scheduler.policy=sglang", "kv_cache.block_size=1", "kv_cache.num_blocks=3200"});
  CHECK(joined_flags(pages).find("--block-size 16 ") != std::string::npos);
  CHECK(joined_flags(pages).find("--num-gpu-blocks-override 201") != std::string::npos);
  CHECK(mentions(pages.notes, "kv_cache.block_size 1 becomes 16"));
  const EngineFlags odd =
      flags_of("trtllm-serve", {"scheduler.policy=tensorrt_llm", "kv_cache.block_size=24"});
  CHECK(mentions(odd.notes, "kv_cache.block_size 24 becomes 16"));
  // The model's own length, where the scenario has none.
  const EngineFlags orca = flags_of("vLLM", {"scheduler.policy=orca", "engine.max_model_len=auto"});
  CHECK(joined_flags(orca).starts_with(
      "--max-num-batched-tokens 131072 --no-enable-chunked-prefill "));
}

TEST_CASE("a share of memory is never another engine's", "[tools][flags]") {
  const auto share = [](const std::string& engine, std::vector<std::string> assignments) {
    const std::string flags = joined_flags(flags_of(engine, assignments));
    const std::string name =
        engine == "vLLM" ? "--gpu-memory-utilization " : "--mem-fraction-static ";
    const std::size_t at = flags.find(name);
    return at == std::string::npos
               ? std::string()
               : flags.substr(at + name.size(),
                              flags.find(' ', at + name.size()) - at - name.size());
  };
  // An H100's own of both, as their servers choose it.
  for (const char* policy : {"vllm", "sglang"}) {
    const std::vector<std::string> served = {std::string("scheduler.policy=") + policy,
                                             "hardware=h100-sxm"};
    INFO(policy);
    CHECK(share("vLLM", served) == "0.92");
    CHECK(share("SGLang", served).starts_with("0.8"));
  }
  CHECK(share("SGLang", {"scheduler.policy=vllm", "hardware=h100-sxm",
                         "cost_model.gpu_memory_utilization=0.95"})
            .starts_with("0.8"));
  CHECK(share("SGLang", {"scheduler.policy=sglang", "hardware=h100-sxm",
                         "cost_model.gpu_memory_utilization=0.85"}) == "0.85");
}

TEST_CASE("one set of flags becomes another by adding, changing and removing", "[tools][flags]") {
  EngineFlags before, after;
  before.flags = {"--max-num-seqs 64", "--no-enable-chunked-prefill", "--page-size 16", "--quiet"};
  after.flags = {"--max-num-seqs 64", "--enable-chunked-prefill", "--page-size 1", "--port 80"};
  after.engine = "E";
  after.notes = {"note"};
  const FlagChanges changes = flag_changes(before, after);
  CHECK((changes.engine == "E" && changes.notes == after.notes));
  CHECK(changes.added == std::vector<std::string>{"--port 80"});
  CHECK(changes.removed == std::vector<std::string>{"--quiet"});
  REQUIRE(changes.changed.size() == 2);
  CHECK(changes.changed[0].before == "--no-enable-chunked-prefill");
  CHECK(changes.changed[0].after == "--enable-chunked-prefill");
  CHECK(changes.changed[1].after == "--page-size 1");
  CHECK(flag_changes(after, after).empty());
  CHECK_FALSE(changes.empty());
}

}  // namespace TEST_FILE
