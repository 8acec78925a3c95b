// SPDX-License-Identifier: Apache-2.0
// The figures of the terminal's blocks and of other tables.
#include <span>
#include <string_view>

#include "core/metrics/figures.h"

namespace metronome {
namespace {

constexpr std::string_view kCadence[] = {"mean_itl_jitter_ms", "p99_itl_jitter_ms",
                                         "longest_stall_ms"};
constexpr std::string_view kAnswerRates[] = {"decode_rate_during_prefill",
                                         "slowest_10s_output_throughput"};
constexpr std::string_view kThroughput[] = {"duration",          "request_throughput",
                                            "output_throughput", "total_token_throughput",
                                            "request_goodput",   "slo_attainment"};
constexpr std::string_view kCost[] = {"gpu_hours", "output_tokens_per_s_per_gpu",
                                      "output_tokens_per_s_per_user",
                                      "cost_per_million_output_tokens", "cost_per_million_tokens"};
constexpr std::string_view kDeviceUse[] = {"num_steps",   "mean_batch_tokens", "busy_share",
                                        "mean_kv_use", "peak_kv_use",       "prefix_hit_rate",
                                        "replica_imbalance", "mean_replicas"};
constexpr std::string_view kDrafts[] = {
    "spec_decode_acceptance_length", "spec_decode_acceptance_rate", "tokens_per_decode",
    "wasted_draft_tokens",           "p50_itl_per_token_ms",        "p99_itl_per_token_ms"};
constexpr std::string_view kRequests[] = {"completed", "refused", "never_fits", "other_failed",
                                         "retried"};
constexpr std::string_view kQueueing[] = {"mean_running", "mean_waiting", "peak_waiting",
                                       "num_preemptions", "mean_front_end_ms"};

constexpr FigureBlock kBlocks[] = {
    {.title = "cadence, ms", .keys = kCadence},
    {.title = "answers, tok/s", .keys = kAnswerRates, .needs = "num_steps"},
    {.title = "throughput", .keys = kThroughput},
    {.title = "cost", .keys = kCost, .needs = "price_per_gpu_hour"},
    {.title = "device", .keys = kDeviceUse, .needs = "num_steps", .needs_all = true},
    {.title = "drafts", .keys = kDrafts, .needs = "spec_decode_num_drafts"},
    {.title = "requests", .keys = kRequests},
    {.title = "queue", .keys = kQueueing, .needs = "num_steps", .needs_all = true}};

constexpr std::string_view kSweep[] = {"p50_ttft_ms",      "p99_ttft_ms",
                                       "p50_itl_ms",       "p99_itl_ms",
                                       "longest_stall_ms", "decode_rate_during_prefill",
                                       "mean_tpot_ms",     "output_throughput",
                                       "request_goodput",  "cost_per_million_output_tokens"};
constexpr std::string_view kReport[] = {"p50_ttft_ms",
                                        "p99_ttft_ms",
                                        "p50_itl_ms",
                                        "p99_itl_ms",
                                        "max_itl_ms",
                                        "decode_rate_during_prefill",
                                        "slowest_10s_output_throughput",
                                        "request_throughput",
                                        "output_throughput",
                                        "request_goodput",
                                        "slo_attainment",
                                        "completed",
                                        "failed",
                                        "num_preemptions",
                                        "busy_share",
                                        "cost_per_million_output_tokens"};
constexpr std::string_view kMap[] = {"p99_itl_ms",
                                     "max_itl_ms",
                                     "p50_itl_ms",
                                     "p99_ttft_ms",
                                     "slo_attainment",
                                     "request_goodput",
                                     "output_throughput",
                                     "output_tokens_per_s_per_user",
                                     "cost_per_million_output_tokens"};
constexpr std::string_view kPoint[] = {"p50_ttft_ms",       "p99_ttft_ms",
                                       "p50_itl_ms",        "p99_itl_ms",
                                       "max_itl_ms",        "decode_rate_during_prefill",
                                       "output_throughput", "request_goodput",
                                       "slo_attainment",    "spec_decode_acceptance_length"};
constexpr std::string_view kPair[] = {"mean_ttft_ms",      "p99_ttft_ms", "p50_itl_ms",
                                      "p99_itl_ms",        "max_itl_ms",  "p99_e2el_ms",
                                      "output_throughput", "duration"};
constexpr std::string_view kRate[] = {"output_throughput", "total_token_throughput",
                                      "request_throughput", "request_goodput"};
constexpr std::string_view kTrial[] = {"slo_attainment",
                                       "request_goodput",
                                       "output_throughput",
                                       "total_token_throughput",
                                       "output_tokens_per_s_per_user",
                                       "output_tokens_per_s_per_gpu",
                                       "cost_per_million_output_tokens",
                                       "p99_ttft_ms",
                                       "mean_itl_ms",
                                       "p50_itl_ms",
                                       "p90_itl_ms",
                                       "p95_itl_ms",
                                       "p99_itl_ms",
                                       "max_itl_ms",
                                       "mean_tpot_ms",
                                       "decode_rate_during_prefill",
                                       "slowest_10s_output_throughput"};
constexpr std::string_view kCapacity[] = {"output_throughput", "p99_ttft_ms",
                                          "p99_itl_ms",        "max_itl_ms",
                                          "mean_tpot_ms",      "cost_per_million_output_tokens"};
constexpr std::string_view kLoad[] = {"slo_attainment",
                                      "p99_ttft_ms",
                                      "p99_itl_ms",
                                      "max_itl_ms",
                                      "decode_rate_during_prefill",
                                      "output_throughput",
                                      "output_tokens_per_s_per_user",
                                      "output_tokens_per_s_per_gpu",
                                      "mean_tpot_ms",
                                      "cost_per_million_output_tokens"};
constexpr std::string_view kWhatIf[] = {"max_itl_ms",
                                        "p99_itl_ms",
                                        "p50_ttft_ms",
                                        "p99_ttft_ms",
                                        "decode_rate_during_prefill",
                                        "output_throughput",
                                        "num_preemptions"};
constexpr std::string_view kValidation[] = {"request_throughput", "output_throughput",
                                            "total_token_throughput"};

}  // namespace

std::span<const FigureBlock> figure_blocks() { return kBlocks; }
std::span<const std::string_view> figures_of(FigureList list) {
  switch (list) {
    case FigureList::Sweep: return kSweep;
    case FigureList::Report: return kReport;
    case FigureList::Map: return kMap;
    case FigureList::Point: return kPoint;
    case FigureList::Pair: return kPair;
    case FigureList::Rate: return kRate;
    case FigureList::Trial: return kTrial;
    case FigureList::Capacity: return kCapacity;
    case FigureList::Load: return kLoad;
    case FigureList::WhatIf: return kWhatIf;
    case FigureList::Validation: return kValidation;
  }
  return {};
}

}  // namespace metronome
