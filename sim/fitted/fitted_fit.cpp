// SPDX-License-Identifier: Apache-2.0
#include "sim/fitted/fitted_fit.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "core/base/distribution.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "sim/cost/least_squares.h"

namespace metronome {
namespace {

constexpr std::uint64_t kNumFolds = 5;
constexpr std::uint64_t kHeldOut = 0;
constexpr std::uint64_t kValidation = 1;  // the fold that chooses the form of G
constexpr std::size_t kMaxStepsToChoose = 6'000;
constexpr std::size_t kMaxKnots = 64;
constexpr std::size_t kMinPassesPerKnot = 3;

std::uint64_t fold_of(std::size_t position) { return mix64(position) % kNumFolds; }

// How G grows between multiples of `tile` tokens. Tile 0: between powers of two from 16.
struct TokenShape {
  bool is_stairs = false;
  std::int64_t tile = 0;
  bool is_line = false;

  std::string name() const {
    if (is_line) return "a line";
    const std::string growth = is_stairs ? "steps" : "ramps";
    return growth + (tile == 0 ? " at powers of two" : fmt::format(" of {} tokens", tile));
  }
};

// Ordered from simple to detailed.
const std::vector<TokenShape>& token_shapes() {
  static const std::vector<TokenShape> shapes = [] {
    std::vector<TokenShape> all = {{.is_line = true}, {}};
    for (const std::int64_t tile : {512, 256, 128, 64}) all.push_back({false, tile, false});
    for (const std::int64_t tile : {512, 256, 128, 64, 32, 16}) all.push_back({true, tile, false});
    return all;
  }();
  return shapes;
}

// The greatest multiple of the tile, or the greatest power of two, below `tokens`.
double edge_below(const TokenShape& shape, double tokens) {
  if (shape.is_line) return 0;
  if (shape.tile > 0) {
    const auto tile = static_cast<double>(shape.tile);
    return tile * (std::ceil(tokens / tile) - 1);
  }
  double edge = 16;
  if (tokens <= edge) return 0;
  while (edge * 2 < tokens) edge *= 2;
  return edge;
}

// Tokens where G may bend or step up: edges with passes beyond them. Ramps begin at 0. The
// constants include what stairs have before the first edge.
std::vector<double> find_knots(const TokenShape& shape, const std::vector<MeasuredStep>& steps,
                               const std::vector<std::size_t>& chosen) {
  std::map<double, std::size_t> counts;
  for (const std::size_t i : chosen) {
    for (const StepFeatures& pass : steps[i].passes) ++counts[edge_below(shape, pass.tokens)];
  }
  std::vector<double> knots = {0};
  bool is_first = true;
  for (const auto& [edge, count] : counts) {
    if (!std::exchange(is_first, false) && count >= kMinPassesPerKnot) knots.push_back(edge);
  }
  if (shape.is_stairs) knots.erase(knots.begin());
  return knots;
}

// The columns of the design before the columns of G.
enum Column : std::size_t {
  kGraph,
  kEager,
  kPrefill,
  kPair,
  kChunk,
  kDecode,
  kDecodeKv,
  kHead,
  kRow,
  kNumColumns,
};

class Design {
 public:
  Design(const TokenShape& shape, std::vector<double> knots, bool has_head)
      : shape_(shape), knots_(std::move(knots)), has_head_(has_head) {}

  std::size_t num_columns() const { return kNumColumns + knots_.size(); }

  std::vector<double> row(const MeasuredStep& step) const {
    std::vector<double> row(num_columns());
    for (const StepFeatures& pass : step.passes) {
      row[pass.is_graph ? kGraph : kEager] += 1;
      row[kPrefill] += pass.prefill_chunks > 0 ? 1 : 0;
      row[kPair] += pass.pairs;
      row[kChunk] += pass.prefill_chunks;
      row[kDecode] += pass.decodes;
      row[kDecodeKv] += pass.decode_kv;
      row[kHead] += has_head_ && pass.rows > 0 ? 1 : 0;
      row[kRow] += pass.rows;
      for (std::size_t k = 0; k < knots_.size(); ++k)
        row[kNumColumns + k] += growth(k, pass.tokens);
    }
    return row;
  }

