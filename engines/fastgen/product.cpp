// SPDX-License-Identifier: Apache-2.0
#include "engines/fastgen/product.h"

#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/policy.h"
#include "engines/fastgen/settings.h"

namespace metronome {
namespace {

BudgetTerms fastgen_terms(const SchedulerConfig& config) {
  return {.budget = config.settings<FastGenConfig>().max_ragged_batch_size};
}

constexpr PolicyInfo kFastgen = {
    .name = "fastgen",
    .summary = "decodes, then whole or split prompts until the step is full",
    .source = "DeepSpeed-FastGen: Dynamic SplitFuse, DeepSpeed-MII 8abdd987",
    .visit = visit_settings_of<FastGenConfig>,
    .budget_key = "max_ragged_batch_size",
    .budget_terms = fastgen_terms,
    .make = make_fastgen};

constexpr PolicyInfo kPolicies[] = {kFastgen};

constexpr EngineProduct kProduct = {.name = "fastgen", .policies = kPolicies};

}  // namespace

const EngineProduct& fastgen_product() { return kProduct; }

}  // namespace metronome
