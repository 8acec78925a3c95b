// SPDX-License-Identifier: Apache-2.0
// The steps that a calibration measures, and their order. They are requests and plans that a
// scripted scheduler (study/calibrate/scripted_policy.h) gives to an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/request.h"

namespace metronome {

// Limits of a step and of the requests that run at once.
struct StepSizes {
  std::int32_t max_tokens = 1;   // of a step
  std::int32_t max_seqs = 1;     // in a step
  std::int32_t max_context = 1;  // prompt and output of a request
  std::int32_t block_size = 1;   // of the KV cache
  std::int64_t kv_tokens = 1;    // capacity of the KV cache
};
constexpr std::int32_t kMinScriptContext = 32;
constexpr std::int32_t kMinScriptTokens = 16;

// KV room that a script's requests need even with the shortest contexts; ignores kv_tokens.
std::int64_t min_script_kv(const StepSizes& sizes);

struct ScriptedChunk {
  std::int32_t request = 0;     // index into StepScript::requests
  std::int32_t num_tokens = 0;  // prompt tokens; 0: a decode

  bool is_decode() const { return num_tokens == 0; }
};

// Chunks of one step: decodes first, each request at most once.
using ScriptedStep = std::vector<ScriptedChunk>;

// Every request begins and ends in the same round. It ends with its last chunk.
struct StepScript {
  std::vector<RequestSpec> requests;  // in the order of their first chunks
  std::vector<ScriptedStep> steps;
  std::vector<std::size_t> round_begins;  // step indices, then steps.size()

  std::size_t num_rounds() const { return round_begins.size() - 1; }
};

// Makes rounds that each measure all the cases below, in a separate random order. Clocks and
// temperature drift with time, and this must not look like an effect of a step's content. A round
// contains:
//   - prompts of unequal lengths, several in a step, until the decodes have contexts to attend to;
//   - decode passes by batch size, on both sides of captured graph sizes, with the shortest, the
//     longest and random contexts;
//   - prefill chunks by tokens, on both sides of tile edges, at the beginning of a prompt and after
//     it;
//   - chunks beside decodes of unequal contexts, with the step ending at a tile edge and beyond it;
//   - several chunks beside decodes.
// Requires kMinScriptContext, kMinScriptTokens and min_script_kv(sizes). Running requests always
// fit: together they hold at most kv_tokens in whole blocks.
StepScript make_step_script(const StepSizes& sizes, std::size_t num_rounds, std::uint64_t seed);

// One round of consecutive decode steps, with few and with many requests. If each step waits for
// the previous one, the device's idle time between them is the host's.
StepScript make_gap_script(const StepSizes& sizes);

}  // namespace metronome