  FittedForm form(const std::vector<double>& x, double max_tokens) const {
    FittedForm form;
    form.graph = x[kGraph];
    form.eager = x[kEager];
    form.prefill = x[kPrefill];
    form.pair = x[kPair];
    form.chunk = x[kChunk];
    form.decode = x[kDecode];
    form.decode_kv = x[kDecodeKv];
    form.head = x[kHead];
    form.row = x[kRow];
    if (shape_.is_stairs) form.tokens.push_back({});
    double ns = 0;
    for (std::size_t k = 0; k < knots_.size(); ++k) {
      const double coefficient = x[kNumColumns + k];
      if (shape_.is_stairs) {
        ns += coefficient;
        form.tokens.push_back({knots_[k], ns, 0});
      } else {
        if (k > 0) ns += x[kNumColumns + k - 1] * (knots_[k] - knots_[k - 1]);
        form.tokens.push_back({knots_[k], ns, coefficient});
      }
    }
    // Beyond all measured passes G grows in proportion to the tokens.
    const double greatest = form.tokens_ns(max_tokens);
    form.tokens.push_back({max_tokens, greatest, greatest / max_tokens});
    return form;
  }

 private:
  double growth(std::size_t k, double tokens) const {
    if (shape_.is_stairs) return tokens > knots_[k] ? 1 : 0;
    const double end = k + 1 < knots_.size() ? knots_[k + 1] : tokens;
    return std::max(0.0, std::min(tokens, end) - knots_[k]);
  }

  TokenShape shape_;
  std::vector<double> knots_;
  bool has_head_;
};

// Decodes, prefill chunks or both. Times within a group scatter alike.
int group_of(const MeasuredStep& step) {
  bool has_decodes = false;
  bool has_prefill = false;
  for (const StepFeatures& pass : step.passes) {
    has_decodes = has_decodes || pass.decodes > 0;
    has_prefill = has_prefill || pass.prefill_chunks > 0;
  }
  return has_prefill ? (has_decodes ? 2 : 1) : 0;
}

double predict(const FittedForm& form, const MeasuredStep& step) {
  double ns = 0;
  for (const StepFeatures& pass : step.passes) ns += form.pass_ns(pass);
  return ns;
}

std::int32_t regime_order(const MeasuredStep& step) {
  double tokens = 0;
  double decodes = 0;
  for (const StepFeatures& pass : step.passes) {
    tokens += pass.tokens;
    decodes += pass.decodes;
  }
  const auto num_steps = static_cast<double>(step.num_steps);
  return step_regime_order({.prefill = std::llround(std::ceil((tokens - decodes) / num_steps)),
                            .decode = std::llround(decodes / num_steps)});
}

struct ShapeFit {
  FittedForm form;
  RelativeFit fit;  // its rows are the chosen steps
};

ShapeFit fit_design(const Design& design, const std::vector<MeasuredStep>& steps,
                    const std::vector<std::size_t>& chosen) {
  DesignMatrix matrix{design.num_columns(), {}};
  std::vector<double> times;
  std::vector<int> groups;
  double max_tokens = 0;
  for (const std::size_t i : chosen) {
    matrix.add_row(design.row(steps[i]));
    times.push_back(steps[i].ns);
    groups.push_back(group_of(steps[i]));
    for (const StepFeatures& pass : steps[i].passes) max_tokens = std::max(max_tokens, pass.tokens);
  }
  ShapeFit result;
  result.fit = fit_relative(matrix, times, groups);
  result.form = design.form(result.fit.coefficients, max_tokens);
  return result;
}

// Mean absolute error. A single error counts as at most 0.5, the error of a hiccup twice as long as
// predicted.
double mean_error(const FittedForm& form, const std::vector<MeasuredStep>& steps,
                  const std::vector<std::size_t>& chosen) {
  constexpr double kMost = 0.5;
  double sum = 0;
  for (const std::size_t i : chosen) {
    sum += std::min(kMost, std::abs(predict(form, steps[i]) / steps[i].ns - 1));
  }
  return sum / static_cast<double>(chosen.size());
}

// Errors below this count as equal.
constexpr double kExact = 1e-4;

struct Choice {
  std::vector<std::pair<std::string, double>> shapes;  // StepFit::shapes
  std::vector<Design> designs;                         // one per shape
  std::size_t taken = 0;

