// SPDX-License-Identifier: Apache-2.0
#include "study/decisions/decision_case.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/config/config_limits.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "core/engine/step_plan.h"
#include "engines/sarathi/settings.h"
#include "engines/sglang/settings.h"
#include "engines/vllm/settings.h"
#include "study/decisions/case_fields.h"
#include "study/decisions/vllm_case.h"

namespace metronome {
namespace {

constexpr std::string_view kCaseKeys[] = {"seed", "config", "requests"};
// `kind` is a label, as `seed`.
constexpr std::string_view kOptionalCaseKeys[] = {"kind", "steps"};
constexpr std::string_view kNanoVllmKeys[] = {"block_size", "max_num_seqs",
                                              "max_num_batched_tokens", "num_blocks"};
constexpr std::string_view kSarathiKeys[] = {"scheduler",  "block_size",        "max_num_seqs",
                                             "chunk_size", "dynamic",           "max_model_len",
                                             "num_blocks", "max_batched_tokens"};
constexpr std::string_view kDynamicKeys[] = {"low", "high", "max_tokens", "stages"};
constexpr std::string_view kSglangKeys[] = {"page_size",
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
constexpr std::string_view kSglangOptionalKeys[] = {"enable_priority_scheduling",
                                                    "schedule_low_priority_values_first",
                                                    "priority_scheduling_preemption_threshold",
                                                    "disable_priority_preemption",
                                                    "retraction_policy",
                                                    "scheduler_recv_interval",
                                                    "prefill_decode_interval",
                                                    "prefill_decode_interval_min_bs",
                                                    "prefill_max_requests"};
constexpr std::string_view kSglangRequestKeys[] = {"output_len", "ignore_eos", "priority",
                                                   "clipped_max_tokens"};
constexpr std::string_view kRequestKeys[] = {"id", "arrival_step", "prompt", "max_tokens"};
constexpr std::string_view kSarathiRequestKeys[] = {"id", "arrival_step", "max_tokens",
                                                    "prompt_len"};
constexpr std::string_view kVllmRequestKeys[] = {"priority", "accepted", "proposed", "images"};
constexpr std::string_view kImageKeys[] = {"id", "offset", "length"};
constexpr std::string_view kImageOptionalKeys[] = {"embeddings"};
// The logs' names for the schedulers of Sarathi-Serve, and Metronome's names for these policies.
constexpr std::string_view kSarathiSchedulers[] = {"sarathi", "vllm0", "orca", "simple_chunking"};
constexpr std::string_view kSarathiPolicies[] = {"sarathi", "vllm_prefill_first", "orca",
                                                 "simple_chunking"};
constexpr std::string_view kVllm0 = "vllm_prefill_first";

constexpr std::int64_t kMaxRequests = 1'000'000;  // output token ids grow with their number

// Converts JSON to the tree that ConfigReader takes, so that all errors read alike.
ConfigNode to_node(const Json& value, const SourceLocation& where) {
  ConfigNode node;
  node.where = where;
  if (value.is_object()) {
    node.kind = ConfigNode::Kind::Map;
    for (const auto& [key, item] : value.items()) {
      node.entries.emplace_back(key, to_node(item, where));
    }
  } else if (value.is_array()) {
    node.kind = ConfigNode::Kind::Sequence;
    for (const Json& item : value) node.items.push_back(to_node(item, where));
  } else if (!value.is_null()) {
    node.kind = ConfigNode::Kind::Scalar;
    node.is_quoted = value.is_string();
    node.scalar = node.is_quoted ? value.get<std::string>() : value.dump();
  }
  return node;
}

Json parse_line(const std::string& line, const SourceLocation& where) {
  try {
    return Json::parse(line, {.max_depth = 16, .keys_once = true});
  } catch (const JsonError& error) {
    if (error.reason() == JsonError::Reason::TooDeep) {
      fail_config(where, "", "is nested too deeply; allowed: 16 levels");
    }
    if (error.reason() == JsonError::Reason::KeyTwice) {
      fail_config(where, error.key(), "appears twice; allowed: once");
    }
    const bool is_cut = error.byte() > line.size();
    fail_config(where, "character " + std::to_string(error.byte()),
                is_cut ? "the line ends inside its JSON object; allowed: one whole object per line"
                       : "not JSON; allowed: one object per line");
  }
}

void read_nano_vllm_config(ConfigReader& reader, EngineSetup& setup) {
  setup.scheduler.policy = "nano_vllm";
  setup.kv_cache.enable_prefix_caching = true;
  read_cache(reader, setup);
  read_budget(reader, "max_num_batched_tokens", setup.scheduler.max_num_batched_tokens);
}

void read_sarathi_config(ConfigReader& reader, const ConfigNode& section, EngineSetup& setup) {
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
}

// Pages are KV blocks; what does not fill a page is not used.
void read_sglang_config(ConfigReader& reader, const ConfigNode& section, EngineSetup& setup) {
  setup.scheduler.policy = "sglang";
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
    fail_config(section.where, "config.req_pool_size",
                std::to_string(num_rows) +
                    " is not max_running_requests; allowed: " + std::to_string(setup.max_num_seqs));
  }
  reader.integer("context_length", setup.max_model_len, 2, kMaxTokens, kNoDoc);
  SglangConfig& sglang = setup.scheduler.edit<SglangConfig>();
  visit_fields(reader, sglang);
  sglang.waits_forever = true;
  const std::int64_t chunk = sglang.chunked_prefill_size;
  if (chunk > 0 && chunk % cache.block_size != 0) {
    fail_config(section.where, "config.chunked_prefill_size",
                std::to_string(chunk) + " is not a multiple of page_size " +
                    std::to_string(cache.block_size) +
                    "; allowed: 0 or -1 (off), or a multiple of it");
  }
  if (sglang.schedule_policy == SglangConfig::SchedulePolicy::ShortestPrefillFirst && has_no_tree) {
    fail_config(section.where, "config.schedule_policy",
                "shortest-prefill-first needs cached prefixes; allowed: disable_radix_cache = "
                "false");
  }
}

// Returns the watermark as a fraction of the blocks, if the case has one.
std::optional<double> read_config(const ConfigNode& section, std::optional<int> vllm_version,
                                  DecisionCase& result) {
  const std::string path = "config";
  EngineSetup& setup = result.setup;
  switch (result.engine) {
    case DecisionEngine::Vllm: return read_vllm_config(section, vllm_version, setup);
    case DecisionEngine::NanoVllm: {
      ConfigReader reader = open_mapping(section, path, kNanoVllmKeys, {});
      read_nano_vllm_config(reader, setup);
      break;
    }
    case DecisionEngine::Sglang: {
      ConfigReader reader = open_mapping(section, path, kSglangKeys, kSglangOptionalKeys);
      read_sglang_config(reader, section, setup);
      break;
    }
    case DecisionEngine::Sarathi: {
      ConfigReader reader = open_mapping(section, path, kSarathiKeys, kDynamicKeys);
      read_sarathi_config(reader, section, setup);
      break;
    }
  }
  return std::nullopt;
}

// Reads the prompt's token ids, at least one. With vLLM it leaves room for one output token.
void read_prompt(ConfigReader& reader, const DecisionCase& c, const SourceLocation& where,
                 const std::string& path, DecisionRequest& request) {
  std::vector<std::int64_t> ids;
  reader.integers("prompt", ids, 0, INT32_MAX, kNoDoc);
  const std::int64_t max_len =
      c.engine == DecisionEngine::Vllm ? c.setup.max_model_len - 1 : kMaxTokens;
  const auto num_tokens = static_cast<std::int64_t>(ids.size());
  if (num_tokens < 1 || num_tokens > max_len) {
    fail_config(
        where, dotted(path, "prompt"),
        "has " + std::to_string(num_tokens) + " tokens; allowed: " + describe_range(1, max_len));
  }
  request.spec.num_prompt_tokens = static_cast<std::int32_t>(num_tokens);
  for (const std::int64_t id : ids) request.prompt.push_back(TokenId(static_cast<int>(id)));
}

void read_id(ConfigReader& reader, const ConfigNode& node, const std::string& path,
             std::set<std::string>& taken, std::string& id) {
  reader.text("id", id, kNoDoc);
  const std::string key = dotted(path, "id");
  const ConfigNode& value = *node.find("id");
  if (!value.is_quoted) {
    fail_config(node.where, key, "must be a string, got " + value.describe() + "; allowed: \"ID\"");
  }
  if (!taken.insert(id).second) {
    fail_config(node.where, key, "'" + id + "' is already taken; allowed: unique ids");
  }
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
                "must be the place of the first one and their number; allowed: 1 to length and "
                "to the encoder's budget " +
                    std::to_string(c.setup.encoder.compute_budget));
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
    const std::string place = key + "." + std::to_string(request.images.size());
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

DecisionRequest read_request(const ConfigNode& node, const std::string& path, DecisionCase& c,
                             std::set<std::string>& taken) {
  const bool is_sarathi = c.engine == DecisionEngine::Sarathi;
  const bool is_vllm = c.engine == DecisionEngine::Vllm;
  const bool is_sglang = c.engine == DecisionEngine::Sglang;
  ConfigReader reader =
      open_mapping(node, path, is_sarathi ? Names(kSarathiRequestKeys) : Names(kRequestKeys),
                   is_vllm     ? Names(kVllmRequestKeys)
                   : is_sglang ? Names(kSglangRequestKeys)
                               : Names());
  DecisionRequest request;
  RequestSpec& spec = request.spec;
  read_id(reader, node, path, taken, request.id);
  reader.integer("arrival_step", request.arrival_step, 0, kMaxArrivalStep, kNoDoc);
  if (is_sarathi) {
    reader.integer("prompt_len", spec.num_prompt_tokens, 1, kMaxTokens, kNoDoc);
  } else {
    read_prompt(reader, c, node.where, path, request);
  }
  reader.integer("max_tokens", spec.max_output_tokens, 1, kMaxTokens, kNoDoc);
  if (is_sglang) {
    // SGLang serves a request without a priority last (Scheduler._set_or_validate_priority).
    const SglangConfig& sglang = c.setup.scheduler.edit<SglangConfig>();
    if (sglang.enable_priority_scheduling) {
      spec.priority = sglang.schedule_low_priority_values_first ? INT32_MAX : INT32_MIN;
    }
    reader.integer("priority", spec.priority, INT32_MIN, INT32_MAX, kNoDoc);
    bool ignores_eos = false;
    reader.boolean("ignore_eos", ignores_eos, kNoDoc);
    spec.ignores_eos = ignores_eos;
    reader.integer("output_len", request.output_len, 1, kMaxTokens, kNoDoc);
  }
  if (is_vllm) {
    read_draft_counts(reader, node, path, c.setup.scheduler.drafts, request);
    read_images(node, path, request, c);
    reader.integer("priority", spec.priority, INT32_MIN, INT32_MAX, kNoDoc);
    spec.max_output_tokens =
        std::min(spec.max_output_tokens, c.setup.max_model_len - spec.num_prompt_tokens);
  }
  return request;
}

void read_requests(const ConfigNode& list, DecisionCase& result) {
  const std::string path = "requests";
  if (list.kind != ConfigNode::Kind::Sequence) {
    fail_config(list.where, path,
                "must be a list, got " + list.describe() + "; allowed: one request or more");
  }
  const auto num_requests = static_cast<std::int64_t>(list.items.size());
  if (num_requests < 1 || num_requests > kMaxRequests) {
    fail_config(list.where, path,
                "has " + std::to_string(num_requests) +
                    " requests; allowed: " + describe_range(1, kMaxRequests));
  }
  std::set<std::string> taken;
  for (const ConfigNode& item : list.items) {
    const std::size_t i = result.requests.size();
    result.requests.push_back(read_request(item, path + "." + std::to_string(i), result, taken));
    result.requests.back().spec.arrival = static_cast<TimeNs>(i);
  }
}

void take_steps(const Json& steps, DecisionCase& result) {
  result.has_steps = true;
  if (!steps.is_array()) {
    fail_config(result.where, "steps", "must be a list; allowed: one object per step");
  }
  for (const Json& step : steps) {
    if (!step.is_object()) {
      fail_config(result.where, "steps." + std::to_string(result.steps_json.size()),
                  "must be an object; allowed: the fields of a step");
    }
    result.steps_json.push_back(step.dump());
  }
}

// Sets the engine's defaults for everything that the case leaves out.
void complete_setup(std::optional<double> watermark, DecisionCase& result) {
  EngineSetup& setup = result.setup;
  if (result.engine == DecisionEngine::NanoVllm) {
    for (const DecisionRequest& request : result.requests) {
      setup.max_model_len = std::max(
          setup.max_model_len, request.spec.num_prompt_tokens + request.spec.max_output_tokens);
    }
  }
  const PolicyInfo* policy = find_policy(setup.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "the registry has no policy " + setup.scheduler.policy);
  setup.kv_cache.watermark_blocks = watermark_blocks(*policy, watermark, setup.kv_cache.num_blocks);
  setup.step_shape = policy->natural_shape;
  arrange_cache(*policy, setup);
}

DecisionCase read_case(const DecisionSource& source, const std::string& line,
                       const SourceLocation& where) {
  DecisionCase result;
  result.engine = source.engine;
  result.where = where;
  Json json = parse_line(line, where);
  if (const Json* steps = json.find("steps")) {
    take_steps(*steps, result);
    json.erase("steps");  // most of the text, and ConfigReader does not read them
  }
  const ConfigNode root = to_node(json, where);
  ConfigReader reader = open_mapping(root, "", kCaseKeys, kOptionalCaseKeys);
  reader.integer("seed", result.seed, 0, kMaxSeed, kNoDoc);
  reader.text("kind", result.kind, kNoDoc);
  const std::optional<double> watermark =
      read_config(*reader.take("config"), source.vllm_version, result);
  read_requests(*reader.take("requests"), result);
  result.config_json = json.at("config").dump();
  result.requests_json = json.at("requests").dump();
  complete_setup(watermark, result);
  return result;
}

}  // namespace

void for_each_decision_case(const DecisionSource& source,
                            const std::function<void(const DecisionCase&)>& visit) {
  SourceLocation where{std::make_shared<const std::string>(source.path), 0};
  constexpr std::string_view kAllowed = "cases in JSON, one per line";
  std::ifstream file = open_input(source.path, kAllowed);
  std::size_t num_cases = 0;
  for (std::string line; next_line(file, line);) {
    ++where.line;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const DecisionCase c = read_case(source, line, where);
    try {
      visit(c);
    } catch (const InvariantError& error) {
      throw InvariantError(where.to_string() + ": " + error.what());
    }
    ++num_cases;
  }
  if (file.bad()) fail_input(source.path, kAllowed);
  if (num_cases == 0) {
    fail_config({where.file, 0}, "", "contains no cases; allowed: " + std::string(kAllowed));
  }
}

}  // namespace metronome
