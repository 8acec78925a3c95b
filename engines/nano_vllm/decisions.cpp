// SPDX-License-Identifier: Apache-2.0
// Recorded decisions of nano-vllm.
#include <algorithm>

#include "core/engine/scheduler.h"
#include "engines/decisions/decision_format.h"
#include "engines/decisions/decision_replay.h"
#include "engines/nano_vllm/product.h"

namespace metronome {
namespace {

constexpr std::string_view kConfigKeys[] = {"block_size", "max_num_seqs", "max_num_batched_tokens",
                                            "num_blocks"};

std::optional<double> read_config(const ConfigNode& section, std::optional<int> /*version*/,
                                  EngineSetup& setup) {
  ConfigReader reader = open_mapping(section, "config", kConfigKeys, {});
  setup.scheduler.policy = "nano_vllm";
  setup.kv_cache.enable_prefix_caching = true;
  read_cache(reader, setup);
  read_budget(reader, "max_num_batched_tokens", setup.scheduler.max_num_batched_tokens);
  return std::nullopt;
}

// Every request fits.
void complete(DecisionCase& c) {
  for (const DecisionRequest& request : c.requests) {
    c.setup.max_model_len = std::max(
        c.setup.max_model_len, request.spec.num_prompt_tokens + request.spec.max_output_tokens);
  }
}

Json log_step(const DecisionReplay& replay, const StepPlan& plan) {
  if (plan.empty()) return {{"scheduled", Json::object()}, {"idle", true}};
  // There a request with an incomplete prompt remains at the head of the queue.
  std::vector<Request*> running;
  std::vector<Request*> waiting;
  for (Request* request : replay.scheduler().running()) {
    (request->state == RequestState::Prefill ? waiting : running).push_back(request);
  }
  for (Request* request : replay.scheduler().waiting().in_order()) waiting.push_back(request);

  Json tables = Json::object();
  Json cached = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    tables[replay.name_of(chunk.request)] = replay.tables_of(replay.request(chunk.request));
    cached[replay.name_of(chunk.request)] = chunk.first_position;
  }
  Json log;
  log["is_prefill"] = plan.chunks.front().kind == ChunkKind::Prefill;
  log["scheduled"] = replay.tokens_of(plan);
  log["block_tables"] = std::move(tables);
  log["running"] = replay.names_of(running);
  log["waiting"] = replay.names_of(waiting);
  log["cached"] = std::move(cached);
  log["free_blocks"] = replay.kv_cache().num_free_blocks();
  return log;
}

}  // namespace

constexpr DecisionFormat kNanoVllmDecisions = {
    .read_config = read_config, .complete = complete, .log_step = log_step};

}  // namespace metronome
