// SPDX-License-Identifier: Apache-2.0
// The lists of every flag of the servers: whole, and with all flags that the program names itself.
#include <algorithm>
#include <chrono>
#include <set>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/scenario.h"
#include "engines/arguments/server_arguments.h"
#include "engines/flags/known_flags.h"
#include "engines/flags/server_flags.h"
#include "engines/vllm/settings.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

std::vector<std::string> listed_engines() {
  std::vector<std::string> names;
  for (const EngineProduct& product : all_engines()) {
    if (!known_flags(product.name).empty()) names.emplace_back(product.name);
  }
  return names;
}

FlagFate fate_of(std::string_view engine, std::string_view word) {
  const KnownFlag* flag = find_flag(engine, word);
  REQUIRE(flag != nullptr);
  return flag->fate;
}

// Some of the settings that flags can say.
std::vector<std::string> draw_settings(Rng& rng) {
  static const std::vector<std::vector<std::string>> kChoices = {
      {"engine.async_depth=1", "engine.async_depth=2"},
      {"engine.max_model_len=auto", "engine.max_model_len=2048"},
      {"engine.max_waiting_requests=0", "engine.max_waiting_requests=7"},
      {"kv_cache.num_blocks=auto", "kv_cache.num_blocks=900"},
      {"kv_cache.block_size=16", "kv_cache.block_size=24"},
      {"kv_cache.enable_prefix_caching=true", "kv_cache.enable_prefix_caching=false"},
      {"kv_cache.dtype=auto", "kv_cache.dtype=fp8", "kv_cache.dtype=bf16"},
      {"quantization=auto", "quantization=fp8", "quantization=int4"},
      {"cost_model.tensor_parallel_size=1", "cost_model.tensor_parallel_size=2"},
      {"cost_model.max_graph_tokens=auto", "cost_model.max_graph_tokens=0",
       "cost_model.max_graph_tokens=64"},
      {"cost_model.max_prompt_graph_tokens=auto", "cost_model.max_prompt_graph_tokens=0",
       "cost_model.max_prompt_graph_tokens=256"},
      {"speculative.method=none", "speculative.method=ngram", "speculative.method=eagle"}};
  std::vector<std::string> settings;
  for (const std::vector<std::string>& choice : kChoices) {
    if (rng.uniform_int(0, 2) != 0) continue;
    const std::int64_t last = static_cast<std::int64_t>(choice.size()) - 1;
    settings.push_back(choice[static_cast<std::size_t>(rng.uniform_int(0, last))]);
  }
  return settings;
}

// Every flag exists in the list of its engine, and is none that does nothing. Returns how many
// there are.
int check_written(const EngineFlags& flags) {
  const std::string_view engine = find_server(flags.engine)->name;
  if (known_flags(engine).empty()) return 0;
  for (const std::string& flag : flags.flags) {
    const std::string word = flag.substr(0, flag.find(flags.is_yaml ? ':' : ' '));
    INFO(engine << " " << word);
    CHECK(fate_of(engine, word) != FlagFate::Ignored);
    CHECK(find_flag(engine, word)->last_version.empty());
  }
  return static_cast<int>(flags.flags.size());
}

}  // namespace

TEST_CASE("lists of flags are whole: names are unique, and a reason says what changes",
          "[tools][flags]") {
  CHECK(listed_engines() ==
        std::vector<std::string>{"vllm", "sglang", "tensorrt_llm", "llama_cpp"});
  for (const std::string& engine : listed_engines()) {
    INFO(engine);
    std::set<std::string> words;
    const std::vector<std::string>& versions = flag_versions(engine);
    CHECK_FALSE(versions.empty());
    for (const KnownFlag& flag : known_flags(engine)) {
      INFO(flag.name);
      CHECK(words.insert(flag.name).second);
      for (const std::string& alias : flag.aliases) CHECK(words.insert(alias).second);
      CHECK((flag.fate == FlagFate::Changes) == !flag.changes.empty());
      CHECK_FALSE(flag.changes.ends_with('.'));
      CHECK_FALSE(flag.argument.empty());
      for (const std::string& version : {flag.first_version, flag.last_version}) {
        CHECK((version.empty() || std::count(versions.begin(), versions.end(), version) == 1));
      }
      CHECK(find_flag(engine, flag.name) == &flag);
      for (const std::string& alias : flag.aliases) CHECK(find_flag(engine, alias) == &flag);
      for (const std::string& word : flag.negations) CHECK(is_negation(engine, word));
      CHECK_FALSE(is_negation(engine, flag.name));
    }
  }
}

