// SPDX-License-Identifier: Apache-2.0
#include "study/decisions/vllm_case.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/config/config_limits.h"
#include "core/engine/step_plan.h"
#include "core/scenario/engine_setup.h"
#include "engines/vllm/rules.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

constexpr std::string_view kVllmKeys[] = {"block_size",
                                          "max_num_seqs",
                                          "max_num_batched_tokens",
                                          "max_model_len",
                                          "num_blocks",
                                          "enable_prefix_caching",
                                          "long_prefill_token_threshold",
                                          "enable_chunked_prefill",
                                          "policy",
                                          "scheduler_reserve_full_isl"};
constexpr std::string_view kVllmOptionalKeys[] = {"version",
                                                  "async_depth",
                                                  "sliding_window",
                                                  "num_window_groups",
                                                  "states_before_windows",
                                                  "num_groups_before_full",
                                                  "watermark",
                                                  "evict_unhashed_first",
                                                  "prefix_cache_retention_interval",
                                                  "max_num_active_seqs",
                                                  "long_prefill_token_threshold_adaptive",
                                                  "prefill_schedule_interval",
                                                  "spec_method",
                                                  "num_speculative_tokens",
                                                  "num_speculative_tokens_per_batch_size",
                                                  "mamba",
                                                  "images"};
constexpr std::string_view kDraftKeys[] = {"spec_method", "num_speculative_tokens"};
constexpr std::string_view kDraftMethods[] = {"eagle", "mtp", "ngram",
                                              "draft_model"};  // by DraftMethod
constexpr const char* kDraftsBySize = "num_speculative_tokens_per_batch_size";
constexpr std::string_view kStateKeys[] = {"cache_mode"};
constexpr std::string_view kStateOptionalKeys[] = {"prefix_match_unit",
                                                   "prefill_checkpoint_alignment", "num_groups"};
constexpr std::string_view kEncoderKeys[] = {"max_embeddings"};
constexpr std::string_view kEncoderOptionalKeys[] = {"disable_chunked_mm_input"};
constexpr std::string_view kStateCacheModes[] = {"none", "align"};
constexpr std::int64_t kMaxStateGroups = 64;
constexpr int kVersionWithoutEviction = 22 - kFirstVllmMinor;
constexpr int kVersionWithEviction = 25 - kFirstVllmMinor;

// Cases of 0.22 and 0.25 have no version: evict_unhashed_first tells them apart.
void read_vllm_version(ConfigReader& reader, const ConfigNode& section, VllmConfig& vllm) {
  bool evicts_unhashed_first = false;
  reader.boolean("evict_unhashed_first", evicts_unhashed_first, kNoDoc);
  vllm.version = evicts_unhashed_first ? kVersionWithEviction : kVersionWithoutEviction;
  reader.choice("version", vllm.version, kVllmVersions, kNoDoc);
  if (section.find("version") == nullptr || section.find("evict_unhashed_first") == nullptr) return;
  const bool expected = vllm_rules(vllm).reuses_unhashed_first;
  if (evicts_unhashed_first == expected) return;
  fail_config(section.where, "config.evict_unhashed_first",
              "vLLM " + std::string(kVllmVersions[vllm.version]) +
                  " does the opposite; allowed: " + (expected ? "true" : "false"));
}

// null: every block. Without the key: as in that version.
void read_retention(ConfigReader& reader, const ConfigNode& section, KvCacheLayout& layout) {
  const char* key = "prefix_cache_retention_interval";
  std::optional<std::int64_t> interval;
  reader.optional_integer(key, interval, 0, kMaxTokens, kNoDoc);
  if (section.find(key) == nullptr) return;
  layout.retention_interval = interval.value_or(kDenseRetention);
  const bool is_possible =
      interval.value_or(0) == 0 || ((layout.sliding_window > 0 || layout.states.num_groups > 0) &&
                                    *interval % layout.block_size == 0);
  if (is_possible) return;
  fail_config(section.where, dotted("config", key),
              std::to_string(*interval) +
                  " is not possible; allowed: null, 0, and with a sliding_window or mamba "
                  "multiples of block_size " +
                  std::to_string(layout.block_size));
}

// Drafts and states follow the rules of one version only.
void require_version(const ConfigNode& section, const char* key, const VllmConfig& vllm) {
  if (vllm.minor() == kDraftVllmMinor) return;
  fail_config(section.where, dotted("config", key),
              "vLLM " + std::string(kVllmVersions[vllm.version]) +
                  " has other rules; allowed: with version 0.33");
}

void read_drafts(ConfigReader& reader, const ConfigNode& section, std::int32_t max_num_seqs,
                 const VllmConfig& vllm, DraftConfig& drafts) {
  for (const char* key : {"spec_method", "num_speculative_tokens", kDraftsBySize}) {
    if (section.find(key) == nullptr) continue;
    require_keys(section, "config", kDraftKeys);
    require_version(section, "spec_method", vllm);
  }
  reader.choice("spec_method", drafts.method, kDraftMethods, kNoDoc);
  reader.integer("num_speculative_tokens", drafts.num_tokens, 1, kMaxDrafts, kNoDoc);
  std::vector<std::vector<std::int64_t>> rows;
  reader.integer_rows(kDraftsBySize, rows, 3, 0, kMaxSeqs, kNoDoc);
  if (!rows.empty() && rows.front().front() != 1) {
    fail_config(section.where, dotted("config", kDraftsBySize), "must begin with 1 request");
  }
  drafts.by_batch_size = drafts_by_batch_size(rows, drafts.num_tokens, max_num_seqs);
}

