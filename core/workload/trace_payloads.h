// SPDX-License-Identifier: Apache-2.0
// AIPerf's inputs.json: the bodies of the requests that it sent, by session. The layout is that of
// its reader (AIPerf 0.13, src/aiperf/dataset/loader/inputs_json.py):
//   {"data": [{"session_id": NAME, "payloads": [BODY, ...]}, ...]}
// Older files, and genai-perf's, have "payload". AIPerf's own inputs are lines of one prompt or of
// a session's turns (src/aiperf/dataset/loader/models.py: SingleTurn, MultiTurn, MooncakeTrace):
//   {"text": TEXT} or {"texts": [TEXT, ...]} or {"text_input": TEXT, "output_length": N}
//   {"session_id": NAME, "turns": [{"text": TEXT, "delay": MS}, ...]}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

class TraceLines;

// The texts of a body, and the tokens that it asks for.
struct Payload {
  std::string prompt;
  std::optional<std::int64_t> output_tokens;  // absent: it has no limit
};

// Whether the file begins as such a document.
bool is_payload_document(std::string_view first_record);

// The bodies of all sessions, in their order. A conversation's body has all of its texts: the
// answers before it, too. Throws ConfigError at what is no such document, and at a body with
// anything but texts. `lines` is for messages.
std::vector<Payload> read_payloads(std::string_view document, const TraceLines& lines);

// Whether a record is such a prompt or session.
bool is_prompt_record(std::string_view record);

// The prompts of all records. That of a later turn has the texts of those before; answers between
// them are not known. Adds the names of fields that are not read to `unused`.
std::vector<Payload> read_prompt_records(TraceLines records, std::vector<std::string>& unused);

}  // namespace metronome
