// SPDX-License-Identifier: Apache-2.0
// Recorded decisions of Sarathi-Serve.
#include "core/base/error.h"
#include "core/config/config_limits.h"
#include "core/engine/scheduler.h"
#include "engines/decisions/decision_format.h"
#include "engines/decisions/decision_replay.h"
#include "engines/sarathi/product.h"
#include "engines/sarathi/settings.h"

namespace metronome {
namespace {

constexpr std::string_view kConfigKeys[] = {"scheduler",  "block_size",        "max_num_seqs",
                                            "chunk_size", "dynamic",           "max_model_len",
                                            "num_blocks", "max_batched_tokens"};
constexpr std::string_view kDynamicKeys[] = {"low", "high", "max_tokens", "stages"};
// The logs' names for the schedulers of Sarathi-Serve, and Metronome's names for these policies.
constexpr std::string_view kSarathiSchedulers[] = {"sarathi", "vllm0", "orca", "simple_chunking"};
constexpr std::string_view kSarathiPolicies[] = {"sarathi", "vllm_prefill_first", "orca",
                                                 "simple_chunking"};
constexpr std::string_view kVllm0 = "vllm_prefill_first";

std::optional<double> read_config(const ConfigNode& section, std::optional<int> /*version*/,
                                  EngineSetup& setup) {
  ConfigReader reader = open_mapping(section, "config", kConfigKeys, kDynamicKeys);
  SarathiConfig& sarathi = setup.scheduler.edit<SarathiConfig>();
  int scheduler = 0;
  reader.choice("scheduler", scheduler, kSarathiSchedulers, kNoDoc);
  setup.scheduler.policy = kSarathiPolicies[scheduler];
  read_cache(reader, setup);
  reader.integer("chunk_size", sarathi.chunk_size, 1, kMaxTokens, kNoDoc);
  read_max_model_len(reader, setup);
  std::optional<std::int64_t> budget;
  read_budget(reader, "max_batched_tokens", budget);
  if (setup.scheduler.policy == kVllm0) setup.scheduler.max_num_batched_tokens = budget;
  reader.boolean("dynamic", sarathi.enable_dynamic_chunking_schedule, kNoDoc);
  if (sarathi.enable_dynamic_chunking_schedule) require_keys(section, "config", kDynamicKeys);
  for (const std::string_view key : kDynamicKeys) {
    if (sarathi.enable_dynamic_chunking_schedule || section.find(key) == nullptr) continue;
    fail_config(section.where, dotted("config", key),
                "has no effect without dynamic chunking; allowed: dynamic = true");
  }
  reader.integer("low", sarathi.low_chunk_size, 32, kMaxTokens, kNoDoc);
  reader.integer("high", sarathi.high_chunk_size, 32, kMaxTokens, kNoDoc);
  reader.integer("max_tokens", sarathi.chunk_schedule_max_tokens, 1, kMaxTokens, kNoDoc);
  reader.integer("stages", sarathi.chunk_schedule_stages, 1, 1024, kNoDoc);
  return std::nullopt;
}

Json log_step(const DecisionReplay& replay, const StepPlan& plan) {
  Json log;
  log["preempted"] = replay.names_of(plan.preempted);
  log["ignored"] = replay.names_of(plan.refused);
  Json scheduled = Json::array();
  for (const ChunkKind kind : {ChunkKind::Prefill, ChunkKind::Decode}) {
    const char* letter = kind == ChunkKind::Prefill ? "p" : "d";
    for (const ScheduledChunk& chunk : plan.chunks) {
      if (chunk.kind != kind) continue;
      scheduled.push_back(Json::array({replay.name_of(chunk.request), chunk.num_tokens, letter}));
    }
  }
  log["scheduled"] = std::move(scheduled);
  log["free_blocks"] = replay.kv_cache().num_free_blocks();
  log["running"] = replay.names_of(replay.scheduler().running());
  log["waiting"] = replay.names_of(replay.scheduler().waiting().in_order());
  return log;
}

}  // namespace

constexpr DecisionFormat kSarathiDecisions = {
    .read_config = read_config, .has_lengths = true, .log_step = log_step};

}  // namespace metronome
