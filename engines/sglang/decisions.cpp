// SPDX-License-Identifier: Apache-2.0
// Recorded decisions of SGLang.
#include <algorithm>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/config/config_limits.h"
#include "core/engine/scheduler.h"
#include "engines/decisions/decision_format.h"
#include "engines/decisions/decision_replay.h"
#include "engines/sglang/policy.h"
#include "engines/sglang/product.h"
#include "engines/sglang/settings.h"

namespace metronome {
namespace {

constexpr std::string_view kConfigKeys[] = {"page_size",
                                            "schedule_policy",
                                            "enable_mixed_chunk",
                                            "disable_radix_cache",
                                            "overlap",
                                            "schedule_conservativeness",
                                            "init_new_token_ratio",
                                            "min_new_token_ratio_factor",
                                            "new_token_ratio_decay_steps",
                                            "retract_decode_steps",
                                            "clip_max_new_tokens",
                                            "num_tokens",
                                            "chunked_prefill_size",
                                            "max_prefill_tokens",
                                            "max_running_requests",
                                            "req_pool_size",
                                            "context_length"};
constexpr std::string_view kRequestKeys[] = {"output_len", "ignore_eos", "priority",
                                             "clipped_max_tokens"};

// Pages are KV blocks; what does not fill a page is not used.
std::optional<double> read_config(const ConfigNode& section, std::optional<int> /*version*/,
                                  EngineSetup& setup) {
  setup.scheduler.policy = "sglang";
  SglangConfig& sglang = setup.scheduler.edit<SglangConfig>();
  ConfigReader reader = open_mapping(section, "config", kConfigKeys,
                                     optional_keys(setup.scheduler.policy, {}, {kConfigKeys}));
  KvCacheLayout& cache = setup.kv_cache;
  reader.integer("page_size", cache.block_size, 1, kMaxBlockSize, kNoDoc);
  std::int64_t num_tokens = 0;
  reader.integer("num_tokens", num_tokens, cache.block_size, kMaxTokens, kNoDoc);
  cache.num_blocks = num_tokens / cache.block_size;
  bool has_no_tree = false;
  reader.boolean("disable_radix_cache", has_no_tree, kNoDoc);
  cache.enable_prefix_caching = !has_no_tree;
  bool overlaps = false;
  reader.boolean("overlap", overlaps, kNoDoc);
  setup.async_depth = overlaps ? 2 : 1;
  reader.integer("max_running_requests", setup.max_num_seqs, 1, kMaxSeqs, kNoDoc);
  std::int32_t num_rows = 0;
  reader.integer("req_pool_size", num_rows, 1, kMaxSeqs, kNoDoc);
  if (num_rows != setup.max_num_seqs) {
    fail_config(
        section.where, "config.req_pool_size",
        fmt::format("{} is not max_running_requests; allowed: {}", num_rows, setup.max_num_seqs));
  }
  reader.integer("context_length", setup.max_model_len, 2, kMaxTokens, kNoDoc);
  visit_fields(reader, sglang);
  sglang.waits_forever = true;
  const std::int64_t chunk = sglang.chunked_prefill_size;
  if (chunk > 0 && chunk % cache.block_size != 0) {
    fail_config(
        section.where, "config.chunked_prefill_size",
        fmt::format(
            "{} is not a multiple of page_size {}; allowed: 0 or -1 (off), or a multiple of it",
            chunk, cache.block_size));
  }
  if (sglang.schedule_policy == SglangConfig::SchedulePolicy::ShortestPrefillFirst && has_no_tree) {
    fail_config(section.where, "config.schedule_policy",
                "shortest-prefill-first needs cached prefixes; allowed: disable_radix_cache = "
                "false");
  }
  return std::nullopt;
}

void read_request(RequestFields fields) {
  RequestSpec& spec = fields.request.spec;
  // SGLang serves a request without a priority last (Scheduler._set_or_validate_priority).
  const SglangConfig& sglang = fields.c.setup.scheduler.settings<SglangConfig>();
  if (sglang.enable_priority_scheduling) {
    spec.priority = sglang.schedule_low_priority_values_first ? INT32_MAX : INT32_MIN;
  }
  fields.reader.integer("priority", spec.priority, INT32_MIN, INT32_MAX, kNoDoc);
  bool ignores_eos = false;
  fields.reader.boolean("ignore_eos", ignores_eos, kNoDoc);
  spec.ignores_eos = ignores_eos;
  fields.reader.integer("output_len", fields.request.output_len, 1, kMaxTokens, kNoDoc);
}

// `stuck` stands before the ratio.
Json log_step(const DecisionReplay& replay, const StepPlan& plan) {
  const auto* decisions = dynamic_cast<const SglangDecisions*>(&replay.scheduler().policy());
  METRONOME_CHECK(decisions != nullptr, "this engine's policy is sglang");
  const SglangState state = decisions->state();
  Json log;
  log["batch"] = plan.empty()                   ? "idle"
                 : plan.num_prefill_tokens == 0 ? "decode"
                 : plan.num_decode_tokens > 0   ? "mixed"
                                                : "prefill";
  log["scheduled"] = replay.tokens_of(plan);
  Json admitted = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (std::find(plan.admitted.begin(), plan.admitted.end(), chunk.request) ==
        plan.admitted.end()) {
      continue;
    }
    admitted[replay.name_of(chunk.request)] = chunk.first_position;
  }
  if (!admitted.empty()) log["admitted_computed"] = std::move(admitted);
  log["chunked"] = state.chunked == kNoRequest ? Json() : Json(replay.name_of(state.chunked));
  log["preempted"] = replay.names_of(replay.in_list_order(plan.preempted));
  log["running"] = replay.names_of(state.running_batch);
  log["waiting"] = replay.names_of(replay.scheduler().waiting().in_order());
  const std::int64_t page_size = replay.kv_cache().block_size();
  log["free_tokens"] = replay.kv_cache().num_free_blocks() * page_size;
  log["evictable_tokens"] = replay.kv_cache().num_evictable_blocks() * page_size;
  if (state.num_evicted_tokens > 0) log["evicted_tokens"] = state.num_evicted_tokens;
  if (replay.is_waiting_for_nothing(plan)) log["stuck"] = true;
  log["new_token_ratio"] = state.new_token_ratio;
  log["batch_is_full"] = state.batch_is_full;
  if (!plan.refused.empty()) log["aborted"] = replay.names_of(plan.refused);
  return log;
}

}  // namespace

constexpr DecisionFormat kSglangDecisions = {.read_config = read_config,
                                             .optional_request_keys = kRequestKeys,
                                             .read_request = read_request,
                                             .log_step = log_step};

}  // namespace metronome
