// SPDX-License-Identifier: Apache-2.0
#include "engines/fastgen/product.h"

#include <string_view>

#include "core/engine/scheduler.h"

namespace metronome {
namespace {

constexpr std::string_view kFastGenKeys[] = {"max_ragged_batch_size", "max_ragged_sequence_count",
                                             "max_tracked_sequences"};

constexpr PolicyInfo kFastgen = {
    .name = "fastgen",
    .summary = "decodes, then whole or split prompts until the step is full",
    .source = "DeepSpeed-FastGen: Dynamic SplitFuse, DeepSpeed-MII 8abdd987",
    .keys = kFastGenKeys,
    .has_token_budget = true,
    .make = make_fastgen};

}  // namespace

const PolicyInfo& fastgen_policy() { return kFastgen; }

}  // namespace metronome
