// SPDX-License-Identifier: Apache-2.0
// The printed flags of vLLM and SGLang, read back with the engines' own meaning of them, decide as
// the setting they were printed for.
//
// The table below is written from the engines' documents, not from engines/NAME/flags.cpp:
// vLLM's docs/cli/serve and vllm/config/scheduler.py (0.22), SGLang's server_arguments.md and
// environ.py.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

#include "core/base/rng.h"
#include "core/metrics/digest.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"
#include "engines/flags/server_flags.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Settings = std::map<std::string, std::string>;

// More than the cache holds at once, with system prompts that are shared and two priorities.
constexpr const char* kWorkload = R"(seed: 3
model: llama-3.2-1b
sampling: {ignore_eos: false}
hardware: h200
workload:
  num_requests: 120
  arrivals: {process: gamma, rate: 60, burstiness: 0.3}
  prompt_tokens: {distribution: uniform, min: 10, max: 1500}
  output_tokens: {distribution: uniform, min: 1, max: 120}
  prefix: {kind: groups, num_groups: 3, prefix_tokens: 128}
  priority: {values: [0, 1, 2]}
)";

struct FlagMeaning {
  const char* key;    // of a scenario
  const char* value;  // nullptr: the flag's own
};
using FlagTable = std::map<std::string, FlagMeaning>;

const FlagTable& vllm_table() {
  static const FlagTable table = {
      {"--max-num-batched-tokens", {"scheduler.max_num_batched_tokens", nullptr}},
      {"--enable-chunked-prefill", {"scheduler.enable_chunked_prefill", "true"}},
      {"--no-enable-chunked-prefill", {"scheduler.enable_chunked_prefill", "false"}},
      {"--long-prefill-token-threshold", {"scheduler.long_prefill_token_threshold", nullptr}},
      {"--scheduling-policy", {"scheduler.scheduling_policy", nullptr}},
      {"--scheduler-reserve-full-isl", {"scheduler.scheduler_reserve_full_isl", "true"}},
      {"--no-scheduler-reserve-full-isl", {"scheduler.scheduler_reserve_full_isl", "false"}},
      {"--max-num-seqs", {"engine.max_num_seqs", nullptr}},
      {"--max-model-len", {"engine.max_model_len", nullptr}},
      {"--block-size", {"kv_cache.block_size", nullptr}},
      {"--enable-prefix-caching", {"kv_cache.enable_prefix_caching", "true"}},
      {"--no-enable-prefix-caching", {"kv_cache.enable_prefix_caching", "false"}},
      {"--num-gpu-blocks-override", {"kv_cache.num_blocks", nullptr}},  // with the null block
      {"--gpu-memory-utilization", {"cost_model.gpu_memory_utilization", nullptr}},
      {"--async-scheduling", {"engine.async_depth", "2"}},
      {"--no-async-scheduling", {"engine.async_depth", "1"}},
      {"--tensor-parallel-size", {"cost_model.tensor_parallel_size", nullptr}}};
  return table;
}

const FlagTable& sglang_table() {
  static const FlagTable table = {
      {"--chunked-prefill-size", {"scheduler.chunked_prefill_size", nullptr}},
      {"--max-prefill-tokens", {"scheduler.max_prefill_tokens", nullptr}},
      {"--enable-mixed-chunk", {"scheduler.enable_mixed_chunk", "true"}},
      {"--schedule-policy", {"scheduler.schedule_policy", nullptr}},
      {"--schedule-conservativeness", {"scheduler.schedule_conservativeness", nullptr}},
      {"--max-running-requests", {"engine.max_num_seqs", nullptr}},
      {"--context-length", {"engine.max_model_len", nullptr}},
      {"--page-size", {"kv_cache.block_size", nullptr}},
      {"--disable-radix-cache", {"kv_cache.enable_prefix_caching", "false"}},
      {"--max-total-tokens", {"kv_cache.num_blocks", nullptr}},  // in tokens
      {"--mem-fraction-static", {"cost_model.gpu_memory_utilization", nullptr}},
      {"--disable-overlap-schedule", {"engine.async_depth", "1"}},
      {"--tp-size", {"cost_model.tensor_parallel_size", nullptr}},
      {"--max-queued-requests", {"engine.max_waiting_requests", nullptr}},
      {"SGLANG_INIT_NEW_TOKEN_RATIO", {"scheduler.init_new_token_ratio", nullptr}},
      {"SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR", {"scheduler.min_new_token_ratio_factor", nullptr}},
      {"SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS", {"scheduler.new_token_ratio_decay_steps", nullptr}},
      {"SGLANG_RETRACT_DECODE_STEPS", {"scheduler.retract_decode_steps", nullptr}},
      {"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION", {"scheduler.clip_max_new_tokens", nullptr}}};
  return table;
}

