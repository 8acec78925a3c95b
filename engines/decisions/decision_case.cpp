// SPDX-License-Identifier: Apache-2.0
#include "engines/decisions/decision_case.h"

#include <algorithm>
#include <fmt/core.h>
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
#include "engines/decisions/case_fields.h"
#include "engines/decisions/decision_format.h"

namespace metronome {
namespace {

constexpr std::string_view kCaseKeys[] = {"seed", "config", "requests"};
// `kind` is a label, as `seed`.
constexpr std::string_view kOptionalCaseKeys[] = {"kind", "steps"};
constexpr std::string_view kRequestKeys[] = {"id", "arrival_step", "prompt", "max_tokens"};
constexpr std::string_view kLengthRequestKeys[] = {"id", "arrival_step", "max_tokens",
                                                   "prompt_len"};

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
    fail_config(where, fmt::format("character {}", error.byte()),
                is_cut ? "the line ends inside its JSON object; allowed: one whole object per line"
                       : "not JSON; allowed: one object per line");
  }
}

// Reads the prompt's token ids, at least one.
void read_prompt(ConfigReader& reader, const DecisionCase& c, const SourceLocation& where,
                 const std::string& path, DecisionRequest& request) {
  std::vector<std::int64_t> ids;
  reader.integers("prompt", ids, 0, INT32_MAX, kNoDoc);
  const std::int64_t max_len =
      c.format->prompts_leave_room ? c.setup.max_model_len - 1 : kMaxTokens;
  const auto num_tokens = static_cast<std::int64_t>(ids.size());
  if (num_tokens < 1 || num_tokens > max_len) {
    fail_config(where, dotted(path, "prompt"),
                fmt::format("has {} tokens; allowed: {}", num_tokens, describe_range(1, max_len)));
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

DecisionRequest read_request(const ConfigNode& node, const std::string& path, DecisionCase& c,
                             std::set<std::string>& taken) {
  const DecisionFormat& format = *c.format;
  ConfigReader reader =
      open_mapping(node, path, format.has_lengths ? Names(kLengthRequestKeys) : Names(kRequestKeys),
                   format.optional_request_keys);
  DecisionRequest request;
  RequestSpec& spec = request.spec;
  read_id(reader, node, path, taken, request.id);
  reader.integer("arrival_step", request.arrival_step, 0, kMaxArrivalStep, kNoDoc);
  if (format.has_lengths) {
    reader.integer("prompt_len", spec.num_prompt_tokens, 1, kMaxTokens, kNoDoc);
  } else {
    read_prompt(reader, c, node.where, path, request);
  }
  reader.integer("max_tokens", spec.max_output_tokens, 1, kMaxTokens, kNoDoc);
  if (format.read_request != nullptr) format.read_request({reader, node, path, c, request});
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
    fail_config(
        list.where, path,
        fmt::format("has {} requests; allowed: {}", num_requests, describe_range(1, kMaxRequests)));
  }
  std::set<std::string> taken;
  for (const ConfigNode& item : list.items) {
    const std::size_t i = result.requests.size();
    result.requests.push_back(read_request(item, fmt::format("{}.{}", path, i), result, taken));
    result.requests.back().spec.arrival = static_cast<TimeNs>(i);
  }
}

void read_steps(const Json& steps, DecisionCase& result) {
  result.has_steps = true;
  if (!steps.is_array()) {
    fail_config(result.where, "steps", "must be a list; allowed: one object per step");
  }
  for (const Json& step : steps) {
    if (!step.is_object()) {
      fail_config(result.where, fmt::format("steps.{}", result.steps_json.size()),
                  "must be an object; allowed: the fields of a step");
    }
    result.steps_json.push_back(step.dump());
  }
}

// Sets the engine's defaults for everything that the case leaves out.
void complete_setup(std::optional<double> watermark, DecisionCase& result) {
  EngineSetup& setup = result.setup;
  if (result.format->complete != nullptr) result.format->complete(result);
  const PolicyInfo* policy = find_policy(setup.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "the registry has no policy " + setup.scheduler.policy);
  setup.kv_cache.watermark_blocks = watermark_blocks(*policy, watermark, setup.kv_cache.num_blocks);
  setup.step_shape = policy->natural_shape;
  arrange_cache(*policy, setup);
}

DecisionCase read_case(const DecisionSource& source, const std::string& line,
                       const SourceLocation& where) {
  DecisionCase result;
  result.format = source.format;
  result.where = where;
  Json json = parse_line(line, where);
  if (const Json* steps = json.find("steps")) {
    read_steps(*steps, result);
    json.erase("steps");  // most of the text, and ConfigReader does not read them
  }
  const ConfigNode root = to_node(json, where);
  ConfigReader reader = open_mapping(root, "", kCaseKeys, kOptionalCaseKeys);
  reader.integer("seed", result.seed, 0, kMaxSeed, kNoDoc);
  reader.text("kind", result.kind, kNoDoc);
  const std::optional<double> watermark =
      source.format->read_config(*reader.take("config"), source.version, result.setup);
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