TEST_CASE("a word finds the flag that the server's parser takes it for", "[tools][flags]") {
  const auto name = [](std::string_view word) {
    const KnownFlag* flag = find_flag("vllm", word);
    return flag == nullptr ? std::string() : flag->name;
  };
  CHECK(name("-tp") == "--tensor-parallel-size");
  CHECK(name("--max_num_seqs") == "--max-num-seqs");
  CHECK(name("--max-num-batched") == "--max-num-batched-tokens");
  CHECK(name("--max-num").empty());  // several begin so
  CHECK(name("--no-enable-prefix-caching") == "--enable-prefix-caching");
  CHECK(is_negation("vllm", "--no-enable-prefix-caching"));
  CHECK(is_negation("vllm", "--disable-prefix-caching"));
  CHECK_FALSE(is_negation("vllm", "--enable-prefix-caching"));
  CHECK(name("--no-max-num-seqs").empty());
  CHECK(name("-cc.cudagraph_mode") == "--compilation-config.cudagraph_mode");
  CHECK(name("--compilation-config.pass_config.fuse_norm_quant") ==
        "--compilation-config.pass_config.fuse_norm_quant");
  CHECK(name("--compilation-config.cudagraph_capture_sizes+") ==
        "--compilation-config.cudagraph_capture_sizes");
  CHECK(name("--compilation-config.no_such_key").empty());
  CHECK(name("--hf-overrides.rope_parameters.factor") == "--hf-overrides");
  CHECK(name("--max-num-seqs.x").empty());
  CHECK(name("--max-num-sqes").empty());
  CHECK(did_you_mean_flag("vllm", "--max-num-sqes") == ", did you mean '--max-num-seqs'?");
  CHECK(did_you_mean_flag("vllm", "--wholly-unlike-everything").empty());
  CHECK(known_flags("no_such_engine").empty());
  CHECK(find_flag("no_such_engine", "--host") == nullptr);
}

TEST_CASE("flags of reports by users have the fate that they have", "[tools][flags]") {
  CHECK(fate_of("vllm", "--max-num-batched-tokens") == FlagFate::Acts);
  CHECK(find_flag("vllm", "--max-model-len")->takes_short_numbers);
  CHECK(fate_of("vllm", "--tool-call-parser") == FlagFate::Ignored);
  CHECK(fate_of("vllm", "--data-parallel-size") == FlagFate::Changes);
  CHECK(find_flag("vllm", "-dp")->changes.find("one rank") != std::string::npos);
  CHECK(find_flag("vllm", "-dp")->usual == "1");
  CHECK(find_flag("vllm", "--speculative-config")->takes == FlagTakes::Json);
  const KnownFlag& swap = *find_flag("vllm", "--swap-space");
  CHECK(swap.last_version == "0.16.0");
  CHECK(is_in_version(swap, "0.8"));
  CHECK(is_in_version(swap, "0.16"));
  CHECK_FALSE(is_in_version(swap, "0.19"));
  const KnownFlag& watermark = *find_flag("vllm", "--watermark");
  CHECK_FALSE(is_in_version(watermark, "0.23"));
  CHECK(is_in_version(watermark, "0.24"));
  CHECK(is_in_version(watermark, "0.33.1"));
  CHECK(find_flag("sglang", "--dp")->name == "--dp-size");
  CHECK(fate_of("sglang", "--cuda-graph-max-bs") == FlagFate::Acts);
  CHECK(find_flag("sglang", "--cuda-graph-max-bs")->last_version == "0.5.18");
  CHECK(fate_of("sglang", "--enable-hierarchical-cache") == FlagFate::Changes);
  CHECK(find_flag("sglang", "--max_running_requests") == nullptr);
  CHECK(fate_of("tensorrt_llm", "kv_cache_config.dtype") == FlagFate::Acts);
  CHECK(fate_of("tensorrt_llm", "kv_cache_config.host_cache_size") == FlagFate::Changes);
  CHECK(find_flag("tensorrt_llm", "kv_cache_config.no_such_key") == nullptr);
  CHECK(find_flag("tensorrt_llm", "--config")->name == "--extra_llm_api_options");
  CHECK(fate_of("llama_cpp", "-ngl") == FlagFate::Changes);
  CHECK(find_flag("llama_cpp", "-nocb")->name == "--cont-batching");
  CHECK(is_negation("llama_cpp", "-nocb"));
}

