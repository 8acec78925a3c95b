// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/goal_options.h"

#include <optional>

#include "core/scenario/setting.h"

namespace metronome {
namespace {

constexpr RealRange kLimitMs = {0.001, 3.6e6, "milliseconds"};
constexpr RealRange kTokenRate = {1e-6, 1e12, "tokens per second"};

struct GoalOption {
  const char* syntax;
  const char* key;
  std::optional<double> SloConfig::*member;
  const char* help;
  RealRange range;
};
constexpr GoalOption kGoalOptions[] = {
    {"target-itl MS", "slo.itl_ms", &SloConfig::itl_ms,
     "limit of every gap (ITL) in milliseconds (default: slo.itl_ms; the other targets likewise)",
     kLimitMs},
    {"target-itl-share S",
     "slo.itl_share",
     &SloConfig::itl_share,
     "the share of the gaps that is to be within --target-itl: 0.5, 0.9, 0.95, 0.99 or 1",
     {0.5, 1, "gaps"}},
    {"target-longest MS", "slo.longest_gap_ms", &SloConfig::longest_gap_ms,
     "limit of the longest gap, beside a share", kLimitMs},
    {"target-ttft MS", "slo.ttft_ms", &SloConfig::ttft_ms,
     "limit of the TTFT in milliseconds: of the p99, or in tune of each request", kLimitMs},
    {"target-rate TOK/S", "slo.decode_rate", &SloConfig::decode_rate,
     "least tokens per second of a running answer while prompts are computed", kTokenRate},
    {"target-throughput TOK/S", "slo.output_throughput", &SloConfig::output_throughput,
     "least output tokens per second", kTokenRate},
    {"target-cost PRICE",
     "slo.cost_per_million_output_tokens",
     &SloConfig::cost_per_million_output_tokens,
     "most that a million output tokens cost, with price_per_gpu_hour",
     {1e-6, 1e12, "per million output tokens"}}};

}  // namespace

void add_goal_options(SloConfig& goals, OptionList& list) {
  for (const GoalOption& option : kGoalOptions) {
    list.push_back(
        {option.syntax, &(goals.*option.member), option.help, EmptyText::Refused, option.range});
  }
}

std::vector<std::string> goal_assignments(const SloConfig& goals) {
  std::vector<std::string> assignments;
  for (const GoalOption& option : kGoalOptions) {
    const std::optional<double>& given = goals.*option.member;
    if (given) assignments.push_back(Setting{option.key, *given}.text());
  }
  return assignments;
}

}  // namespace metronome
