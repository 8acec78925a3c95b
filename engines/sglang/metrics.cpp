// SPDX-License-Identifier: Apache-2.0
// The names of SGLang's metrics. Source: python/sglang/srt/metrics/collector.py of the repository
// sgl-project/sglang, and docs.sglang.io/references/production_metrics for earlier versions.
#include "engines/metrics/server_metrics.h"
#include "engines/sglang/product.h"

namespace metronome {
namespace {

using Figure = ServerFigure;

constexpr MetricName kNames[] = {
    {"sglang:num_running_reqs", Figure::Running},
    {"sglang:num_queue_reqs", Figure::Waiting},
    {"sglang:token_usage", Figure::CacheUse},
    {"sglang:cache_hit_rate", Figure::HitRate},
    {"sglang:max_total_num_tokens", Figure::PoolTokens},
    {"sglang:num_retracted_requests_total", Figure::Preempted},
    {"sglang:prompt_tokens_total", Figure::PromptTokens},
    {"sglang:generation_tokens_total", Figure::OutputTokens},
    {"sglang:num_requests_total", Figure::Ended},
    {"sglang:time_to_first_token_seconds", Figure::Ttft},
    {"sglang:inter_token_latency_seconds", Figure::Itl},
    {"sglang:time_per_output_token_seconds", Figure::Itl},
    {"sglang:e2e_request_latency_seconds", Figure::E2el},
    {"sglang:queue_time_seconds", Figure::QueueTime},
    {"sglang:prompt_tokens_histogram", Figure::PromptLength},
    {"sglang:generation_tokens_histogram", Figure::OutputLength}};

constexpr std::string_view kWorkers[] = {"tp_rank", "pp_rank", "moe_ep_rank"};

}  // namespace

constexpr EngineMetrics kSglangMetrics = {
    .policy = "sglang",
    .title = "SGLang",
    .prefix = "sglang:",
    .names = kNames,
    .rank_label = "dp_rank",
    .worker_labels = kWorkers,
    .switched_on_by = "SGLang shows it with --enable-metrics."};

}  // namespace metronome
