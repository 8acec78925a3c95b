// SPDX-License-Identifier: Apache-2.0
#include "reports/measured/formats.h"

#include <array>

#include "engines/benchmark_tool.h"

namespace metronome {
namespace {

using Marks = std::span<const std::string_view>;

// Keys, as the files have them.
constexpr std::array<std::string_view, 2> kSglangMarks = {"\"mean_e2e_latency_ms\"",
                                                          "\"backend\": \"sglang"};
constexpr std::array<std::string_view, 3> kVllmMarks = {"\"endpoint_type\"", "\"ttfts\"",
                                                        "\"burstiness\""};
constexpr std::array<std::string_view, 3> kAiperfMarks = {"\"request_start_ns\"",
                                                          "\"aiperf_version\"", "\"session_num\""};
constexpr std::array<std::string_view, 4> kGuidellmMarks = {
    "\"guidellm_version\"", "guidellm_version:", "\"generative_benchmark\"", "\"decode_times\""};
constexpr std::array<std::string_view, 3> kInferencePerfMarks = {
    "\"load_summary\"", "\"request_metrics\"", "\"output_token_times\""};
constexpr std::array<std::string_view, 3> kLlmperfMarks = {
    "\"inter_token_latency_s\"", "\"results_ttft_s_", "\"mean_input_tokens\""};
constexpr std::array<std::string_view, 3> kGenaiPerfMarks = {
    "\"service_kind\"", "\"time_to_first_token\"", "\"request_throughput\""};

constexpr std::array<std::string_view, 2> kEngineMarks = {"\"world_info\"",
                                                          "\"streaming_metrics\""};

constexpr std::array<MeasuredFormat, 8> kFormats = {{
    {"SGLang's benchmark", "sglang.bench_serving --output-file", Marks(kSglangMarks),
     is_sglang_bench, read_sglang_bench},
    {"vLLM's benchmark", "vllm bench serve --save-result", Marks(kVllmMarks), is_vllm_bench,
     read_vllm_bench},
    {"AIPerf", "aiperf profile", Marks(kAiperfMarks), is_aiperf, read_aiperf},
    {"guidellm", "guidellm benchmark", Marks(kGuidellmMarks), is_guidellm, read_guidellm},
    {"inference-perf", "inference-perf", Marks(kInferencePerfMarks), is_inference_perf,
     read_inference_perf},
    {"llmperf", "token_benchmark_ray.py", Marks(kLlmperfMarks), is_llmperf, read_llmperf},
    {kEngineBenchmark, kEngineBenchmarkCommand, Marks(kEngineMarks), is_engine_benchmark,
     read_engine_benchmark},
    {"genai-perf", "genai-perf profile", Marks(kGenaiPerfMarks), is_genai_perf, read_genai_perf},
}};

}  // namespace

std::span<const MeasuredFormat> measured_formats() { return kFormats; }

}  // namespace metronome
