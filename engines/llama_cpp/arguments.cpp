// SPDX-License-Identifier: Apache-2.0
// The options of llama-server that a scenario has a key for. Source: llama.cpp's common/arg.cpp.
#include "engines/arguments/server_arguments.h"
#include "engines/llama_cpp/product.h"

namespace metronome {
namespace {

constexpr ServerArgument kServerArguments[] = {
    {"batch_size", "scheduler.n_batch"},
    {"ubatch_size", "scheduler.n_ubatch"},
    {"cont_batching", "scheduler.cont_batching", ArgumentKind::Switch},
    {"slot_prompt_similarity", "scheduler.slot_prompt_similarity", ArgumentKind::Number},
    {"parallel", "engine.max_num_seqs"},
    {"ctx_size", "kv_cache.num_blocks", ArgumentKind::Tokens},
    {"cache_prompt", "kv_cache.enable_prefix_caching", ArgumentKind::Switch},
    // Slots share one context, as by default.
    {"kv_unified", "kv_cache.num_blocks", ArgumentKind::Word, "True", "True="},
    // The K and V caches may differ in type; that of K counts.
    {"cache_type_k", "kv_cache.dtype", ArgumentKind::Word, "f16", "f16=bf16, bf16=bf16, q8_0=fp8"}};

// The model of a repository is named apart from one in a file. Zero or less: as many as fit (the
// context), or as the server likes (the slots).
void derive(EngineArguments& arguments, std::vector<std::string>&) {
  if (auto file = arguments.extract("hf_file"); !file.empty()) {
    arguments.try_emplace("model", file.mapped());
  }
  if (auto repository = arguments.extract("hf_repo"); !repository.empty()) {
    arguments.try_emplace("model", repository.mapped());
  }
  // The default, which models with states do without.
  if (const auto cache = arguments.find("cache_prompt");
      cache != arguments.end() && cache->second == "True") {
    arguments.erase(cache);
  }
  for (const char* const name : {"ctx_size", "parallel"}) {
    if (count_of(arguments, name).value_or(1) <= 0) arguments.erase(name);
  }
}

constexpr std::string_view kDerived[] = {"hf_file", "hf_repo"};

constexpr ServerStart kStarts[] = {{"llama-server"},
                                   {"llama serve"},
                                   {"ghcr.io/ggml-org/llama.cpp", true},
                                   {"ghcr.io/ggerganov/llama.cpp", true}};

}  // namespace

constexpr ServerArguments kLlamaCppArguments = {.policy = "llama_cpp",
                                                .title = "llama-server",
                                                .rows = kServerArguments,
                                                .has_own_names = true,
                                                .has_negations = true,
                                                .model = "model",
                                                .starts = kStarts,
                                                .variable_prefix = "LLAMA_",
                                                .derived = kDerived,
                                                .derive = derive};

}  // namespace metronome
