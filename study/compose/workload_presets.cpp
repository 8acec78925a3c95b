// SPDX-License-Identifier: Apache-2.0
#include "study/compose/scenario_request.h"

namespace metronome {
namespace {

// Limits: docs/guide/choose_slo.md says why.
constexpr WorkloadPreset kPresets[] = {
    {"chat", "people who read along", "1020:4142", "129:601", 0, 1000, 50,
     "median and p99 of the Azure LLM inference trace of 2023, conversation (19,366 requests)"},
    {"rag", "questions over retrieved passages", "4000:8000", "250:800", 300, 2000, 50,
     "an assumption: about eight passages of 450 tokens, a question, and instructions of 300 "
     "tokens that all prompts share"},
    {"long", "conversations over long texts", "6909:85399", "350:1115", 0, 5000, 80,
     "median and p99 of the Mooncake conversation trace (12,031 requests)"},
};

}  // namespace

std::span<const WorkloadPreset> workload_presets() { return kPresets; }

}  // namespace metronome
