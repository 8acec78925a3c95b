// SPDX-License-Identifier: Apache-2.0
// One line of a decision log: a case's workload as the scheduling core takes it, and the recorded
// steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"
#include "core/engine/engine.h"
#include "core/engine/request.h"

namespace metronome {

struct DecisionFormat;

struct DecisionRequest {
  std::string id;
  std::int64_t arrival_step = 0;
  RequestSpec spec;             // arrival: index in the list, a tie-breaker
  std::vector<TokenId> prompt;  // empty if only lengths are recorded
  std::vector<TokenId> output;  // empty if its tokens are those of the rule
  std::int32_t output_len = 0;  // its last token ends the text; 0 = none does
  // With drafts: how many its 1st, 2nd, ... verification accepts, at most, and how many ngram
  // proposes after its 1st, 2nd, ... step. Each list starts again at its end.
  std::vector<std::int64_t> accepted;
  std::vector<std::int64_t> proposed;
  std::vector<EncoderItem> images;  // content: place of the name in DecisionCase::image_names
};

struct DecisionCase {
  const DecisionFormat* format = nullptr;
  SourceLocation where;
  std::int64_t seed = 0;
  std::string kind;  // a label; may be empty
  EngineSetup setup;
  std::vector<DecisionRequest> requests;  // as listed, not in arrival order
  std::vector<std::string> image_names;   // as they first appear
  // As in the file, in compact JSON.
  std::string config_json;
  std::string requests_json;
  bool has_steps = false;
  std::vector<std::string> steps_json;  // objects
};

// A request arrives at most this many steps after the first step.
constexpr std::int64_t kMaxArrivalStep = 100'000;

struct DecisionSource {
  const DecisionFormat* format = nullptr;
  std::string path;
  std::optional<int> version = {};  // in DecisionFormat::versions; overrides that of the cases
};

// Calls `visit` for each case, in the order of the file. Throws ConfigError for an unreadable file,
// a file without cases, and the first line that is not JSON or not a case of the engine.
void for_each_decision_case(const DecisionSource& source,
                            const std::function<void(const DecisionCase&)>& visit);

}  // namespace metronome