// States are cached exactly where prefixes are.
void read_states(const ConfigNode& section, const VllmConfig& vllm, KvCacheLayout& layout) {
  const ConfigNode* states = section.find("mamba");
  if (states == nullptr) return;
  const std::string path = "config.mamba";
  require_version(section, "mamba", vllm);
  ConfigReader reader = open_mapping(*states, path, kStateKeys, kStateOptionalKeys);
  int mode = 0;
  reader.choice("cache_mode", mode, kStateCacheModes, kNoDoc);
  if ((mode == 1) != layout.enable_prefix_caching) {
    fail_config(section.where, path + ".cache_mode",
                "differs from enable_prefix_caching; allowed: align with it, none without");
  }
  layout.states.num_groups = 1;
  reader.integer("num_groups", layout.states.num_groups, 1, kMaxStateGroups, kNoDoc);
  std::optional<std::int64_t> unit;
  std::optional<std::int64_t> alignment;
  reader.optional_integer("prefix_match_unit", unit, 1, kMaxTokens, kNoDoc);
  reader.optional_integer("prefill_checkpoint_alignment", alignment, 1, kMaxTokens, kNoDoc);
  layout.states.hash_unit = static_cast<std::int32_t>(unit.value_or(layout.block_size));
  layout.states.checkpoint_alignment = static_cast<std::int32_t>(alignment.value_or(0));
  if (layout.block_size % layout.states.hash_unit != 0) {
    fail_config(section.where, path + ".prefix_match_unit",
                std::to_string(layout.states.hash_unit) +
                    " does not divide the block; allowed: divisors of block_size " +
                    std::to_string(layout.block_size));
  }
}

// Without the keys full attention is the first group, and windows come before states.
void read_group_order(ConfigReader& reader, KvCacheLayout& layout) {
  reader.boolean("states_before_windows", layout.has_states_before_windows, kNoDoc);
  const std::int32_t num_windows = layout.sliding_window > 0 ? layout.num_window_groups : 0;
  const std::int32_t num_further = layout.states.num_groups + num_windows;
  reader.integer("num_groups_before_full", layout.num_groups_before_full, 0, num_further, kNoDoc);
}

// The encoder's budget and cache are what vLLM makes of the largest image.
void read_encoder(const ConfigNode& section, const EngineSetup& setup, VllmConfig& vllm,
                  EncoderSetup& encoder) {
  const ConfigNode* images = section.find("images");
  if (images == nullptr) return;
  require_version(section, "images", vllm);
  ConfigReader reader = open_mapping(*images, "config.images", kEncoderKeys, kEncoderOptionalKeys);
  std::int64_t max_embeddings = 0;
  reader.integer("max_embeddings", max_embeddings, 1, kMaxTokens, kNoDoc);
  reader.boolean("disable_chunked_mm_input", vllm.disable_chunked_mm_input, kNoDoc);
  encoder.set_sizes(*setup.scheduler.max_num_batched_tokens, max_embeddings);
  encoder.limits_chunks = true;
  encoder.disable_chunked_mm_input = vllm.disable_chunked_mm_input;
  encoder.plans_ahead = setup.async_depth > 1;
}

}  // namespace

std::optional<double> read_vllm_config(const ConfigNode& section, std::optional<int> version,
                                       EngineSetup& setup) {
  ConfigReader reader = open_mapping(section, "config", kVllmKeys, kVllmOptionalKeys);
  setup.scheduler.policy = "vllm";
  read_cache(reader, setup);
  read_budget(reader, "max_num_batched_tokens", setup.scheduler.max_num_batched_tokens);
  read_max_model_len(reader, setup);
  reader.boolean("enable_prefix_caching", setup.kv_cache.enable_prefix_caching, kNoDoc);
  VllmConfig& vllm = setup.scheduler.edit<VllmConfig>();
  reader.integer("long_prefill_token_threshold", vllm.long_prefill_token_threshold, 0, kMaxTokens,
                 kNoDoc);
  reader.boolean("enable_chunked_prefill", vllm.enable_chunked_prefill, kNoDoc);
  reader.choice("policy", vllm.scheduling_policy, kVllmPolicies, kNoDoc);
  reader.boolean("scheduler_reserve_full_isl", vllm.scheduler_reserve_full_isl, kNoDoc);
  reader.integer("async_depth", setup.async_depth, 1, kMaxInFlight, kNoDoc);
  reader.integer("sliding_window", setup.kv_cache.sliding_window, 1, kMaxTokens, kNoDoc);
  reader.integer("num_window_groups", setup.kv_cache.num_window_groups, 1, kMaxWindowGroups,
                 kNoDoc);
  read_vllm_version(reader, section, vllm);
  vllm.version = version.value_or(vllm.version);
  read_states(section, vllm, setup.kv_cache);
  read_group_order(reader, setup.kv_cache);
  read_retention(reader, section, setup.kv_cache);
  reader.integer("max_num_active_seqs", vllm.max_num_active_seqs, 0, kMaxSeqs, kNoDoc);
  reader.boolean("long_prefill_token_threshold_adaptive",
                 vllm.long_prefill_token_threshold_adaptive, kNoDoc);
  reader.integer("prefill_schedule_interval", vllm.prefill_schedule_interval, 1, kMaxTokens,
                 kNoDoc);
  read_drafts(reader, section, setup.max_num_seqs, vllm, setup.scheduler.drafts);
  read_encoder(section, setup, vllm, setup.encoder);
  std::optional<double> watermark;
  reader.optional_number("watermark", watermark, 0, 1, kNoDoc);
  return watermark;
}

}  // namespace metronome
