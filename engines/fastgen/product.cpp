// SPDX-License-Identifier: Apache-2.0
#include "engines/fastgen/product.h"

#include <string_view>

#include "core/engine/policy.h"
#include "engines/fastgen/settings.h"

namespace metronome {
namespace {

constexpr PolicyInfo kFastgen = {
    .name = "fastgen",
    .summary = "decodes, then whole or split prompts until the step is full",
    .source = "DeepSpeed-FastGen: Dynamic SplitFuse, DeepSpeed-MII 8abdd987",
    .visit = visit_settings_of<FastGenConfig>,
    .has_token_budget = true,
    .make = make_fastgen};

constexpr PolicyInfo kPolicies[] = {kFastgen};

constexpr EngineProduct kProduct = {.name = "fastgen", .policies = kPolicies};

}  // namespace

const EngineProduct& fastgen_product() { return kProduct; }

}  // namespace metronome
