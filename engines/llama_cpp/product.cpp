// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_cpp/product.h"

#include <string_view>

#include "core/engine/scheduler.h"

namespace metronome {
namespace {

constexpr std::string_view kLlamaCppKeys[] = {"n_batch", "cont_batching", "slot_prompt_similarity"};

constexpr PolicyInfo kLlamaCpp = {
    .name = "llama_cpp",
    .summary = "slots that keep their cache, decodes, then prompts up to n_batch tokens",
    .source = "llama.cpp server: slots over one unified KV cache, block_size 1",
    .keys = kLlamaCppKeys,
    .has_token_budget = true,
    .prefix_caching = PrefixCaching::Optional,
    .eager = {0, 0, 0, 0},  // from C++: not measured
    .cache = {.hash_time = HashTime::Commit,
              .duplicates = DuplicateRule::Unlisted,
              .reuses_unhashed_first = true},
    .make = make_llama_cpp};

}  // namespace

const PolicyInfo& llama_cpp_policy() { return kLlamaCpp; }

}  // namespace metronome
