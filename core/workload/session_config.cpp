// SPDX-License-Identifier: Apache-2.0
// Datasets and sessions: keys and checks.
#include <fmt/core.h>

#include "core/workload/workload_sections.h"

namespace metronome {

namespace {

constexpr std::string_view kDatasetNames[] = {"none", "random", "sonnet"};
constexpr std::string_view kSessionNames[] = {"none", "chat", "agent"};

constexpr unsigned kAnyDataset = bits(DatasetName::Random, DatasetName::Sonnet);
constexpr KeyUse kDatasetUses[] = {
    {"input_len", kAnyDataset},
    {"output_len", kAnyDataset},
    {"prefix_len", kAnyDataset},
    {"range_ratio", bits(DatasetName::Random)},
};
constexpr unsigned kAnySession = bits(SessionKind::Chat, SessionKind::Agent);
constexpr unsigned kAgents = bits(SessionKind::Agent);
constexpr KeyUse kSessionUses[] = {
    {"num_sessions", kAnySession, kAnySession},
    {"turns", kAnySession, bits(SessionKind::Chat)},
    {"think_time_ms", kAnySession, bits(SessionKind::Chat)},
    {"tool_calls", kAgents, kAgents},
    {"call_tokens", kAgents, kAgents},
    {"tool_tokens", kAgents, kAgents},
    {"tool_time_ms", kAgents, kAgents},
};
constexpr UseTable kDatasets = {"kind", kDatasetNames, kDatasetUses};
constexpr UseTable kSessions = {"kind", kSessionNames, kSessionUses};

Unused unused_by_dataset(std::string_view name) { return unused_in_table(kDatasets, name); }
Unused unused_by_sessions(std::string_view kind) { return unused_in_table(kSessions, kind); }

// Keys of the workload that a dataset stands for.
Unused replaced_by_dataset(std::string_view name) {
  static constexpr std::string_view kKeys[] = {"prompt_tokens", "output_tokens", "prefix"};
  if (name == kDatasetNames[0] || !position_of(name, kDatasetNames)) return {};
  return unused_with_complaint(kKeys, "not used with dataset " + std::string(name) +
                                          ", which brings its own; it belongs to "
                                          "dataset none");
}

Unused replaced_by_sessions(std::string_view kind) {
  static constexpr std::string_view kKeys[] = {"num_requests"};
  if (kind == kSessionNames[0] || !position_of(kind, kSessionNames)) return {};
  return unused_with_complaint(kKeys,
                               "not used with sessions, which have a number of turns; give "
                               "sessions.num_sessions");
}

}  // namespace

void visit_dataset(FieldVisitor& v, DatasetConfig& c) {
  if (!v.open_section("dataset",
                      "lengths as of a dataset of `vllm bench serve`, instead of prompt_tokens, "
                      "output_tokens and prefix")) {
    return;
  }
  v.choice("kind", c.name, kDatasetNames, "the dataset");
  v.optional_integer("input_len", c.input_len, 1, kMaxLengthTokens,
                     "--random-input-len, --sonnet-input-len: prompt tokens, mean for random; "
                     "null: 1024, 550");
  v.optional_integer("output_len", c.output_len, 1, kMaxLengthTokens,
                     "--random-output-len, --sonnet-output-len: output tokens, mean for random; "
                     "null: 128, 150");
  v.optional_integer("prefix_len", c.prefix_len, 0, kMaxLengthTokens,
                     "--random-prefix-len, before input_len; --sonnet-prefix-len, of input_len: "
                     "tokens that all prompts share; null: 0, 200");
  v.number("range_ratio", c.range_ratio, 0, 0.999999,
           "--random-range-ratio: lengths are uniform within this share around their mean");
  v.close_section();
}

void visit_sessions(FieldVisitor& v, SessionConfig& c) {
  if (!v.open_section("sessions",
                      "requests that continue earlier ones: each prompt is the one before, its "
                      "output, and new tokens")) {
    return;
  }
  v.choice("kind", c.kind, kSessionNames,
           "chat: a turn is one request; agent: a turn is a loop of tool calls, then an answer");
  v.integer("num_sessions", c.num_sessions, 1, kMaxRequests,
            "sessions; they start by workload.arrivals, or with a closed loop when another ends");
  visit_length(v, "turns", c.turns, "turns of a session");
  visit_length(v, "think_time_ms", c.think_time_ms,
               "milliseconds from the end of a turn to the next");
  visit_length(v, "tool_calls", c.tool_calls, "agent: calls of tools in a turn");
  visit_length(v, "call_tokens", c.call_tokens, "agent: output tokens of a call");
  visit_length(v, "tool_tokens", c.tool_tokens, "agent: tokens of a tool's answer");
  visit_length(v, "tool_time_ms", c.tool_time_ms, "agent: milliseconds until a tool answers");
  v.close_section();
}

void append_session_choices(std::vector<Choice>& choices) {
  choices.push_back({"", "dataset.kind", replaced_by_dataset});
  choices.push_back({"dataset", kDatasets.selector, unused_by_dataset});
  choices.push_back({"", "sessions.kind", replaced_by_sessions});
  choices.push_back({"sessions", kSessions.selector, unused_by_sessions});
  for (const char* key :
       {"turns", "think_time_ms", "tool_calls", "call_tokens", "tool_tokens", "tool_time_ms"}) {
    append_length_choices("sessions." + std::string(key), choices);
  }
}

void check_dataset(const Section& section, DatasetConfig& c) {
  if (c.name == DatasetName::None) return;
  // The defaults of vLLM's RandomDataset and SonnetDataset (vllm/benchmarks/datasets).
  const bool is_random = c.name == DatasetName::Random;
  if (!c.input_len) c.input_len = is_random ? 1024 : 550;
  if (!c.output_len) c.output_len = is_random ? 128 : 150;
  if (!c.prefix_len) c.prefix_len = is_random ? 0 : 200;
  if (!is_random && *c.prefix_len >= *c.input_len) {
    section.fail("prefix_len",
                 fmt::format("{} is not below input_len {}, which it is part of; allowed: less",
                             *c.prefix_len, *c.input_len));
  }
}

void check_sessions(const Section& section, const SessionConfig& c) {
  if (c.kind == SessionKind::None) return;
  check_needed(section, kSessions, static_cast<std::size_t>(c.kind));
  const std::pair<const char*, const LengthConfig*> lengths[] = {
      {"turns", &c.turns},
      {"think_time_ms", &c.think_time_ms},
      {"tool_calls", &c.tool_calls},
      {"call_tokens", &c.call_tokens},
      {"tool_tokens", &c.tool_tokens},
      {"tool_time_ms", &c.tool_time_ms}};
  for (const auto& [key, length] : lengths) {
    if (section.get(key) != nullptr) check_length({*section.node, section.path, key}, *length);
  }
  if (section.get("turns") != nullptr && section.get("think_time_ms") == nullptr) {
    section.fail("think_time_ms", "missing; turns need it");
  }
}

}  // namespace metronome
