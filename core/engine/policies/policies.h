// SPDX-License-Identifier: Apache-2.0
// The factory functions of all policies, one file each. registry.cpp lists the policies by name.
#pragma once

#include <cstdint>
#include <memory>

namespace metronome {

class Scheduler;
struct SchedulerConfig;
struct SchedulerContext;
struct KvCacheLayout;

std::unique_ptr<Scheduler> make_static(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_continuous(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_chunked(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_token_budget(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_single_prefill(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_slo(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_vllm(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_sarathi(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_orca(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_simple_chunking(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_vllm_prefill_first(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_nano_vllm(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_tensorrt_llm(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_fastgen(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_llama_cpp(const SchedulerContext& context);
std::unique_ptr<Scheduler> make_sglang(const SchedulerContext& context);

// vLLM's rules that depend on its settings; see PolicyInfo::adjust_cache.
void adjust_vllm_cache(const SchedulerConfig& config, std::int32_t max_model_len,
                       KvCacheLayout& layout);

}  // namespace metronome
