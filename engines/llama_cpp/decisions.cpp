// SPDX-License-Identifier: Apache-2.0
// Recorded decisions of llama-server. A step is one round of its loop.
#include <algorithm>

#include "core/base/error.h"
#include "core/config/config_limits.h"
#include "core/engine/scheduler.h"
#include "engines/decisions/decision_format.h"
#include "engines/decisions/decision_replay.h"
#include "engines/llama_cpp/policy.h"
#include "engines/llama_cpp/product.h"
#include "engines/llama_cpp/settings.h"

namespace metronome {
namespace {

constexpr std::string_view kConfigKeys[] = {
    "n_ctx", "n_slots", "n_batch", "n_ubatch", "cont_batching", "slot_prompt_similarity"};
constexpr std::string_view kOptionalConfigKeys[] = {"cache_ram", "cache_prompt"};
constexpr std::string_view kRequestKeys[] = {"output"};

std::optional<double> read_config(const ConfigNode& section, std::optional<int> /*version*/,
                                  EngineSetup& setup) {
  setup.scheduler.policy = "llama_cpp";
  LlamaCppConfig& llama = setup.scheduler.edit<LlamaCppConfig>();
  ConfigReader reader = open_mapping(section, "config", kConfigKeys, kOptionalConfigKeys);
  setup.kv_cache.block_size = 1;
  reader.integer("n_ctx", setup.kv_cache.num_blocks, 2, kMaxTokens, kNoDoc);
  setup.max_model_len = static_cast<std::int32_t>(setup.kv_cache.num_blocks);
  reader.integer("n_slots", setup.max_num_seqs, 1, kMaxSeqs, kNoDoc);
  setup.kv_cache.enable_prefix_caching = true;
  reader.boolean("cache_prompt", setup.kv_cache.enable_prefix_caching, kNoDoc);
  std::int64_t cache_ram = 0;  // the prompt cache in the host's memory is not modelled
  reader.integer("cache_ram", cache_ram, 0, 0, kNoDoc);
  visit_fields(reader, llama);
  return std::nullopt;
}

// `output`: the tokens that the model gave. null, or none: they are those of the token rule.
void read_request(RequestFields fields) {
  const ConfigNode* output = fields.node.find("output");
  if (output == nullptr) return;
  if (output->kind == ConfigNode::Kind::Null) {
    fields.reader.take("output");
    return;
  }
  std::vector<std::int64_t> ids;
  fields.reader.integers("output", ids, 0, INT32_MAX, kNoDoc);
  for (const std::int64_t id : ids)
    fields.request.output.push_back(TokenId(static_cast<std::int32_t>(id)));
  const auto num_tokens = static_cast<std::int32_t>(ids.size());
  if (num_tokens < fields.request.spec.max_output_tokens) fields.request.output_len = num_tokens;
}

const LlamaCppDecisions& decisions_of(const DecisionReplay& replay) {
  const auto* decisions = dynamic_cast<const LlamaCppDecisions*>(&replay.scheduler().policy());
  METRONOME_CHECK(decisions != nullptr, "this engine's policy is llama_cpp");
  return *decisions;
}

// A round of the loop calls the decoder again for what did not fit.
bool goes_on(const DecisionReplay& replay) { return decisions_of(replay).has_rest(); }

// The parts' lists behind each other, in the order of a step's fields. A part without `tries` had
// one.
void join(Json& log, const Json& more) {
  constexpr std::string_view kFields[] = {"launched", "kept",   "purged",  "tries",
                                          "batch",    "failed", "released"};
  Json joined;
  for (const std::string_view field : kFields) {
    const Json* parts[] = {log.find(field), more.find(field)};
    if (field == "tries") {
      std::int32_t num_tries = 0;
      for (const Json* part : parts) num_tries += part != nullptr ? part->get<std::int32_t>() : 1;
      joined["tries"] = num_tries;
      continue;
    }
    for (const Json* part : parts) {
      if (part == nullptr) continue;
      if (!joined.contains(field)) {
        joined[std::string(field)] = *part;
      } else if (part->is_array()) {
        for (const Json& item : *part) joined[std::string(field)].push_back(item);
      }
    }
  }
  log = std::move(joined);
}

Json json_of(const DecisionReplay& replay, RequestId request, bool decodes, std::int32_t position,
             std::int32_t num_tokens) {
  return {replay.name_of(request), decodes ? "g" : "p", position, num_tokens};
}

Json log_step(const DecisionReplay& replay, const StepPlan& plan) {
  const LlamaCppState& state = decisions_of(replay).state();
  Json log;
  log["launched"] = Json::array();
  for (const auto& [request, slot] : state.launched)
    log["launched"].push_back(Json{replay.name_of(request), slot});
  log["kept"] = Json::object();
  for (const auto& [request, num_tokens] : state.kept)
    log["kept"][replay.name_of(request)] = num_tokens;
  log["purged"] = Json::array();
  for (const std::int32_t slot : state.purged) log["purged"].push_back(slot);
  if (state.num_tries > 1) log["tries"] = state.num_tries;
  log["batch"] = Json::array();
  for (const ScheduledChunk& chunk : plan.chunks) {
    log["batch"].push_back(json_of(replay, chunk.request, chunk.kind == ChunkKind::Decode,
                                   chunk.first_position, chunk.num_tokens));
  }
  if (state.unfit != kNoRequest) {
    log["batch"].push_back(
        json_of(replay, state.unfit, state.unfit_decodes, state.unfit_position, 1));
    log["failed"] = true;
  }
  return log;
}

void log_ended(const DecisionReplay& replay, const std::vector<RequestId>& /*ended*/, Json& log) {
  std::vector<LlamaCppState::Slotted> released = decisions_of(replay).state().released;
  std::sort(released.begin(), released.end(),
            [](const auto& a, const auto& b) { return a.value < b.value; });
  log["released"] = Json::array();
  for (const auto& [request, slot] : released) log["released"].push_back(replay.name_of(request));
}

}  // namespace

constexpr DecisionFormat kLlamaCppDecisions = {.read_config = read_config,
                                               .optional_request_keys = kRequestKeys,
                                               .read_request = read_request,
                                               .log_step = log_step,
                                               .goes_on = goes_on,
                                               .join = join,
                                               .log_ended = log_ended};

}  // namespace metronome