// A flag that acts has a key of a scenario, and a setting with a key has a flag that acts.
TEST_CASE("flags act by the settings of their servers", "[tools][flags]") {
  for (const EngineProduct& product : all_engines()) {
    if (product.arguments == nullptr) continue;
    const ServerArguments& server = *product.arguments;
    const std::vector<ServerArgument> rows = server.all();
    const auto has_row = [&rows](std::string_view argument) {
      return std::any_of(rows.begin(), rows.end(), [argument](const ServerArgument& row) {
        return row.argument == argument;
      });
    };
    const std::vector<KnownFlag>& flags = known_flags(product.name);
    for (const ServerArgument& row : rows) {
      INFO(product.name << " " << row.argument);
      CHECK(std::any_of(flags.begin(), flags.end(), [&row](const KnownFlag& flag) {
        return flag.argument == row.argument && flag.fate == FlagFate::Acts;
      }));
    }
    for (const KnownFlag& flag : flags) {
      if (flag.fate != FlagFate::Acts || flag.takes == FlagTakes::Json) continue;
      const bool is_file =
          std::find(server.files.begin(), server.files.end(), flag.argument) != server.files.end();
      const bool is_derived = std::find(server.derived.begin(), server.derived.end(),
                                        flag.argument) != server.derived.end();
      INFO(product.name << " " << flag.name << " " << flag.argument);
      CHECK((has_row(flag.argument) || flag.argument == server.model || is_file || is_derived));
    }
  }
}

TEST_CASE("every flag that is written exists", "[tools][flags]") {
  const ScratchFolder scratch;
  const std::string file = scratch.write("small.yaml", kSmallScenario);
  Rng rng(7, "flags");
  int num_flags = 0;
  for (const PolicyInfo& policy : all_policies()) {
    for (int i = 0; i < 30; ++i) {
      std::vector<std::string> settings = draw_settings(rng);
      settings.push_back("scheduler.policy=" + std::string(policy.name));
      settings.emplace_back("slo.itl_ms=30");
      std::vector<EngineFlags> all;
      try {
        all = engine_flags(load_scenario(file, settings, std::nullopt).variants.front());
      } catch (const ConfigError&) {
        continue;  // the policy has no such setting
      }
      for (const EngineFlags& flags : all) num_flags += check_written(flags);
    }
  }
  CHECK(num_flags > 1000);
}

TEST_CASE("an older release gets the flags that it has", "[tools][flags]") {
  EngineFlags flags;
  flags.engine = "vLLM";
  flags.version = "0.19";
  flags.flags = {"--max-num-seqs 8", "--watermark 0.1", "--max-cudagraph-capture-size 64"};
  const EngineFlags older = flags_of_release(flags, "0.11.0");
  CHECK(older.version == "0.11.0");
  CHECK(older.flags ==
        std::vector<std::string>{"--max-num-seqs 8", "--max-cudagraph-capture-size 64"});
  CHECK(older.notes == std::vector<std::string>{
                           "vLLM 0.11.0 has no --watermark",
                           "vLLM 0.11.0 may have no --max-cudagraph-capture-size, which 0.13.0 has",
                           "the simulation has the rules of vLLM 0.19"});
  CHECK(flags_of_release(flags, "0.26.1").flags == flags.flags);
  CHECK(flags_of_release(flags, "nightly").version == "0.19");
  CHECK(flags_of_release(flags, "").flags == flags.flags);
}

TEST_CASE("every flag that is written exists in the scenario's version", "[tools][flags]") {
  const ScratchFolder scratch;
  const std::string file = scratch.write("small.yaml", kSmallScenario);
  int num_flags = 0;
  for (const std::string_view version : kVllmVersions) {
    for (const char* setting :
         {"engine.async_depth=2", "kv_cache.prefix_cache_retention_interval=0",
          "kv_cache.prefix_cache_retention_interval=-1", "kv_cache.watermark=0.1",
          "scheduler.max_num_active_seqs=4", "scheduler.long_prefill_token_threshold=64",
          "scheduler.long_prefill_token_threshold_adaptive=true",
          "scheduler.prefill_schedule_interval=2", "scheduler.disable_chunked_mm_input=true",
          "cost_model.max_graph_tokens=64", "cost_model.max_prompt_graph_tokens=0",
          "speculative.method=ngram"}) {
      EngineFlags flags;
      try {
        flags = engine_flags(load_scenario(file,
                                           {"scheduler.policy=vllm", setting,
                                            "scheduler.version=" + std::string(version)},
                                           std::nullopt)
                                 .variants.front())
                    .front();
      } catch (const ConfigError&) {
        continue;  // the version has no such setting
      }
      CHECK(flags.version == version);
      for (const std::string& flag : flags.flags) {
        INFO(version << " " << flag);
        const KnownFlag* found = find_flag("vllm", flag.substr(0, flag.find(' ')));
        REQUIRE(found != nullptr);
        CHECK(is_in_version(*found, flags.version));
        ++num_flags;
      }
    }
  }
  CHECK(num_flags > 500);
}

}  // namespace TEST_FILE
