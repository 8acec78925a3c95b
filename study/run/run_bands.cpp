// SPDX-License-Identifier: Apache-2.0
#include "study/run/run_bands.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "core/metrics/digest.h"
#include "core/metrics/figures.h"
#include "core/metrics/fleet_figures.h"
#include "core/run/prepared_variant.h"
#include "core/scenario/scenario.h"
#include "sim/virtual_clock.h"
#include "study/run/fleet_records.h"
#include "study/run/variant_run.h"

namespace metronome {
namespace {

// `digest`, if it is not null, gets that of all decisions.
Summary replayed(PreparedVariant& variant, const ProgressFn& progress,
                 std::string* digest = nullptr) {
  std::optional<RunRecorder> recorder;
  std::optional<FleetFigures> figures;
  EventDigest decisions;
  std::vector<EventSink*> sinks;
  if (keeps_steps(variant)) {
    sinks.push_back(
        &recorder.emplace(variant.workload->requests.size(), variant.run->front_end));
  } else {
    sinks.push_back(&figures.emplace(figures_options(variant), nullptr));
  }
  if (digest != nullptr) sinks.push_back(&decisions);
  VirtualClock clock;
  if (!variant.run->run(*variant.workload, clock, sinks, progress).completed) throw Interrupted();
  if (digest != nullptr) *digest = decisions.hex();
  return figures ? figures->finish() : summary_of(variant, recorder->finish());
}

void add_noise_draws(PreparedVariant& variant, const ProgressFn& progress,
                     std::vector<Summary>& draws) {
  const CostModelConfig& config = variant.scenario.cost_model;
  if (config.noise == StepNoise::None) return;
  for (std::int32_t n = 1; n < config.noise_seeds; ++n) {
    variant.run->draw_noise(n);
    draws.push_back(replayed(variant, progress));
  }
  variant.run->draw_noise(0);
}

// Returns how many seeds there are with the run's own, whose decisions have `own_digest`: one where
// another seed decides alike, as nothing is drawn.
std::int64_t add_seeds(Backend& backend, const PreparedVariant& variant,
                       const std::string& own_digest, const ProgressFn& progress,
                       std::vector<Summary>& draws) {
  const std::int64_t num_others = variant.scenario.results.bands;
  for (std::int64_t n = 1; n <= num_others; ++n) {
    Scenario other = variant.scenario;
    other.seed += static_cast<std::uint64_t>(n);
    std::vector<PreparedVariant> prepared = prepare_variants(backend, {std::move(other)});
    std::string digest;
    Summary draw = replayed(prepared.front(), progress, &digest);
    if (n == 1 && digest == own_digest) return 1;
    draws.push_back(std::move(draw));
  }
  return num_others + 1;
}

// First tokens also wait for what steps do not show: hosts, front ends and clients.
void widen_ttft(const Summary& summary, const ErrorBand& error, FigureBands& bands) {
  for (FigureBand& band : bands.figures) {
    const Figure& one = figure(band.key);
    if (one.distribution != "ttft") continue;
    const double value = one.value(summary, {}).as_number();
    band.low = std::fmin(band.low, value * (1 + error.low));
    band.high = std::fmax(band.high, value * (1 + error.high));
  }
}

}  // namespace

std::optional<TimeAccuracy> accuracy_of(const PreparedRun& run, const Summary& summary) {
  const double seconds = static_cast<double>(summary.duration_ns) / kNsPerSecond;
  const double stays = static_cast<double>(summary.completed) * summary.e2el.mean_ms / 1e3;
  return run.accuracy(summary.completed > 0 && seconds > 0 ? stays / seconds : 0);
}

void add_bands(Backend& backend, PreparedVariant& variant, const ProgressFn& progress,
               VariantOutcome& outcome) {
  if (backend.is_measured()) return;
  const Summary& summary = outcome.result.summary;
  std::vector<Summary> draws = {summary};
  add_noise_draws(variant, progress, draws);
  FigureBands& bands = outcome.result.bands;
  if (variant.scenario.results.bands == 0) {
    if (draws.size() > 1) bands = figure_bands(draws);
    return;
  }
  const std::int64_t num_seeds =
      add_seeds(backend, variant, outcome.result.info.digest, progress, draws);
  const std::optional<TimeAccuracy>& accuracy = outcome.result.info.accuracy;
  FigureBand scale = {"step_scale", 1, 1};
  std::vector<FigureBand> steep;
  if (accuracy) {
    scale.low = 1 + accuracy->tpot.low;
    scale.high = 1 + accuracy->tpot.high;
    for (const double factor : {scale.low, scale.high}) {
      variant.run->scale_steps(factor);
      draws.push_back(replayed(variant, progress));
    }
    variant.run->scale_steps(1);
    steep = steep_figures(draws[draws.size() - 2], draws.back(), scale);
  }
  bands = figure_bands(draws);
  bands.num_seeds = num_seeds;
  bands.step_scale = scale;
  bands.steep = std::move(steep);
  if (accuracy) widen_ttft(summary, accuracy->ttft, bands);
}

}  // namespace metronome
