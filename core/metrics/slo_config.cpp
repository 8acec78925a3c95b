// SPDX-License-Identifier: Apache-2.0
// The keys of the `slo` section: names, ranges and meaning.
#include "core/metrics/slo_config.h"

#include <algorithm>

#include "core/config/config_limits.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

constexpr double kLeastRate = 1e-6;
constexpr double kMostRate = 1e12;

struct PresetLimits {
  std::string_view name;
  double ttft_ms;
  double tpot_ms;
};

// In the order of SloPreset.
constexpr PresetLimits kPresets[] = {
    {"none", 0, 0},
    {"llama3.1-8b-conversational", 2000, 100},
    {"llama3.1-8b-interactive", 500, 30},
    {"llama2-70b-server", 2000, 200},
    {"llama2-70b-interactive", 450, 40},
    {"llama3.1-405b-server", 6000, 175},
    {"llama3.1-405b-interactive", 4500, 80},
    {"deepseek-r1-server", 2000, 80},
    {"deepseek-r1-interactive", 1500, 15},
    {"gpt-oss-120b-server", 3000, 80},
    {"gpt-oss-120b-interactive", 2000, 20},
};

void choose_preset(FieldVisitor& visitor, SloConfig& config) {
  const std::vector<std::string_view> names = slo_preset_names();
  int chosen = static_cast<int>(config.preset);
  visitor.choice("preset", chosen, names, "MLPerf limits for ttft_ms and tpot_ms");
  const auto preset = static_cast<SloPreset>(chosen);
  if (preset == config.preset) return;
  config.preset = preset;
  config.ttft_ms.reset();
  config.tpot_ms.reset();
  if (preset == SloPreset::None) return;
  config.ttft_ms = kPresets[chosen].ttft_ms;
  config.tpot_ms = kPresets[chosen].tpot_ms;
}

}  // namespace

std::vector<std::string_view> slo_preset_names() {
  std::vector<std::string_view> names;
  for (const PresetLimits& preset : kPresets) names.push_back(preset.name);
  return names;
}

std::span<const RunGoalKey> run_goal_keys() {
  static constexpr RunGoalKey kKeys[] = {
      {"itl_share", &SloConfig::itl_share},
      {"longest_gap_ms", &SloConfig::longest_gap_ms},
      {"decode_rate", &SloConfig::decode_rate},
      {"output_throughput", &SloConfig::output_throughput},
      {"cost_per_million_output_tokens", &SloConfig::cost_per_million_output_tokens}};
  return kKeys;
}

bool SloConfig::limits_any() const {
  const auto has_one = [](const SloConfig& slo) { return slo.has_limit(); };
  return has_limit() || std::any_of(by_class.begin(), by_class.end(), has_one);
}

void visit_fields(FieldVisitor& visitor, SloConfig& config) {
  choose_preset(visitor, config);
  visitor.optional_number("ttft_ms", config.ttft_ms, kShortestLimitMs, kHourMs,
                          "time to first token, milliseconds; null: no limit");
  visitor.optional_number("tpot_ms", config.tpot_ms, kShortestLimitMs, kHourMs,
                          "mean time per output token after the first, milliseconds");
  visitor.optional_number("itl_ms", config.itl_ms, kShortestLimitMs, kHourMs,
                          "every inter-token latency (ITL) of a request, milliseconds");
  visitor.optional_number("e2el_ms", config.e2el_ms, kShortestLimitMs, kHourMs,
                          "arrival to last token, milliseconds");
  visitor.optional_number("itl_share", config.itl_share, 0.5, 1,
                          "goal of a run: the share of all gaps that are within itl_ms: 0.5, 0.9, "
                          "0.95, 0.99, or 1; null: every gap");
  visitor.optional_number("longest_gap_ms", config.longest_gap_ms, kShortestLimitMs, kHourMs,
                          "goal of a run: its longest gap, milliseconds; null: no limit");
  visitor.optional_number("decode_rate", config.decode_rate, kLeastRate, kMostRate,
                          "goal of a run: least tokens per second of a running answer while some "
                          "prompt is computed");
  visitor.optional_number("output_throughput", config.output_throughput, kLeastRate, kMostRate,
                          "goal of a run: least output tokens per second");
  visitor.optional_number("cost_per_million_output_tokens", config.cost_per_million_output_tokens,
                          kLeastRate, kMostRate,
                          "goal of a run: most that a million output tokens cost");
}

}  // namespace metronome
