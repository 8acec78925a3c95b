// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_fit.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/file_writer.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "reports/terminal/text.h"
#include "sim/fitted/fitted_file.h"
#include "sim/fitted/fitted_fit.h"
#include "sim/replay/replay_file.h"
#include "study/calibrate/calibrate_steps.h"

namespace metronome {
namespace {

std::string us_text(double ns) { return fixed_text(ns / 1e3, 3) + " us"; }
std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + printable(name);
  return text;
}

double predicted_ns(const FittedForm& form, const MeasuredStep& step) {
  double ns = 0;
  for (const StepFeatures& pass : step.passes) ns += form.pass_ns(pass);
  return ns;
}

// A form that is faster than the hardware is wrong there. Or it was fitted to times in another
// unit, of another model or of other hardware.
void check_floor(const CalibrationSteps& measured, const FittedForm& form) {
  constexpr double kRounding = 1;  // floors are whole nanoseconds
  for (std::size_t i = 0; i < measured.floors_ns.size(); ++i) {
    const double ns = predicted_ns(form, measured.steps[i]);
    if (ns + kRounding >= measured.floors_ns[i]) continue;
    throw ConfigError(measured.names[i] + ": the fit predicts " + us_text(ns) + " (measured " +
                      us_text(measured.steps[i].ns) + "), but " + measured.spec->name +
                      " needs at least " + us_text(measured.floors_ns[i]) +
                      "; allowed: times, model and hardware that match");
  }
}

std::string hiccup_text(const CalibrationSteps& measured, const StepFit& fit) {
  std::int64_t num_early = 0;
  for (std::size_t i = 0; i < fit.is_hiccup.size(); ++i) {
    num_early += fit.is_hiccup[i] && measured.is_early[i] ? 1 : 0;
  }
  return count_text(fit.model.num_hiccups, "step") + " " + was_or_were(fit.model.num_hiccups) +
         " left out of the fit, off by more than six deviations of their kind; " +
         grouped_text(num_early) + " of them among the first " + std::to_string(kNumEarly) +
         " of a run";
}

std::string gap_text(const std::optional<GapFit>& gap) {
  if (!gap) return "not measured; that of the hardware is used";
  const std::string constant = us_text(gap->constant_ns);
  const std::string growing =
      us_text(gap->base_ns) + " + " + us_text(gap->chunk_ns) + " for each chunk of the step";
  const bool grows = gap->grows_with_chunks();
  return (grows ? growing : constant) + ", from " + count_text(gap->num_gaps, "gap") +
         "; mean error " + percent_text(grows ? gap->chunk_error : gap->constant_error, 2) +
         " on held-out steps, or with " + (grows ? constant : growing) + " " +
         percent_text(grows ? gap->constant_error : gap->chunk_error, 2);
}

std::string shape_text(const StepFit& fit) {
  const auto by_error = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto best = std::min_element(fit.shapes.begin(), fit.shapes.end(), by_error);
  const auto taken = std::find_if(fit.shapes.begin(), fit.shapes.end(), [&](const auto& shape) {
    return shape.first == fit.model.tokens_shape;
  });
  return fit.model.tokens_shape + ", off by " + percent_text(taken->second, 2) +
         " on validation steps; of " + std::to_string(fit.shapes.size()) + " forms " + best->first +
         " fits best, with " + percent_text(best->second, 2);
}

bool is_near(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max({1.0, std::abs(a), std::abs(b)});
}

// G of the tokens of a pass as parts that add up: what each token costs, and what a pass costs
// more beyond a number of tokens. Consecutive pieces of one line are one.
void add_tokens(const FittedForm& form, std::vector<std::vector<std::string>>& rows) {
  using Piece = FittedForm::Piece;
  const auto end_ns = [](const Piece& piece, double above) {
    return piece.ns + piece.ns_per_token * (above - piece.above);
  };
  std::vector<Piece> pieces;
  for (const Piece& piece : form.tokens) {
    const bool goes_on = !pieces.empty() &&
                         is_near(pieces.back().ns_per_token, piece.ns_per_token) &&
                         is_near(end_ns(pieces.back(), piece.above), piece.ns);
    if (!goes_on) pieces.push_back(piece);
  }
  const auto add = [&rows](const char* name, double ns, const std::string& unit) {
    rows.push_back({name, fixed_text(ns / 1e3, 6), unit});
  };
  const auto count = [](double tokens) { return grouped_text(std::llround(tokens)); };
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    const double before = i == 0 ? 0 : end_ns(pieces[i - 1], piece.above);
    if (!is_near(piece.ns, before)) {
      add("tokens", piece.ns - before,
          i == 0 ? "pass" : "pass of more than " + count(piece.above) + " tokens");
    }
    if (piece.ns_per_token == 0) continue;
    std::string which = i == 0 ? "" : " beyond " + count(piece.above);
    if (i + 1 < pieces.size()) which += " up to " + count(pieces[i + 1].above);
    add("token", piece.ns_per_token, "token of the pass" + which);
  }
  const bool has_none = std::all_of(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.ns == 0 && piece.ns_per_token == 0;
  });
  if (has_none) add("token", 0, "token of the pass");
}

