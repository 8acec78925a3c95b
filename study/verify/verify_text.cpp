// SPDX-License-Identifier: Apache-2.0
// The text that `metronome verify` prints.
#include <fmt/core.h>

#include "core/base/count_text.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "reports/terminal/text.h"
#include "study/verify/verify.h"

namespace metronome {
namespace {

constexpr std::size_t kTextColumn = 12;

std::string mean_text(const Figure& figure, const TurnMean& mean) {
  std::string text = value_text(figure, mean.mean);
  if (mean.low < mean.high) {  // several turns
    text += " (" + value_text(figure, mean.low) + " to " + value_text(figure, mean.high) + ")";
  }
  return text;
}

std::string drift_text(const StepDrift& drift) {
  if (drift.num_compositions == 0) return "there are no iterations of equal work";
  const std::string band = drift.low
                               ? fmt::format(" (95 % band {} to {})", fixed_text(*drift.low, 3),
                                             fixed_text(*drift.high, 3))
                               : "";
  return fmt::format(
      "steps of equal work took {} times as long after as before{}, by {} with {} and {} "
      "iterations: {} and {} of all time in steps",
      fixed_text(drift.ratio, 3), band, count_text(drift.num_compositions, "composition"),
      grouped_text(drift.num_before), grouped_text(drift.num_after),
      percent_text(drift.share_before, 0), percent_text(drift.share_after, 0));
}

std::string figures_text(const Verification& verification) {
  std::vector<std::vector<std::string>> rows = {
      {"figure", "before", "simulated", "promised", "after", "without drift", "error", ""}};
  for (const VerifiedFigure& row : verification.figures) {
    const Figure& figure = *row.figure;
    rows.push_back({column_title(figure), mean_text(figure, row.before),
                    row.simulated_before ? value_text(figure, *row.simulated_before) : "-",
                    row.promised ? value_text(figure, *row.promised) : "-",
                    mean_text(figure, row.after), mean_text(figure, row.without_drift),
                    row.promised ? signed_percent(row.error) : "-",
                    !row.promised ? ""
                    : row.is_kept ? "kept"
                                  : "NOT KEPT"});
  }
  return aligned_rows(rows);
}

std::string limit_text(const Verification& verification) {
  const std::string limit = ms_text(*verification.limit_ms) + " ms";
  if (!verification.longest_ms) return "No gap was measured for the limit of " + limit + ".";
  return "The longest gap without drift is " + ms_text(verification.longest_ms->mean) + " ms: it " +
         (verification.keeps_limit() ? "keeps" : "does not keep") + " the limit of " + limit + ".";
}

std::string verdict_text(const Verification& verification) {
  std::int64_t num_promises = 0;
  std::int64_t num_kept = 0;
  for (const VerifiedFigure& row : verification.figures) {
    num_promises += row.promised ? 1 : 0;
    num_kept += row.promised && row.is_kept ? 1 : 0;
  }
  std::string text =
      verification.came_true() ? "The advice came true" : "The advice did not come true";
  if (num_promises > 0) {
    text += ": " + grouped_text(num_kept) + " of " + count_text(num_promises, "promised figure") +
            " kept within " + percent_text(verification.tolerance, 0);
  }
  return text + ".";
}

void append_mean(const char* key, const TurnMean& mean, JsonText& json) {
  json.key(key).begin_object();
  json.field("mean", mean.mean);
  json.field("low", mean.low);
  json.field("high", mean.high);
  json.end_object();
}

void append_texts(const char* key, const std::vector<std::string>& texts, JsonText& json) {
  json.key(key).begin_array();
  for (const std::string& text : texts) json.value(text);
  json.end_array();
}

void append_drift(const StepDrift& drift, JsonText& json) {
  json.begin_object();
  json.field("ratio", drift.ratio);
  if (drift.low) {
    json.field("low", *drift.low);
    json.field("high", *drift.high);
  }
  json.field("compositions", drift.num_compositions);
  json.field("iterations_before", drift.num_before);
  json.field("iterations_after", drift.num_after);
  json.field("share_of_time_before", drift.share_before);
  json.field("share_of_time_after", drift.share_after);
  json.end_object();
}

void append_number(const char* key, const std::optional<double>& number, JsonText& json) {
  json.key(key);
  number ? json.value(*number) : json.null();
}

}  // namespace

std::string Verification::text(std::size_t columns) const {
  std::string text;
  const auto say = [&](std::string name, const std::string& words) {
    name.resize(kTextColumn, ' ');
    text += name + wrapped(words, kTextColumn, columns);
  };
  for (const std::string& line : before) say("before", line);
  for (const std::string& line : after) say("after", line);
  for (const std::string& line : settings) say("setting", line);
  for (const StepDrift& drift : drifts) say("drift", drift_text(drift));
  for (const std::string& line : remarks) say("remark", line);
  text += "\n" + figures_text(*this) + "\n";
  if (!not_measured.empty()) {
    std::string names;
    for (const std::string& key : not_measured) names += (names.empty() ? "" : ", ") + key;
    text += wrapped("Promised, but not measured on both sides: " + names + ".", 0, columns);
  }
  if (!has_promises()) {
    return text + wrapped(
                      "Nothing was promised: --advice FILE or --promise FIGURE=VALUE says what "
                      "to judge.",
                      0, columns);
  }
  if (limit_ms) text += wrapped(limit_text(*this), 0, columns);
  return text + wrapped(verdict_text(*this), 0, columns);
}

std::string Verification::json() const {
  JsonText json(JsonText::Style::Indented);
  json.begin_object();
  append_texts("before", before, json);
  append_texts("after", after, json);
  append_texts("settings", settings, json);
  append_texts("remarks", remarks, json);
  json.key("drift").begin_array();
  for (const StepDrift& drift : drifts) append_drift(drift, json);
  json.end_array();
  json.field("tolerance", tolerance);
  json.key("figures").begin_array();
  for (const VerifiedFigure& row : figures) {
    json.begin_object();
    json.field("figure", row.figure->key);
    append_mean("before", row.before, json);
    append_number("simulated_before", row.simulated_before, json);
    append_number("promised", row.promised, json);
    append_mean("after", row.after, json);
    append_mean("without_drift", row.without_drift, json);
    if (row.promised) {
      json.field("error", row.error);
      json.field("is_kept", row.is_kept);
    }
    json.end_object();
  }
  json.end_array();
  append_texts("not_measured", not_measured, json);
  append_number("limit_ms", limit_ms, json);
  if (limit_ms && longest_ms) {
    append_mean("longest_gap_ms", *longest_ms, json);
    json.field("keeps_limit", keeps_limit());
  }
  json.key("came_true");
  has_promises() ? json.value(came_true()) : json.null();
  json.end_object();
  json.end_line();
  return std::string(json.view());
}

}  // namespace metronome
