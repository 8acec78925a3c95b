// SPDX-License-Identifier: Apache-2.0
#include "engines/sglang/product.h"

#include <string_view>

#include "core/engine/scheduler.h"

namespace metronome {
namespace {

constexpr std::string_view kSglangKeys[] = {"schedule_policy",
                                            "chunked_prefill_size",
                                            "max_prefill_tokens",
                                            "enable_mixed_chunk",
                                            "schedule_conservativeness",
                                            "init_new_token_ratio",
                                            "min_new_token_ratio_factor",
                                            "new_token_ratio_decay_steps",
                                            "retract_decode_steps",
                                            "clip_max_new_tokens",
                                            "scheduler_recv_interval",
                                            "prefill_decode_interval",
                                            "prefill_decode_interval_min_bs",
                                            "prefill_max_requests",
                                            "enable_priority_scheduling",
                                            "schedule_low_priority_values_first",
                                            "priority_scheduling_preemption_threshold",
                                            "disable_priority_preemption",
                                            "retraction_policy"};

// The part of the host's time during which the device waits.
constexpr HostGap kSglangHostGap = {
    .source =
        "SGLang 0.4 and later overlap it: no idle GPU between five "
        "decode batches in the Nsight profile "
        "of its announcement (lmsys.org/blog/2024-12-04-sglang-v0-4)"};

constexpr PolicyInfo kSglang = {
    .name = "sglang",
    .summary = "prompts while any can be taken, otherwise decodes; output estimated",
    .source = "SGLang 0.5.23",
    .keys = kSglangKeys,
    .has_token_budget = true,
    .prefix_caching = PrefixCaching::Optional,
    .requires_paged = true,
    .host_gap = kSglangHostGap,
    .kv_memory = KvMemory::Sglang,
    .prompt_graphs = PromptGraphs::All,
    .eager = {.attention_us = 1050},
    .cache = {.uses_radix_tree = true},
    .make = make_sglang};

}  // namespace

const PolicyInfo& sglang_policy() { return kSglang; }

}  // namespace metronome