void print_form(const FittedForm& form) {
  std::vector<std::vector<std::string>> rows = {{"part", "us", "for each"}};
  const auto add = [&](const char* name, double ns, const char* unit) {
    rows.push_back({name, fixed_text(ns / 1e3, 6), unit});
  };
  add("graph", form.graph, "pass of decodes");
  add("eager", form.eager, "other pass");
  add_tokens(form, rows);
  add("prefill", form.prefill, "pass with prefill chunks");
  add("pair", form.pair, "query and key of prefill chunks");
  add("chunk", form.chunk, "prefill chunk");
  add("decode", form.decode, "decode");
  add("decode_kv", form.decode_kv, "position that a decode attends to");
  add("head", form.head, "pass with rows of logits");
  add("row", form.row, "row of logits");
  std::cout << '\n' << aligned_rows(rows);
}

std::string range_text(const std::optional<FeatureRange>& range) {
  if (!range) return "none measured";
  const auto span = [&](const char* name, double StepFeatures::*feature) {
    return std::string(name) + " " + grouped_text(std::llround(range->min.*feature)) + "-" +
           grouped_text(std::llround(range->max.*feature));
  };
  std::string text = span("tokens", &StepFeatures::tokens);
  if (range->max.prefill_chunks > 0) {
    if (range->max.pairs > 0) text += ", " + span("pairs", &StepFeatures::pairs);
    text += ", " + span("chunks", &StepFeatures::prefill_chunks);
  }
  if (range->max.decodes > 0) {
    text += ", " + span("decodes", &StepFeatures::decodes);
    if (range->max.decode_kv > 0) text += ", " + span("KV", &StepFeatures::decode_kv);
  }
  return text;
}

CostModelFile file_of(const CalibrationSteps& measured, const FittedModel& fitted, FitKind kind) {
  CostModelFile file;
  file.kind = kind == FitKind::Replay ? "replay" : "fitted";
  file.hardware = measured.hardware;
  file.model = measured.model.name;
  file.tensor_parallel_size = measured.tensor_parallel_size;
  file.engine = measured.engine;
  file.source = "steps of " + joined(measured.sources);
  file.body = std::make_shared<const Json>(
      kind == FitKind::Replay ? replay_body(measured.recorded, fitted, measured.model)
                              : fitted_body(fitted, measured.model));
  return file;
}

// Checks that contexts are known, which tell steps apart, and that all steps come from one run.
void check_replay(const CalibrationSteps& measured) {
  constexpr const char* kAllowedRun =
      "; allowed: the result folder of one run, or one log of iterations with --scenario FILE";
  if (measured.sources.size() > 1) {
    throw UsageError("--kind: replay stores the steps of one run, not of " +
                     std::to_string(measured.sources.size()) + " (" + joined(measured.sources) +
                     ")" + kAllowedRun);
  }
  if (measured.recorded.empty()) {
    throw UsageError("--kind: replay cannot distinguish the steps of " + measured.sources.front() +
                     ": it does not say at which position each chunk began" + kAllowedRun);
  }
}

std::string replay_text(const std::vector<RecordedStep>& steps) {
  const auto num_whole = std::count_if(
      steps.begin(), steps.end(), [](const RecordedStep& step) { return step.composition != 0; });
  return grouped_text(std::int64_t{num_whole}) + " of " + count_text(std::ssize(steps), "step") +
         " can be replayed; the fit is for the others";
}

}  // namespace

void calibrate_from_steps(const FitOptions& options) {
  const CalibrationSteps measured = read_calibration_steps(options.sources, options.setup);
  if (options.kind == FitKind::Replay) check_replay(measured);
  StepFit fit = fit_steps(measured.steps);
  const std::optional<GapFit> gap = fit_gaps(measured.gaps);
  FittedModel& fitted = fit.model;
  if (gap) {
    fitted.host_gap_ns = gap->grows_with_chunks() ? gap->base_ns : gap->constant_ns;
    fitted.host_gap_chunk_ns = gap->grows_with_chunks() ? gap->chunk_ns : 0;
  }
  fitted.knows_contexts = measured.knows_contexts;

  std::string steps = grouped_text(fitted.num_steps) + " of " + joined(measured.sources) +
                      "; every fifth is held out";
  if (measured.num_left_out > 0) {
    steps += "; " + grouped_text(measured.num_left_out) +
             " more failed or have decodes that were not recorded";
  }
  say("steps", steps);
  say("measured", measured.model.name + " on " + printable(measured.hardware) +
                      ", tensor parallel size " + std::to_string(measured.tensor_parallel_size));
  if (options.kind == FitKind::Replay) say("replay", replay_text(measured.recorded));
  for (const std::string& remark : measured.remarks) say("remark", printable(remark));
  say("hiccups", hiccup_text(measured, fit));
  say("tokens", shape_text(fit));
  say("decodes", range_text(fitted.decode_range));
  say("prefill", range_text(fitted.prefill_range));
  say("host gap", gap_text(gap));
  check_floor(measured, fitted.form);
  say("floor", measured.spec
                   ? "no step is faster than " + measured.spec->name + " allows"
                   : "not checked: this hardware is not in the catalogue; --hardware NAME "
                     "selects one that is");
  print_form(fitted.form);
  std::cout << '\n' << step_error_table("held out", fitted.errors);
  const auto worst = static_cast<std::size_t>(fitted.errors.back().worst_step);
  std::cout << "the largest error is that of " << printable(measured.names[worst]) << '\n';
  if (options.out.empty()) return;
  replace_file(options.out, file_of(measured, fitted, options.kind).to_json());
  std::cout << "\ncost model: " << printable(options.out) << '\n';
}

}  // namespace metronome
