// SPDX-License-Identifier: Apache-2.0
// Recorded decisions of vLLM.

#include <algorithm>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/config/config_limits.h"
#include "core/engine/engine_config.h"
#include "core/engine/step_plan.h"
#include "core/scenario/engine_setup.h"
#include "engines/decisions/decision_format.h"
#include "engines/decisions/decision_replay.h"
#include "engines/vllm/product.h"
#include "engines/vllm/rules.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

constexpr std::string_view kConfigKeys[] = {"block_size",
                                            "max_num_seqs",
                                            "max_num_batched_tokens",
                                            "max_model_len",
                                            "num_blocks",
                                            "enable_prefix_caching",
                                            "long_prefill_token_threshold",
                                            "enable_chunked_prefill",
                                            "policy",
                                            "scheduler_reserve_full_isl"};
constexpr std::string_view kOwnKeys[] = {"async_depth",
                                         "sliding_window",
                                         "num_window_groups",
                                         "states_before_windows",
                                         "num_groups_before_full",
                                         "watermark",
                                         "evict_unhashed_first",
                                         "prefix_cache_retention_interval",
                                         "spec_method",
                                         "num_speculative_tokens",
                                         "num_speculative_tokens_per_batch_size",
                                         "mamba",
                                         "images"};
// Settings that cases have as `policy` and in `images`.
constexpr std::string_view kElsewhere[] = {"scheduling_policy", "disable_chunked_mm_input"};
constexpr std::string_view kRequestKeys[] = {"priority", "accepted", "proposed", "images"};
constexpr std::string_view kImageKeys[] = {"id", "offset", "length"};
constexpr std::string_view kImageOptionalKeys[] = {"embeddings"};
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
void read_version(ConfigReader& reader, const ConfigNode& section, VllmConfig& vllm) {
  bool evicts_unhashed_first = false;
  reader.boolean("evict_unhashed_first", evicts_unhashed_first, kNoDoc);
  if (section.find("version") == nullptr) {
    vllm.version = evicts_unhashed_first ? kVersionWithEviction : kVersionWithoutEviction;
  }
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
  const bool is_possible = interval.value_or(0) == 0 ||
                           ((layout.windows.num_tokens > 0 || layout.states.num_groups > 0) &&
                            *interval % layout.block_size == 0);
  if (is_possible) return;
  fail_config(section.where, dotted("config", key),
              fmt::format("{} is not possible; allowed: null, 0, and with a sliding_window or "
                          "mamba multiples of block_size {}",
                          *interval, layout.block_size));
}

void require_version(const ConfigNode& section, const char* key, const VllmConfig& vllm) {
  if (vllm.minor() >= kFirstGroupsMinor) return;
  fail_config(
      section.where, dotted("config", key),
      fmt::format("the rules of vLLM {} for it are not known; allowed: with version 0.{} or later",
                  kVllmVersions[vllm.version], kFirstGroupsMinor));
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
                fmt::format("{} does not divide the block; allowed: divisors of block_size {}",
                            layout.states.hash_unit, layout.block_size));
  }
}

