// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/client_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "core/config/config_reader.h"
#include "core/engine/front_end.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload_config.h"

namespace metronome {
namespace {

// HTTP, tokenising and hand-over as clients of vLLM 0.30 saw them on an H100. No other host shows
// another one, but for Ray.
constexpr FrontEndConfig kHttpFrontEnd = {.fixed_ms = 4.4, .us_per_prompt_token = 4.9};

constexpr ClientPreset kPresets[] = {
    {.name = "none", .source = "requests reach the engine at once, as in an engine's own log"},
    {.name = "bench",
     .frontend = kHttpFrontEnd,
     .source = "a server's own benchmark beside an H100: the front end was fitted to first tokens "
               "of Qwen3-8B (github.com/tgarg01/silybench-data, CC BY 4.0)"},
    {.name = "inferencex",
     .frontend = kHttpFrontEnd,
     .shortest_share = 0.8,
     .source = "the public InferenceX sweep (github.com/SemiAnalysisAI/InferenceX, Apache-2.0), "
               "--random-range-ratio 0.8; front end of bench"},
    // With equal outputs the clients would stay in step, and first tokens come twice as late as
    // measured. The fewer there are, the nearer they stay: first tokens of 8 to 128 clients of
    // Qwen3-32B on two engines show it.
    {.name = "aiperf",
     .frontend = kHttpFrontEnd,
     .output_scatter = 0.1,
     .full_scatter_clients = 64,
     .source = "NVIDIA's sweeps in silicon_sample.csv of aiconfigurator-core 0.12.0 (Apache-2.0), "
               "whose client was not published; front end of bench"},
    {.name = "ray",
     .frontend = {.fixed_ms = 24.4, .us_per_prompt_token = 4.9},
     .source = "an engine in Ray on an A100, early 2024: fitted to OPT-13B at one request a second "
               "of DistServe's evaluation (github.com/LLMServe/DistServe, Apache-2.0)"},
};

constexpr auto kPresetNames = [] {
  std::array<std::string_view, std::size(kPresets)> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kPresets[i].name;
  return names;
}();

const ClientPreset& preset_of(const ClientConfig& client) {
  return kPresets[static_cast<std::size_t>(client.preset)];
}

// The scatter of a workload's fixed outputs.
double output_scatter(const ClientConfig& client, const ArrivalConfig& arrivals) {
  if (client.output_scatter) return *client.output_scatter;
  const ClientPreset& known = preset_of(client);
  if (arrivals.process != ArrivalProcess::ClosedLoop) return known.output_scatter;
  const auto clients = static_cast<double>(arrivals.concurrency);
  return known.output_scatter *
         std::min(1.0, clients / static_cast<double>(known.full_scatter_clients));
}

void draw_evenly(LengthConfig& length, std::int64_t min, std::int64_t max) {
  length.distribution = LengthDistribution::Uniform;
  length.min = std::max<std::int64_t>(1, min);
  length.max = max;
}

}  // namespace

std::span<const ClientPreset> client_presets() { return kPresets; }

bool ClientConfig::has_front_end() const {
  return preset != 0 || fixed_ms.has_value() || us_per_prompt_token.has_value();
}

void visit_fields(FieldVisitor& visitor, ClientConfig& config) {
  visitor.choice("preset", config.preset, kPresetNames,
                 "a client whose figures are known, for the keys below that are null: none sends "
                 "straight to the engine (docs/guide/workload.md)");
  if (visitor.open_section("frontend",
                           "HTTP, tokenising and hand-over before the engine sees a request")) {
    visitor.optional_number("fixed_ms", config.fixed_ms, 0, 1e6,
                            "of each request, milliseconds; null: that of the preset");
    visitor.optional_number("us_per_prompt_token", config.us_per_prompt_token, 0, 1e6,
                            "microseconds a prompt token; null: that of the preset");
    visitor.close_section();
  }
  visitor.optional_number("shortest_share", config.shortest_share, 0, 1,
                          "fixed lengths of prompts and outputs are drawn from this share of them "
                          "to the whole, evenly; 1: all are whole; null: that of the preset");
  visitor.optional_number("output_scatter", config.output_scatter, 0, 1,
                          "fixed lengths of outputs are drawn from 1 - this to 1 + this times "
                          "them, evenly, where shortest_share is 1; null: that of the preset");
  visitor.integer(
      "distinct_prompts", config.distinct_prompts, 0, 1'000'000'000,
      "fixed lengths of prompts: so many prompts are sent again and again, each request "
      "draws one; a prefix cache may hold all but their last token; 0: all differ");
}

FrontEnd front_end_of(const Scenario& scenario) {
  const ClientConfig& client = scenario.client;
  FrontEndConfig found = scenario.cost_model.frontend;
  if (client.has_front_end()) {
    const FrontEndConfig& known = preset_of(client).frontend;
    found = {client.fixed_ms.value_or(known.fixed_ms),
             client.us_per_prompt_token.value_or(known.us_per_prompt_token)};
  }
  return {std::llround(found.fixed_ms * 1e6), found.us_per_prompt_token * 1e3};
}

WorkloadConfig as_sent(const WorkloadConfig& workload, const ClientConfig& client) {
  const double share = client.shortest_share.value_or(preset_of(client).shortest_share);
  const double scatter = output_scatter(client, workload.arrivals);
  WorkloadConfig sent = workload;
  const auto shorten = [share](LengthConfig& length) {
    const auto shortest = static_cast<std::int64_t>(static_cast<double>(length.value) * share);
    draw_evenly(length, shortest, length.value);
  };
  LengthConfig& output = sent.output_tokens;
  if (output.distribution == LengthDistribution::Fixed) {
    const auto length = static_cast<double>(output.value);
    if (share < 1) {
      shorten(output);
    } else if (scatter > 0) {
      draw_evenly(output, std::llround((1 - scatter) * length),
                  std::llround((1 + scatter) * length));
    }
  }
  LengthConfig& prompt = sent.prompt_tokens;
  if (prompt.distribution != LengthDistribution::Fixed) return sent;
  if (share < 1) {
    shorten(prompt);
  } else if (client.distinct_prompts > 0 && prompt.value > 1 &&
             sent.prefix.kind == PrefixKind::None) {
    sent.prefix.kind = PrefixKind::Groups;
    sent.prefix.num_groups = client.distinct_prompts;
    sent.prefix.prefix_tokens = prompt.value - 1;
    prompt.value = 1;
  }
  return sent;
}

}  // namespace metronome
