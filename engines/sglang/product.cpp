// SPDX-License-Identifier: Apache-2.0
#include "engines/sglang/product.h"

#include <string_view>

#include "core/engine/policy.h"
#include "engines/sglang/serve_defaults.h"
#include "engines/sglang/settings.h"

namespace metronome {
namespace {

// The part of the host's time during which the device waits.
constexpr HostGap kSglangHostGap = {
    .source =
        "SGLang 0.4 and later overlap it: no idle GPU between five "
        "decode batches in the Nsight profile "
        "of its announcement (lmsys.org/blog/2024-12-04-sglang-v0-4)"};

std::int32_t receive_interval(const SchedulerConfig& config) {
  return config.settings<SglangConfig>().scheduler_recv_interval;
}

constexpr PolicyInfo kSglang = {
    .name = "sglang",
    .summary = "prompts while any can be taken, otherwise decodes; output estimated",
    .source = "SGLang 0.5.23",
    .visit = visit_settings_of<SglangConfig>,
    .has_token_budget = true,
    .prefix_caching = PrefixCaching::Optional,
    .requires_paged = true,
    .host_gap = kSglangHostGap,
    .kv_memory = KvMemory::Sglang,
    .prompt_graphs = PromptGraphs::All,
    .eager = {.attention_us = 1050},
    .cache = {.uses_radix_tree = true},
    .receive_interval = receive_interval,
    .make = make_sglang};

constexpr PolicyInfo kPolicies[] = {kSglang};

constexpr EngineProduct kProduct = {.name = "sglang",
                                    .policies = kPolicies,
                                    .check_settings = check_sglang_settings,
                                    .serve_defaults = sglang_serve_defaults};

}  // namespace

const EngineProduct& sglang_product() { return kProduct; }

}  // namespace metronome
