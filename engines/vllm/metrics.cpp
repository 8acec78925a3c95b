// SPDX-License-Identifier: Apache-2.0
// The names of vLLM's metrics. Source: vllm/v1/metrics/loggers.py of vLLM 0.32.0, a page of which
// the tests have, and docs/design/metrics.md for those of earlier versions.
#include "engines/metrics/server_metrics.h"
#include "engines/vllm/product.h"

namespace metronome {
namespace {

using Figure = ServerFigure;

constexpr MetricName kNames[] = {
    {"vllm:num_requests_running", Figure::Running},
    {"vllm:num_requests_waiting", Figure::Waiting},
    {"vllm:kv_cache_usage_perc", Figure::CacheUse},
    {"vllm:gpu_cache_usage_perc", Figure::CacheUse},
    {"vllm:num_preemptions_total", Figure::Preempted},
    {"vllm:prompt_tokens_total", Figure::PromptTokens},
    {"vllm:generation_tokens_total", Figure::OutputTokens},
    {"vllm:prefix_cache_queries_total", Figure::PrefixQueries},
    {"vllm:gpu_prefix_cache_queries_total", Figure::PrefixQueries},
    {"vllm:prefix_cache_hits_total", Figure::PrefixHits},
    {"vllm:gpu_prefix_cache_hits_total", Figure::PrefixHits},
    {"vllm:request_success_total", Figure::Ended},
    {"vllm:time_to_first_token_seconds", Figure::Ttft},
    {"vllm:inter_token_latency_seconds", Figure::Itl},
    {"vllm:time_per_output_token_seconds", Figure::Itl},
    {"vllm:e2e_request_latency_seconds", Figure::E2el},
    {"vllm:request_queue_time_seconds", Figure::QueueTime},
    {"vllm:request_prompt_tokens", Figure::PromptLength},
    {"vllm:request_generation_tokens", Figure::OutputLength}};

}  // namespace

constexpr EngineMetrics kVllmMetrics = {
    .policy = "vllm",
    .title = "vLLM",
    .prefix = "vllm:",
    .names = kNames,
    .rank_label = "engine",
    .cache_info = "vllm:cache_config_info",
    .block_size = "block_size",
    .num_blocks = "num_gpu_blocks",
    .switched_on_by = "vLLM shows it unless it was started with --disable-log-stats."};

}  // namespace metronome
