// Which steps a calibration measures, in what order: requests and plans that a scripted scheduler
// (study/calibrate/scripted_scheduler.h) has an engine make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/request.h"

namespace metronome {

// What a step, and the requests at once, may be.
struct StepSizes {
  std::int32_t max_tokens = 1;   // of a step
  std::int32_t max_seqs = 1;     // in a step
  std::int32_t max_context = 1;  // prompt and output of a request
  std::int32_t block_size = 1;   // of the KV cache
  std::int64_t kv_tokens = 1;    // that it has room for
};
constexpr std::int32_t kMinScriptContext = 32;
constexpr std::int32_t kMinScriptTokens = 16;

// Room for the requests of a script, however short their contexts; kv_tokens does not count.
std::int64_t min_script_kv(const StepSizes& sizes);

struct ScriptedChunk {
  std::int32_t request = 0;     // into StepScript::requests
  std::int32_t num_tokens = 0;  // of its prompt; 0: a decode

  bool is_decode() const { return num_tokens == 0; }
};

// Chunks of one step: decodes first, a request at most once.
using ScriptedStep = std::vector<ScriptedChunk>;

// Every request begins in one round and ends in it, with its last chunk.
struct StepScript {
  std::vector<RequestSpec> requests;  // in the order of their first chunks
  std::vector<ScriptedStep> steps;
  std::vector<std::size_t> round_begins;  // steps; behind the last round steps.size()

  std::size_t num_rounds() const { return round_begins.size() - 1; }
};

// Rounds that each measure every kind of step, in a random order of their own: clocks and
// temperature drift with time, and must not look like an effect of what is in a step.
//   - prompts of unequal lengths, several in a step, until decodes have contexts to attend to;
//   - passes of decodes by batch, on both sides of the sizes that graphs are captured for, the
//     shortest contexts, the longest, and any;
//   - prefill chunks by tokens, on both sides of tile edges, at the begin of a prompt and behind
//   it;
//   - chunks beside decodes of unequal contexts, with the step ending on a tile and beyond it;
//   - several chunks beside decodes.
// Requires kMinScriptContext, kMinScriptTokens and min_script_kv(sizes). Whatever runs at once has
// room: what a script's requests hold is at most kv_tokens in whole blocks.
StepScript make_step_script(const StepSizes& sizes, std::size_t num_rounds, std::uint64_t seed);

// Decodes of few and many requests, step behind step, one round: where one step waits for the
// other, the device's idle time between them is the host's.
StepScript make_gap_script(const StepSizes& sizes);

}  // namespace metronome