  double error() const { return shapes[taken].second; }
};

// The simplest shape whose validation error is near the lowest.
Choice choose_shape(const std::vector<MeasuredStep>& steps,
                    const std::vector<std::size_t>& training,
                    const std::vector<std::size_t>& fitted,
                    const std::vector<std::size_t>& validation, bool has_head) {
  Choice choice;
  for (const TokenShape& shape : token_shapes()) {
    std::vector<double> knots = find_knots(shape, steps, training);
    if (knots.size() > kMaxKnots) continue;  // too many for a fit
    choice.designs.emplace_back(shape, std::move(knots), has_head);
    const FittedForm form = fit_design(choice.designs.back(), steps, fitted).form;
    choice.shapes.emplace_back(shape.name(), mean_error(form, steps, validation));
  }
  const auto by_error = [](const auto& a, const auto& b) { return a.second < b.second; };
  const double best =
      std::min_element(choice.shapes.begin(), choice.shapes.end(), by_error)->second;
  const double most = kSimplerIsBetter * std::max(best, kExact);
  const auto taken = std::find_if(choice.shapes.begin(), choice.shapes.end(),
                                  [&](const auto& shape) { return shape.second <= most; });
  choice.taken = static_cast<std::size_t>(taken - choice.shapes.begin());
  return choice;
}

// Knots come from all of `training`. The designs are compared on a part of it, where a coefficient
// without steps is 0. The design has a head term only if some pass lacks rows and the term predicts
// better.
Design choose_design(const std::vector<MeasuredStep>& steps,
                     const std::vector<std::size_t>& training, StepFit& result) {
  std::vector<std::size_t> fitted;
  std::vector<std::size_t> validation;
  const std::size_t stride = (training.size() + kMaxStepsToChoose - 1) / kMaxStepsToChoose;
  for (const std::size_t i : training) {
    if (mix64(mix64(i)) % stride != 0) continue;
    (fold_of(i) == kValidation ? validation : fitted).push_back(i);
  }
  Choice choice = choose_shape(steps, training, fitted, validation, false);
  const auto lacks_rows = [&](std::size_t i) {
    return std::any_of(steps[i].passes.begin(), steps[i].passes.end(),
                       [](const StepFeatures& pass) { return pass.rows == 0; });
  };
  if (std::any_of(fitted.begin(), fitted.end(), lacks_rows)) {
    Choice with_head = choose_shape(steps, training, fitted, validation, true);
    if (choice.error() > kSimplerIsBetter * std::max(with_head.error(), kExact)) {
      choice = std::move(with_head);
    }
  }
  result.shapes = choice.shapes;
  result.model.tokens_shape = choice.shapes[choice.taken].first;
  return choice.designs[choice.taken];
}

void find_ranges(const std::vector<MeasuredStep>& steps, FittedModel& model) {
  for (const MeasuredStep& step : steps) {
    for (const StepFeatures& pass : step.passes) {
      auto& range = pass.prefill_chunks > 0 ? model.prefill_range : model.decode_range;
      if (!range) range = FeatureRange{pass, pass};
      range->include(pass);
    }
  }
}

// Sets which batches of decodes run as graphs, and the cost of a kind of pass that never ran.
void complete_constants(const std::vector<MeasuredStep>& steps, FittedForm& form) {
  bool has_graph = false;
  bool has_eager = false;
  bool has_eager_decodes = false;
  double max_graph = 0;
  for (const MeasuredStep& step : steps) {
    for (const StepFeatures& pass : step.passes) {
      (pass.is_graph ? has_graph : has_eager) = true;
      if (pass.is_graph) max_graph = std::max(max_graph, pass.decodes);
      if (!pass.is_graph && pass.prefill_chunks == 0) has_eager_decodes = true;
    }
  }
  if (has_eager_decodes) form.max_graph_decodes = std::llround(max_graph);
  if (!has_graph) form.graph = form.eager;
  if (!has_eager) form.eager = form.graph;
}

std::vector<StepScatter> find_scatter(const std::vector<MeasuredStep>& steps,
                                      const FittedForm& form) {
  std::map<std::int32_t, std::vector<double>> ratios;
  for (const MeasuredStep& step : steps) {
    const double predicted = predict(form, step);
    if (predicted > 0) ratios[regime_order(step)].push_back(step.ns / predicted);
  }
  std::vector<StepScatter> result;
  for (auto& [order, list] : ratios) {
    std::sort(list.begin(), list.end());
    StepScatter scatter{step_regime_of_order(order), {}};
    for (const double share : StepScatter::kShares) {
      scatter.ratios.push_back(sorted_quantile(list, share));
    }
    result.push_back(std::move(scatter));
  }
  return result;
}

}  // namespace

bool is_held_out(std::size_t position) { return fold_of(position) == kHeldOut; }

StepFit fit_steps(const std::vector<MeasuredStep>& steps) {
  METRONOME_CHECK(steps.size() >= kMinSteps, "enough steps to fit to and to hold out");
  StepFit result;
  std::vector<std::size_t> training;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!is_held_out(i)) training.push_back(i);
  }
  ShapeFit fit = fit_design(choose_design(steps, training, result), steps, training);
  FittedModel& model = result.model;
  model.form = std::move(fit.form);
  complete_constants(steps, model.form);
  find_ranges(steps, model);
  model.num_steps = static_cast<std::int64_t>(steps.size());
  result.is_hiccup.assign(steps.size(), false);
  for (std::size_t k = 0; k < training.size(); ++k) {
    result.is_hiccup[training[k]] = fit.fit.is_hiccup[k];
    model.num_hiccups += fit.fit.is_hiccup[k] ? 1 : 0;
  }
  RegimeErrors errors;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!is_held_out(i)) continue;
    errors.add(step_regime_of_order(regime_order(steps[i])), steps[i].ns,
               predict(model.form, steps[i]), static_cast<std::int64_t>(i));
  }
  model.errors = errors.summaries();
  model.scatter = find_scatter(steps, model.form);
  return result;
}

