// SPDX-License-Identifier: Apache-2.0
#include "engines/vllm/product.h"

#include <string_view>

#include "core/engine/scheduler.h"

namespace metronome {
namespace {

constexpr std::string_view kVllmKeys[] = {"version",
                                          "max_num_batched_tokens",
                                          "scheduling_policy",
                                          "enable_chunked_prefill",
                                          "long_prefill_token_threshold",
                                          "long_prefill_token_threshold_adaptive",
                                          "scheduler_reserve_full_isl",
                                          "max_num_active_seqs",
                                          "prefill_schedule_interval",
                                          "disable_chunked_mm_input"};

// The part of the host's time during which the device waits.
constexpr HostGap kVllmHostGap = {
    .us = 400,
    .source =
        "vLLM 0.30: an inter-token latency of 6.86 ms for Qwen3-8B on an H100, batch 1 "
        "(github.com/tgarg01/silybench-data), less the other terms of a roofline"};

constexpr PolicyInfo kVllm = {
    .name = "vllm",
    .summary =
        "running requests in order of admission, then waiting ones, within a "
        "budget",
    .source = "vLLM 0.19 to 0.33, V1 scheduler",
    .keys = kVllmKeys,
    .allows_watermark = true,
    .prefix_caching = PrefixCaching::Optional,
    .allows_sliding_window = true,
    .host_gap = kVllmHostGap,
    .kv_memory = KvMemory::Vllm,
    .cache = {.has_null_block = true},
    .adjust_cache = adjust_vllm_cache,
    .make = make_vllm};

}  // namespace

const PolicyInfo& vllm_policy() { return kVllm; }

}  // namespace metronome