// Each engine's default without a flag. Where it depends on the version or the machine the flag has
// to be there: so the number is one that no test asks for.
Settings engine_defaults(const std::string& engine) {
  if (engine == "vLLM") {
    return {{"scheduler.policy", "vllm"},
            {"scheduler.max_num_batched_tokens", "777"},
            {"scheduler.long_prefill_token_threshold", "0"},
            {"scheduler.scheduling_policy", "fcfs"},
            {"engine.max_num_seqs", "3"},
            {"kv_cache.block_size", "16"},
            {"cost_model.gpu_memory_utilization", "0.92"},
            {"engine.async_depth", "2"}};
  }
  return {{"scheduler.policy", "sglang"},
          {"scheduler.chunked_prefill_size", "77"},
          {"scheduler.enable_mixed_chunk", "false"},
          {"engine.max_num_seqs", "3"},
          {"kv_cache.block_size", "1"},
          {"kv_cache.enable_prefix_caching", "true"},
          {"cost_model.gpu_memory_utilization", "0.88"},
          {"engine.async_depth", "2"}};
}

Settings read_back(const EngineFlags& flags) {
  std::vector<std::string> words = flags.flags;
  for (std::string note : flags.notes) {  // "set the environment variable NAME=VALUE"
    const std::string start = "set the environment variable ";
    if (!note.starts_with(start)) continue;
    std::replace(note.begin(), note.end(), '=', ' ');
    words.push_back(note.substr(start.size()));
  }
  const FlagTable& table = flags.engine == "vLLM" ? vllm_table() : sglang_table();
  Settings settings = engine_defaults(flags.engine);
  for (const std::string& word : words) {
    std::istringstream in(word);
    std::string name;
    std::string value;
    in >> name >> value;
    INFO(word);
    REQUIRE(table.count(name) == 1);
    const FlagMeaning& meaning = table.at(name);
    CHECK(value.empty() == (meaning.value != nullptr));
    settings[meaning.key] = meaning.value != nullptr ? meaning.value : value;
    if (name == "--max-total-tokens") {
      const int page = std::stoi(settings.at("kv_cache.block_size"));
      settings[meaning.key] = std::to_string(std::stoi(value) / page);
    }
  }
  return settings;
}

Scenario scenario_of(const Settings& settings) {
  const ScratchFolder scratch;
  const std::string file = scratch.write("case.yaml", kWorkload);
  std::vector<std::string> assignments;
  for (const auto& [key, value] : settings) assignments.push_back(key + "=" + value);
  return load_scenario(file, assignments, std::nullopt).variants.front();
}

// The decisions and their times: every step's start and chunks.
class Decisions final : public EventSink {
 public:
  void on_event(const Event& event, const Request&) override {
    if (event.kind == EventKind::Preempted) has_preempted = true;
  }
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable&) override {
    text += std::to_string(step.started_at);
    for (const ScheduledChunk& chunk : chunks) {
      text += " r" + std::to_string(index(chunk.request)) + "+" + std::to_string(chunk.num_tokens);
    }
    text += '\n';
  }
  std::string text;
  bool has_preempted = false;
};

struct Outcome {
  std::string digest;     // of every step and event
  std::string decisions;  // of steps alone
  bool has_preempted = false;
};

Outcome simulate(const Scenario& scenario) {
  const Workload workload = make_workload(scenario.workload, scenario.seed);
  EventDigest digest;
  Decisions decisions;
  EventSink* const sinks[] = {&digest, &decisions};
  VirtualClock clock;
  SimulatedBackend().prepare(scenario)->run(workload, clock, sinks,
                                            [](const RunProgress&) { return true; });
  return {digest.hex(), decisions.text, decisions.has_preempted};
}

EngineFlags flags_of(const std::string& engine, const Scenario& scenario) {
  for (EngineFlags& flags : engine_flags(scenario)) {
    if (flags.engine == engine) return flags;
  }
  throw std::logic_error("no flags of " + engine);
}

// One of the values at random.
std::string any_of(Rng& rng, const std::vector<std::string>& values) {
  return values[static_cast<std::size_t>(
      rng.uniform_int(0, static_cast<std::int64_t>(values.size()) - 1))];
}