bool GapFit::grows_with_chunks() const {
  return constant_error > kSimplerIsBetter * std::max(chunk_error, kExact);
}

std::optional<GapFit> fit_gaps(const std::vector<MeasuredGap>& gaps) {
  if (gaps.size() < kMinGaps) return std::nullopt;
  DesignMatrix constant{1, {}};
  DesignMatrix linear{2, {}};
  std::vector<double> times;
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    if (is_held_out(i)) continue;
    constant.values.push_back(1);
    linear.values.insert(linear.values.end(), {1, gaps[i].num_chunks});
    times.push_back(gaps[i].ns);
  }
  const std::vector<int> groups(times.size(), 0);
  const std::vector<double> a = fit_relative(constant, times, groups).coefficients;
  const std::vector<double> b = fit_relative(linear, times, groups).coefficients;
  GapFit fit{.num_gaps = gaps.size(), .constant_ns = a[0], .base_ns = b[0], .chunk_ns = b[1]};
  double num_held_out = 0;
  for (std::size_t i = 0; i < gaps.size(); ++i) {
    if (!is_held_out(i)) continue;
    num_held_out += 1;
    fit.constant_error += std::abs(a[0] / gaps[i].ns - 1);
    fit.chunk_error += std::abs((b[0] + b[1] * gaps[i].num_chunks) / gaps[i].ns - 1);
  }
  fit.constant_error /= num_held_out;
  fit.chunk_error /= num_held_out;
  return fit;
}

}  // namespace metronome