// Without the keys full attention is the first group, and windows come before states.
void read_group_order(ConfigReader& reader, KvCacheLayout& layout) {
  reader.boolean("states_before_windows", layout.has_states_before_windows, kNoDoc);
  const std::int32_t num_windows = layout.windows.num_tokens > 0 ? layout.windows.num_groups : 0;
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

std::optional<double> read_config(const ConfigNode& section, std::optional<int> version,
                                  EngineSetup& setup) {
  setup.scheduler.policy = "vllm";
  ConfigReader reader =
      open_mapping(section, "config", kConfigKeys,
                   optional_keys(setup.scheduler.policy, kOwnKeys, {kConfigKeys, kElsewhere}));
  read_cache(reader, setup);
  read_budget(reader, "max_num_batched_tokens", setup.scheduler.max_num_batched_tokens);
  read_max_model_len(reader, setup);
  reader.boolean("enable_prefix_caching", setup.kv_cache.enable_prefix_caching, kNoDoc);
  VllmConfig& vllm = setup.scheduler.edit<VllmConfig>();
  visit_fields(reader, vllm);
  reader.choice("policy", vllm.scheduling_policy, kVllmPolicies, kNoDoc);
  reader.integer("async_depth", setup.async_depth, 1, kMaxInFlight, kNoDoc);
  reader.integer("sliding_window", setup.kv_cache.windows.num_tokens, 1, kMaxTokens, kNoDoc);
  reader.integer("num_window_groups", setup.kv_cache.windows.num_groups, 1, kMaxWindowGroups,
                 kNoDoc);
  read_version(reader, section, vllm);
  vllm.version = version.value_or(vllm.version);
  read_states(section, vllm, setup.kv_cache);
  read_group_order(reader, setup.kv_cache);
  read_retention(reader, section, setup.kv_cache);
  read_drafts(reader, section, setup.max_num_seqs, vllm, setup.scheduler.drafts);
  read_encoder(section, setup, vllm, setup.encoder);
  std::optional<double> watermark;
  reader.optional_number("watermark", watermark, 0, 1, kNoDoc);
  return watermark;
}

// With drafts a case says how many are accepted, and with ngram how many are proposed.
void read_draft_counts(ConfigReader& reader, const ConfigNode& node, const std::string& path,
                       const DraftConfig& drafts, DecisionRequest& request) {
  const bool is_ngram = drafts.method == DraftMethod::Ngram;
  const std::int32_t limit = drafts.num_tokens;
  const auto read = [&](const char* key, bool is_used, std::vector<std::int64_t>& counts) {
    if ((node.find(key) != nullptr) != is_used) {
      fail_config(node.where, dotted(path, key),
                  is_used ? "required key is missing; allowed: a list of numbers of drafts"
                          : "has no effect here; allowed: with drafts, and proposed with ngram");
    }
    if (is_used) reader.integers(key, counts, 0, limit, kNoDoc);
    if (is_used && counts.empty()) {
      fail_config(node.where, dotted(path, key), "is empty; allowed: one number or more");
    }
  };
  read("accepted", limit > 0, request.accepted);
  read("proposed", limit > 0 && is_ngram, request.proposed);
}

EncoderItem read_image(const ConfigNode& node, const std::string& path, std::int32_t begin,
                       const DecisionRequest& request, DecisionCase& c) {
  ConfigReader reader = open_mapping(node, path, kImageKeys, kImageOptionalKeys);
  EncoderItem image;
  std::string name;
  reader.text("id", name, kNoDoc);
  const std::int32_t end = request.spec.num_prompt_tokens;
  reader.integer("offset", image.begin, begin, end - 1, kNoDoc);
  reader.integer("length", image.num_tokens, 1, end - image.begin, kNoDoc);
  std::vector<std::int64_t> embeddings = {0, image.num_tokens};
  reader.integers("embeddings", embeddings, 0, image.num_tokens, kNoDoc);
  if (embeddings.size() != 2 || embeddings[1] < 1 ||
      embeddings[0] + embeddings[1] > image.num_tokens ||
      embeddings[1] > c.setup.encoder.compute_budget) {
    fail_config(node.where, dotted(path, "embeddings"),
                fmt::format("must be the place of the first one and their number; allowed: 1 to "
                            "length and to the encoder's budget {}",
                            c.setup.encoder.compute_budget));
  }
  image.first_embedding = static_cast<std::int32_t>(embeddings[0]);
  image.num_embeddings = static_cast<std::int32_t>(embeddings[1]);
  const auto known = std::find(c.image_names.begin(), c.image_names.end(), name);
  image.content = static_cast<std::uint64_t>(known - c.image_names.begin());
  if (known == c.image_names.end()) c.image_names.push_back(name);
  return image;
}

// By offset, without overlaps. Equal ids have equally many embeddings.
void read_images(const ConfigNode& node, const std::string& path, DecisionRequest& request,
                 DecisionCase& c) {
  const ConfigNode* list = node.find("images");
  if (list == nullptr) return;
  const std::string key = dotted(path, "images");
  if (list->kind != ConfigNode::Kind::Sequence || !c.setup.encoder.takes_images()) {
    fail_config(node.where, key, "must be a list; allowed: images, with config.images");
  }
  std::int32_t begin = 0;
  for (const ConfigNode& item : list->items) {
    const std::string place = fmt::format("{}.{}", key, request.images.size());
    const EncoderItem image = read_image(item, place, begin, request, c);
    begin = image.end();
    const auto differs = [&](const EncoderItem& other) {
      return other.content == image.content && other.num_embeddings != image.num_embeddings;
    };
    const auto has_other = [&](const DecisionRequest& other) {
      return std::any_of(other.images.begin(), other.images.end(), differs);
    };
    if (has_other(request) || std::any_of(c.requests.begin(), c.requests.end(), has_other)) {
      fail_config(node.where, dotted(place, "embeddings"),
                  "differs from an earlier image with this id; allowed: as many as that has");
    }
    request.images.push_back(image);
  }
}

void read_request(RequestFields fields) {
  DecisionCase& c = fields.c;
  RequestSpec& spec = fields.request.spec;
  read_draft_counts(fields.reader, fields.node, fields.path, c.setup.scheduler.drafts,
                    fields.request);
  read_images(fields.node, fields.path, fields.request, c);
  fields.reader.integer("priority", spec.priority, INT32_MIN, INT32_MAX, kNoDoc);
  spec.max_output_tokens =
      std::min(spec.max_output_tokens, c.setup.max_model_len - spec.num_prompt_tokens);
}

// Positions of the admitted requests' first tokens. New requests come before those resumed after
// preemption.
Json admitted_positions(const DecisionReplay& replay, const StepPlan& plan) {
  Json positions = Json::object();
  for (const bool comes_back : {false, true}) {
    for (const ScheduledChunk& chunk : plan.chunks) {
      const bool is_admitted = std::find(plan.admitted.begin(), plan.admitted.end(),
                                         chunk.request) != plan.admitted.end();
      if (!is_admitted || (replay.request(chunk.request).num_preemptions > 0) != comes_back)
        continue;
      positions[replay.name_of(chunk.request)] = chunk.first_position;
    }
  }
  return positions;
}

// The images that the step encodes, by request, and those that it drops before.
void add_images(const DecisionReplay& replay, const StepPlan& plan, Json& log) {
  Json encoded = Json::object();
  for (const PlannedEncoding& encoding : plan.encodings) {
    const std::string& name = replay.name_of(encoding.request);
    if (!encoded.contains(name)) encoded[name] = Json::array();
    encoded[name].push_back(encoding.item);
  }
  log["encoded"] = std::move(encoded);
  Json freed = Json::array();
  for (const std::uint64_t content : plan.freed_contents) {
    freed.push_back(replay.decision_case().image_names[static_cast<std::size_t>(content)]);
  }
  log["freed"] = std::move(freed);
}

Json log_step(const DecisionReplay& replay, const StepPlan& plan) {
  Json log;
  log["scheduled"] = replay.tokens_of(plan);
  log["preempted"] = replay.names_of(replay.in_list_order(plan.preempted));
  log["running"] = replay.names_of(replay.scheduler().running());
  log["waiting"] = replay.names_of(replay.scheduler().waiting().in_order());
  log["free_blocks"] = replay.kv_cache().num_free_blocks();
  if (!plan.admitted.empty()) log["admitted_computed"] = admitted_positions(replay, plan);
  Json tables = Json::object();
  for (const Request* request : replay.scheduler().running()) {
    tables[replay.name_of(request->id)] = replay.tables_of(*request);
  }
  log["block_tables"] = std::move(tables);
  if (replay.decision_case().setup.encoder.takes_images()) add_images(replay, plan, log);
  if (!replay.has_drafts()) return log;
  Json drafts = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (chunk.num_drafts() > 0) drafts[replay.name_of(chunk.request)] = chunk.num_drafts();
  }
  log["drafts"] = std::move(drafts);
  return log;
}

}  // namespace

constexpr DecisionFormat kVllmDecisions = {.versions = kVllmVersions,
                                           .read_config = read_config,
                                           .prompts_leave_room = true,
                                           .optional_request_keys = kRequestKeys,
                                           .read_request = read_request,
                                           .log_step = log_step};

}  // namespace metronome