Settings random_engine(Rng& rng, bool is_tight) {
  Settings settings = {{"engine.max_num_seqs", any_of(rng, {"8", "24", "64"})},
                       {"engine.max_model_len", any_of(rng, {"2048", "4096"})},
                       {"engine.async_depth", any_of(rng, {"1", "2"})},
                       {"kv_cache.block_size", any_of(rng, {"16", "32"})},
                       {"kv_cache.enable_prefix_caching", any_of(rng, {"true", "false"})},
                       {"cost_model.tensor_parallel_size", any_of(rng, {"1", "2"})}};
  if (is_tight) settings["kv_cache.num_blocks"] = any_of(rng, {"160", "300"});
  return settings;
}

std::string text_of(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) text += key + "=" + value + " ";
  return text;
}

}  // namespace

TEST_CASE("flags of policies vllm and sglang, read back, decide the same", "[tools][flags]") {
  const std::string engine = GENERATE("vLLM", "SGLang");
  const std::uint64_t seed = 20;
  CAPTURE(engine, seed);
  Rng rng(seed, "flags");
  int num_preempting = 0;
  std::set<std::string> digests;
  for (int i = 0; i < 40; ++i) {
    Settings settings = random_engine(rng, i % 2 == 0);
    if (engine == "vLLM") {
      settings["scheduler.policy"] = "vllm";
      settings["scheduler.max_num_batched_tokens"] = any_of(rng, {"256", "2048", "4096"});
      settings["scheduler.scheduling_policy"] = any_of(rng, {"fcfs", "priority"});
      settings["scheduler.long_prefill_token_threshold"] = any_of(rng, {"0", "100"});
      settings["scheduler.scheduler_reserve_full_isl"] = any_of(rng, {"true", "false"});
      if (settings["scheduler.max_num_batched_tokens"] == "4096") {
        settings["scheduler.enable_chunked_prefill"] = any_of(rng, {"true", "false"});
      }
    } else {
      settings["scheduler.policy"] = "sglang";
      settings["scheduler.chunked_prefill_size"] = any_of(rng, {"256", "2048", "-1"});
      settings["scheduler.max_prefill_tokens"] = any_of(rng, {"1024", "16384"});
      settings["scheduler.enable_mixed_chunk"] = any_of(rng, {"true", "false"});
      settings["scheduler.schedule_policy"] =
          any_of(rng, {"fcfs", "lpm", "lof", "dfs-weight", "hrrn"});
      settings["scheduler.schedule_conservativeness"] = any_of(rng, {"0.3", "1"});
      settings["scheduler.retract_decode_steps"] = any_of(rng, {"20", "5"});
      settings["scheduler.clip_max_new_tokens"] = any_of(rng, {"4096", "30"});
      settings["scheduler.init_new_token_ratio"] = any_of(rng, {"0.7", "0.1"});
      settings["engine.max_waiting_requests"] = any_of(rng, {"0", "20"});
    }
    const Scenario scenario = scenario_of(settings);
    const EngineFlags flags = flags_of(engine, scenario);
    INFO(text_of(settings));
    INFO(joined_flags(flags));
    const Outcome own = simulate(scenario);
    CHECK(simulate(scenario_of(read_back(flags))).digest == own.digest);
    num_preempting += own.has_preempted ? 1 : 0;
    digests.insert(own.digest);
  }
  CHECK(num_preempting >= 5);
  CHECK(digests.size() >= 35);
}

TEST_CASE("vLLM's flags decide as other budgets of a step while nobody is preempted",
          "[tools][flags]") {
  const std::string policy = GENERATE("token_budget", "sarathi", "fastgen");
  const std::string budget = GENERATE("256", "1024");
  CAPTURE(policy, budget);
  const std::string key = policy == "token_budget" ? "max_num_batched_tokens"
                          : policy == "sarathi"    ? "chunk_size"
                                                   : "max_ragged_batch_size";
  const Scenario scenario = scenario_of({{"scheduler.policy", policy},
                                         {"scheduler." + key, budget},
                                         {"engine.max_num_seqs", "64"},
                                         {"engine.max_model_len", "4096"},
                                         {"kv_cache.enable_prefix_caching", "false"}});
  const Outcome own = simulate(scenario);
  CHECK_FALSE(own.has_preempted);
  // Decisions alone: sarathi takes the blocks of a whole prompt at once, which the digest notes.
  const Outcome flagged = simulate(scenario_of(read_back(flags_of("vLLM", scenario))));
  CHECK((flagged.decisions == own.decisions));
}

}  // namespace TEST_FILE
