// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_text.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <iostream>
#include <optional>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "reports/terminal/text.h"
#include "study/calibrate/calibrate_fit.h"
#include "system/file_writer.h"

namespace metronome {
namespace {

std::string hiccup_text(const CalibrationSteps& measured, const StepFit& fit) {
  std::int64_t num_early = 0;
  for (std::size_t i = 0; i < fit.is_hiccup.size(); ++i) {
    num_early += fit.is_hiccup[i] && measured.is_early[i] ? 1 : 0;
  }
  return fmt::format(
      "{} {} left out of the fit, off by more than six deviations of their kind; {} of them among "
      "the first {} of a run",
      count_text(fit.model.num_hiccups, "step"), was_or_were(fit.model.num_hiccups),
      grouped_text(num_early), kNumEarly);
}

std::string gap_text(const std::optional<GapFit>& gap) {
  if (!gap) return "not measured; that of the hardware is used";
  const std::string constant = microseconds_text(gap->constant_ns);
  const std::string growing = microseconds_text(gap->base_ns) + " + " +
                              microseconds_text(gap->chunk_ns) + " for each chunk of the step";
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
  return fmt::format("{}, off by {} on validation steps; of {} forms {} fits best, with {}",
                     fit.model.tokens_shape, percent_text(taken->second, 2), fit.shapes.size(),
                     best->first, percent_text(best->second, 2));
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

std::string replay_text(const std::vector<RecordedStep>& steps) {
  const auto num_whole = std::count_if(
      steps.begin(), steps.end(), [](const RecordedStep& step) { return step.composition != 0; });
  return grouped_text(std::int64_t{num_whole}) + " of " + count_text(std::ssize(steps), "step") +
         " can be replayed; the fit is for the others";
}

}  // namespace

std::string microseconds_text(double ns) { return fixed_text(ns / 1e3, 3) + " us"; }
std::string joined_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + printable(name);
  return text;
}

void report_calibration(const Calibration& calibration, const std::string& out) {
  const CalibrationSteps& measured = calibration.measured;
  const FittedModel& fitted = calibration.fit.model;
  std::string steps = grouped_text(fitted.num_steps) + " of " + joined_names(measured.sources) +
                      "; every fifth is held out";
  if (measured.num_left_out > 0) {
    steps += "; " + grouped_text(measured.num_left_out) +
             " more failed or have decodes that were not recorded";
  }
  say("steps", steps);
  say("measured", fmt::format("{} on {}, tensor parallel size {}", measured.model.name,
                              printable(measured.hardware), measured.tensor_parallel_size));
  if (calibration.kind == FitKind::Replay) say("replay", replay_text(measured.recorded));
  for (const std::string& remark : measured.remarks) say("remark", printable(remark));
  say("hiccups", hiccup_text(measured, calibration.fit));
  say("tokens", shape_text(calibration.fit));
  say("decodes", range_text(fitted.decode_range));
  say("prefill", range_text(fitted.prefill_range));
  say("host gap", gap_text(calibration.gap));
  say("floor", measured.spec
                   ? "no step is faster than " + measured.spec->name + " allows"
                   : "not checked: this hardware is not in the catalogue; --hardware NAME "
                     "selects one that is");
  print_form(fitted.form);
  std::cout << '\n' << step_error_table("held out", fitted.errors);
  const auto worst = static_cast<std::size_t>(fitted.errors.back().worst_step);
  std::cout << "the largest error is that of " << printable(measured.names[worst]) << '\n';
  if (out.empty()) return;
  replace_file(out, calibration.file().to_json());
  std::cout << "\ncost model: " << printable(out) << '\n';
}

}  // namespace metronome
