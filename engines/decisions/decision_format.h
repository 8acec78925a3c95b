// SPDX-License-Identifier: Apache-2.0
// How the logs of one scheduler's decisions are written. engines/NAME/decisions has the row of a
// product; docs/internals/architecture.md says how to record and to add one.
#pragma once

#include <optional>
#include <string>

#include "core/base/json.h"
#include "core/config/config_node.h"
#include "engines/decisions/case_fields.h"
#include "engines/decisions/decision_case.h"

namespace metronome {

class DecisionReplay;

// The places that a format reads a request from, and into.
struct RequestFields {
  ConfigReader& reader;
  const ConfigNode& node;
  const std::string& path;
  DecisionCase& c;
  DecisionRequest& request;
};

struct DecisionFormat {
  Names versions = {};  // by which it can be told to decide; empty: it has one
  // Reads a case's `config`. `version`: place in `versions`, overrides the case's. Returns the
  // watermark as a fraction of the blocks, if the case has one.
  std::optional<double> (*read_config)(const ConfigNode& section, std::optional<int> version,
                                       EngineSetup& setup) = nullptr;
  bool has_lengths = false;          // prompt_len in the place of a prompt's tokens
  bool prompts_leave_room = false;   // for one token of output, in max_model_len
  Names optional_request_keys = {};  // beside id, arrival_step, prompt and max_tokens
  void (*read_request)(RequestFields fields) = nullptr;  // these keys; nullptr: there are none
  void (*complete)(DecisionCase& c) = nullptr;           // what follows from the requests
  // The fields of a step, in the log's order.
  Json (*log_step)(const DecisionReplay& replay, const StepPlan& plan) = nullptr;
  // Whether the step has another plan, and what joins its log to that of those before. nullptr: a
  // step is one plan.
  bool (*goes_on)(const DecisionReplay& replay) = nullptr;
  void (*join)(Json& log, const Json& more) = nullptr;
  // Adds the requests that a step ended; nullptr: as `finished`, in the order of the list.
  void (*log_ended)(const DecisionReplay& replay, const std::vector<RequestId>& ended,
                    Json& log) = nullptr;
};

}  // namespace metronome
