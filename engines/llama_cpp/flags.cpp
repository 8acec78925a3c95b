// SPDX-License-Identifier: Apache-2.0
// Flags of llama-server: llama.cpp's common/arg.cpp (llama-server --help).
#include <fmt/core.h>
#include <string_view>

#include "core/scenario/scenario.h"
#include "engines/flags/flag_list.h"
#include "engines/llama_cpp/product.h"
#include "engines/llama_cpp/settings.h"

namespace metronome {

extern const std::string_view kLlamaCppFlagsYaml;  // engines/llama_cpp/flags.yaml

namespace {

EngineFlags write_flags(const Scenario& scenario) {
  const LlamaCppConfig& config = scenario.scheduler.settings<LlamaCppConfig>();
  FlagList list("llama-server", "(llama-cpp-python 0.3.36)");
  list.add("-b", std::int64_t{config.n_batch});
  list.add("-ub", std::int64_t{config.n_ubatch});
  list.add("-np", scenario.engine.max_num_seqs);
  constexpr std::int64_t kMostSlots = 256;  // LLAMA_MAX_SEQ
  if (scenario.engine.max_num_seqs > kMostSlots) {
    list.refuse(
        fmt::format("it refuses -np {} above {}", scenario.engine.max_num_seqs, kMostSlots));
  }
  list.add("-kvu");
  if (const std::int64_t tokens = pool_tokens(scenario); tokens > 0) {
    list.add("-c", tokens);
  } else {
    list.note("-c is as many tokens of context, of all slots together, as fit in memory");
  }
  if (!config.cont_batching) list.add("--no-cont-batching");
  if (has_prefixes(scenario)) {
    list.add("--slot-prompt-similarity", shortest_text(config.slot_prompt_similarity));
    list.add("--cache-ram", std::int64_t{0});
  } else {
    list.add("--no-cache-prompt");
  }
  if (scenario.kv_dtype == KvDtype::Fp8) {
    list.note("kv_cache.dtype fp8: -ctk q8_0 -ctv q8_0 are the nearest");
  }
  note_formats(scenario, "a GGUF file", list);
  if (scenario.speculative.has_drafts()) list.note("options of drafts are not translated");
  return list.take();
}

}  // namespace

constexpr ServerFlags kLlamaCppFlags = {.server = "llama-server",
                                        .memory = "-c",
                                        .num_seqs = "-np",
                                        .pool = "-c",
                                        .has_share = false,
                                        .write = write_flags,
                                        .known = &kLlamaCppFlagsYaml};

}  // namespace metronome
