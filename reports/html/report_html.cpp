// SPDX-License-Identifier: Apache-2.0
#include "reports/html/report_html.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/metrics/figures.h"
#include "reports/files/engine_limits.h"
#include "reports/files/variant_result.h"
#include "reports/html/report_answer.h"
#include "reports/html/report_bands.h"
#include "reports/html/report_groups.h"

namespace metronome {

// The files of reports/html and D3, embedded in the program.
extern const std::string_view kPageHead;
extern const std::string_view kReportTemplate;
extern const std::string_view kAnswerTemplate;
extern const std::string_view kReportStyle;
extern const std::string_view kD3Script;
extern const std::string_view kReportBaseScript;
extern const std::string_view kReportPlotScript;
extern const std::string_view kReportTimelineScript;
extern const std::string_view kReportDistributionScript;
extern const std::string_view kReportStepsScript;
extern const std::string_view kReportRequestsScript;
extern const std::string_view kReportTableScript;
extern const std::string_view kReportComparisonScript;
extern const std::string_view kReportUsersScript;
extern const std::string_view kReportDraftsScript;
extern const std::string_view kReportHeatMapScript;
extern const std::string_view kReportReplicasScript;
extern const std::string_view kReportConclusionScript;
extern const std::string_view kReportMeasuredScript;
extern const std::string_view kReportMainScript;

namespace {

// With more runs than this, details are collapsed.
constexpr std::size_t kMaxListed = 12;
constexpr std::size_t kMaxNames = 3;  // in a sentence

// As in result.json: 500, not 500.0.
std::string shortest_text(double number) {
  JsonText text;
  text.value(number);
  return std::string(text.view());
}

// JSON inside a script element: no '<' that could end it, and no control that reorders its texts.
std::string script_json(std::string_view text) {
  std::string safe;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') {
      safe += "\\u003c";
    } else if (const std::size_t length = bidi_control_length(text.substr(i))) {
      safe += "\xef\xbf\xbd";  // U+FFFD, the replacement character
      i += length - 1;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

// The figures that at least one run has.
std::vector<const Figure*> table_columns(std::span<const ReportRun> runs) {
  std::vector<const Figure*> columns;
  for (const std::string_view key : figures_of(FigureList::Report)) {
    const bool is_there = std::any_of(runs.begin(), runs.end(), [key](const ReportRun& run) {
      return std::isfinite(run.result.figures.number(key));
    });
    if (is_there) columns.push_back(&figure(key));
  }
  return columns;
}

bool begins_group(std::span<const Figure* const> columns, std::size_t i) {
  return i == 0 || columns[i]->shown.block != columns[i - 1]->shown.block;
}

// The class that keeps a group of columns apart from the one before.
std::string group_class(std::span<const Figure* const> columns, std::size_t i) {
  return begins_group(columns, i) ? " class=\"first\"" : "";
}

std::string table_head(std::span<const Figure* const> columns) {
  std::string groups = "<tr><th></th>";
  std::string titles = "<tr><th scope=\"col\">run</th>";
  for (std::size_t i = 0; i < columns.size();) {
    std::size_t end = i;
    while (end < columns.size() && !(end > i && begins_group(columns, end))) {
      titles += "<th scope=\"col\"" + group_class(columns, end) + ">" +
                html_text(columns[end]->shown.name) + "</th>";
      ++end;
    }
    groups += fmt::format("<th scope=\"colgroup\" colspan=\"{}\"{}>{}</th>", end - i,
                          group_class(columns, i), html_text(columns[i]->shown.block));
    i = end;
  }
  return "<thead>" + groups + "</tr>\n" + titles + "</tr></thead>\n";
}

std::string summary_table(std::span<const ReportRun> runs) {
  const std::vector<const Figure*> columns = table_columns(runs);
  std::string html = "<table class=\"summary\">\n" + table_head(columns) + "<tbody>\n";
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const ResultContent& result = runs[i].result;
    html +=
        fmt::format("<tr><th scope=\"row\" data-run=\"{}\">{}</th>", i, html_text(runs[i].name));
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const Figure& column = *columns[c];
      const double number = result.figures.number(column.key) * column.shown.scale;
      html += "<td data-key=\"" + column.key + "\"" + group_class(columns, c) + ">" +
              grouped_text(number, column.shown.decimals) + band_html(result.bands, column) +
              "</td>";
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

std::string limits_text(const SloConfig& slo) {
  std::string text;
  const auto limit = [&text](const char* name, const std::optional<double>& ms) {
    if (!ms) return;
    text += (text.empty() ? "" : ", ") + std::string(name) + " <= " + shortest_text(*ms) + " ms";
  };
  limit("TTFT", slo.ttft_ms);
  limit("TPOT", slo.tpot_ms);
  limit("every ITL", slo.itl_ms);
  limit("E2EL", slo.e2el_ms);
  return text;
}

// Empty: unknown, as of the result of a benchmark's client.
std::string seed_text(const RunInfo& info) {
  return info.seed ? std::to_string(*info.seed) : std::string();
}

// One line of facts; facts common to all runs appear once.
std::string facts(std::span<const ReportRun> runs) {
  std::string html = "<dl class=\"facts\">";
  const auto add = [&](const char* name, auto text_of) {
    std::string value = text_of(runs.front().result.info);
    const bool is_shared = std::all_of(runs.begin(), runs.end(), [&](const ReportRun& other) {
      return text_of(other.result.info) == value;
    });
    if (!is_shared) value = "differs by run";
    if (value.empty()) return;
    html += "<div><dt>" + std::string(name) + "</dt><dd>" + html_text(value) + "</dd></div>";
  };
  add("model", [](const RunInfo& info) { return info.model; });
  add("hardware", [](const RunInfo& info) { return info.hardware; });
  add("backend", [](const RunInfo& info) { return info.backend; });
  add("seed", seed_text);
  add("requests", [](const RunInfo& info) { return grouped_text(info.num_prompts); });
  add("SLO", [](const RunInfo& info) { return limits_text(info.slo); });
  html += fmt::format("<div><dt>runs</dt><dd>{}</dd></div>", runs.size());
  return html + "</dl>\n";
}

std::string formula_list(const ResultContent& result) {
  std::string html = "<dl class=\"formulas\">\n";
  for (const Formula& formula : formulas_of(result)) {
    html += "<dt>" + html_text(formula.name) + "</dt><dd>" + html_text(formula.text) + "</dd>\n";
  }
  return html + "</dl>\n";
}

std::string run_details(std::span<const ReportRun> runs) {
  const bool is_long = runs.size() > kMaxListed;
  std::string html;
  if (is_long) {
    html = fmt::format("<details><summary>seeds, digests and configurations of {} runs</summary>\n",
                       runs.size());
  }
  html +=
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Seeds and digests\">\n"
      "<table class=\"digests\"><thead><tr><th scope=\"col\">run</th>"
      "<th scope=\"col\">backend</th><th scope=\"col\">policy</th><th scope=\"col\">seed</th>"
      "<th scope=\"col\">digest</th><th scope=\"col\">output digest</th></tr></thead>\n<tbody>\n";
  for (const ReportRun& run : runs) {
    const RunInfo& info = run.result.info;
    html += "<tr><th scope=\"row\">" + html_text(run.name) + "</th>";
    for (const std::string& text : {info.backend, info.policy, seed_text(info)}) {
      html += "<td>" + html_text(text) + "</td>";
    }
    for (const std::string* text : {&info.digest, &info.output_digest}) {
      html += "<td><code>" + html_text(*text) + "</code></td>";
    }
    html += "</tr>\n";
  }
  html += "</tbody></table>\n</div>\n";
  for (const ReportRun& run : runs) {
    const Json& config = run.result.info.config;
    if (config.is_null()) continue;
    html += "<details><summary>resolved configuration of " + html_text(run.name) +
            "</summary><pre>" + html_text(config.dump({.indent = 2, .replaces_bad_utf8 = true})) +
            "</pre></details>\n";
  }
  if (is_long) html += "</details>\n";
  return html;
}

std::string note_list(const std::vector<std::string>& notes) {
  if (notes.empty()) return {};
  std::string html = "<ul class=\"notes\">";
  for (const std::string& note : notes) html += "<li>" + html_text(note) + "</li>";
  return html + "</ul>\n";
}

// The part of the table of figures that scripts show. `better`: 1: more; -1: less; 0: neither.
void append_figure_table(JsonText& json) {
  json.key("figures").begin_object();
  for (const Figure& figure : all_figures()) {
    const ShownFigure& shown = figure.shown;
    if (shown.name.empty()) continue;
    json.key(figure.key).begin_object();
    json.field("words", shown.words.empty() ? shown.name : shown.words);
    json.field("unit", shown.unit);
    json.field("block", shown.block);
    json.field("decimals", shown.decimals == kByLargest ? 1 : shown.decimals);
    json.field("scale", shown.scale);
    json.field("better", shown.better == Better::Higher  ? 1
                         : shown.better == Better::Lower ? -1
                                                         : 0);
    json.end_object();
  }
  json.end_object();
  constexpr std::pair<std::string_view, FigureList> kLists[] = {{"map", FigureList::Map},
                                                                {"point", FigureList::Point},
                                                                {"pair", FigureList::Pair},
                                                                {"rate", FigureList::Rate}};
  json.key("lists").begin_object();
  for (const auto& [name, list] : kLists) {
    json.key(name).begin_array();
    for (const std::string_view key : figures_of(list)) json.value(key);
    json.end_array();
  }
  json.end_object();
}

std::string report_data(const ReportText& text, std::span<const ReportRun> runs) {
  JsonText json;
  json.begin_object();
  json.field("title", text.title);
  json.key("runs").begin_array();
  for (const ReportRun& run : runs) {
    json.begin_object();
    json.field("name", run.name);
    json.key("result").begin_object();
    append_result_fields(run.result, json);
    json.end_object();
    json.field("is_selected", run.is_selected);
    json.key("detail").raw(run.detail_json.empty() ? "null" : run.detail_json);
    json.end_object();
  }
  json.end_array();
  append_figure_table(json);
  json.end_object();
  return script_json(json.view());
}

std::string answer_section(std::span<const TextBlock> answer) {
  if (answer.empty()) return {};
  return "<section id=\"answer\">\n<h2>Answer</h2>\n" + answer_html(answer) + "</section>\n";
}

// Replaces each {{name}} of the template.
std::string fill(std::string_view page, const std::map<std::string_view, std::string>& parts) {
  std::string html;
  for (;;) {
    const std::size_t open = page.find("{{");
    html += page.substr(0, open);
    if (open == std::string_view::npos) return html;
    const std::size_t close = page.find("}}", open);
    html += parts.at(page.substr(open + 2, close - open - 2));
    page.remove_prefix(close + 2);
  }
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string html;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const std::size_t length = bidi_control_length(text.substr(i))) {
      html += "&#xfffd;";
      i += length - 1;
      continue;
    }
    const char c = text[i];
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: html += c;
    }
  }
  return html;
}

namespace {

// Adds all values below `path`, as paths such as "/engine/max_num_seqs" with their values.
void add_settings(const std::string& path, const Json& value, Json& settings) {
  if (!value.is_structured() || value.empty()) {
    settings[path] = value.is_structured() ? Json() : value;
    return;
  }
  for (const auto& [key, member] : value.items()) {
    add_settings(path + "/" + key, member, settings);
  }
  for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
    add_settings(fmt::format("{}/{}", path, i), value[i], settings);
  }
}

// Paths and values of a run's configuration.
Json flat_settings(const RunInfo& info) {
  Json config = info.config;
  config.erase("results");  // which files it wrote
  Json settings = Json::object();
  if (config.is_object()) add_settings("", config, settings);
  return settings;
}

// Whether the setting at `path` is a default that follows from others in every run.
bool is_derived(const std::vector<const RunInfo*>& infos, const std::string& path) {
  std::string key = path.substr(1);
  std::replace(key.begin(), key.end(), '/', '.');
  return std::all_of(infos.begin(), infos.end(),
                     [&key](const RunInfo* info) { return info->config_reasons.contains(key); });
}

// " seed=2": the setting as a suffix of a name; empty if it is absent.
std::string setting_text(const Json& settings, const std::string& key) {
  const Json* found = settings.find(key);
  if (found == nullptr || found->is_null()) return {};
  std::string text = found->is_string() ? found->string() : found->dump();
  if (text.empty()) return {};
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return " " + key.substr(key.rfind('/') + 1) + "=" + text;
}

std::size_t num_different(const std::vector<std::string>& texts) {
  return std::set<std::string>(texts.begin(), texts.end()).size();
}

// The keys in which settings differ, in order.
std::vector<std::string> differing_keys(const std::vector<Json>& settings) {
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const Json& own : settings) {
    for (const auto& [key, value] : own.items()) {
      const auto is_same = [&key = key, &value = value](const Json& other) {
        return other.contains(key) && other.at(key) == value;
      };
      if (!seen.insert(key).second || std::all_of(settings.begin(), settings.end(), is_same)) {
        continue;
      }
      keys.push_back(key);
    }
  }
  return keys;
}

// Appends " prefill_chunk_size=512 seed=2" to equal names: the first few settings in which their
// runs differ, then those settings that distinguish further runs.
void add_differing_settings(const std::vector<ReportRun>& runs, std::vector<std::string>& names) {
  constexpr std::size_t kFew = 4;
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < names.size(); ++i) groups[names[i]].push_back(i);
  for (const auto& [name, members] : groups) {
    if (members.size() == 1) continue;
    std::vector<const RunInfo*> infos;
    std::vector<Json> settings;
    for (const std::size_t i : members) {
      infos.push_back(&runs[i].result.info);
      settings.push_back(flat_settings(*infos.back()));
    }
    std::vector<std::string> texts(members.size());
    std::size_t num_added = 0;
    for (const std::string& key : differing_keys(settings)) {
      if (is_derived(infos, key)) continue;
      std::vector<std::string> longer = texts;
      for (std::size_t m = 0; m < members.size(); ++m) longer[m] += setting_text(settings[m], key);
      if (num_added >= kFew && num_different(longer) == num_different(texts)) continue;
      ++num_added;
      texts = std::move(longer);
    }
    for (std::size_t m = 0; m < members.size(); ++m) names[members[m]] += texts[m];
  }
}

}  // namespace

void make_names_differ(std::vector<ReportRun>& runs) {
  std::map<std::string, std::set<std::string>> backends;
  for (const ReportRun& run : runs) backends[run.name].insert(run.result.info.backend);
  std::vector<std::string> names;
  for (const ReportRun& run : runs) {
    names.push_back(run.name);
    if (backends[run.name].size() > 1) names.back() += " (" + run.result.info.backend + ")";
  }
  add_differing_settings(runs, names);
  std::map<std::string_view, std::size_t> num_same, num_named;
  for (const std::string& name : names) ++num_same[name];
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::size_t position = ++num_named[names[i]];
    runs[i].name = names[i];
    if (num_same[names[i]] > 1) runs[i].name += fmt::format(" #{}", position);
  }
}

std::string report_html(const ReportText& text, std::span<const ReportRun> runs) {
  METRONOME_CHECK(!runs.empty() || !text.answer.empty(), "a page has a run or an answer");
  std::map<std::string_view, std::string> parts = {
      {"title", html_text(text.title)},
      {"description", html_text(text.description)},
      {"answer", answer_section(text.answer)},
      {"style", std::string(kReportStyle)},
  };
  parts["head"] = fill(kPageHead, parts);
  if (runs.empty()) return fill(kAnswerTemplate, parts);
  std::string scripts;
  for (const std::string_view script :
       {kReportBaseScript, kReportPlotScript, kReportTableScript, kReportTimelineScript,
        kReportDistributionScript, kReportStepsScript, kReportRequestsScript,
        kReportComparisonScript, kReportDraftsScript, kReportUsersScript, kReportHeatMapScript,
        kReportReplicasScript, kReportMeasuredScript, kReportConclusionScript, kReportMainScript}) {
    scripts += script;
  }
  parts.merge(std::map<std::string_view, std::string>{
      {"facts", facts(runs)},
      {"notes", group_tables(runs) + first_token_table(runs) + note_list(text.notes)},
      {"summary", summary_table(runs)},
      {"bands", band_notes(runs)},
      {"formulas", formula_list(runs.front().result)},
      {"runs", run_details(runs)},
      {"d3", std::string(kD3Script)},
      {"data", report_data(text, runs)},
      {"scripts", std::move(scripts)},
  });
  return fill(kReportTemplate, parts);
}

void ReportBuilder::add(const VariantOutcome& outcome) {
  const auto record_of = [](const RunRecord& record) -> GetRecord {
    return [&record]() -> const RunRecord& { return record; };
  };
  add(ResultContent(outcome.result),
      outcome.keeps_steps ? record_of(outcome.record) : GetRecord());
  for (const ReplicaOutcome& replica : outcome.replicas) {
    add(ResultContent(replica.result), record_of(replica.record));
  }
}

void ReportBuilder::add(ResultContent result, const GetRecord& record, const std::string& name) {
  const RunInfo& info = result.info;
  const std::string scenario = info.scenario.empty() ? info.label : info.scenario;
  if (known_scenarios_.insert(scenario).second) scenarios_.push_back(scenario);
  if (runs_.empty()) description_ = info.description;
  if (info.description != description_) description_.clear();
  if (record) {
    recorded_.push_back(runs_.size());
    ranking_.add(detail_candidate(result));
  }
  const SloConfig slo = info.slo;
  const EngineLimits limits = engine_limits(info);
  runs_.push_back({name.empty() ? info.label : name, std::move(result), {}, false});
  details_.emplace_back();
  if (!record) return;
  const RunRecord& recorded = record();
  if (recorded.has_steps() && recorded.replicas.empty()) {
    runs_.back().late = first_token_rows(recorded, FirstTokens(recorded, limits), {});
  }
  if (sketch_limits_) {
    runs_.back().detail_json = report_detail(recorded, slo, *sketch_limits_);
  }
  // A run that may not be drawn now never may, so only a few details are kept.
  const std::size_t added = recorded_.size() - 1;
  if (!may_be_drawn(added)) return;
  details_.back() = report_detail(recorded, slo, limits_);
  held_.push_back(added);
  if (held_.size() < 2 * num_held_last_) return;
  std::erase_if(held_, [this](std::size_t held) {
    if (may_be_drawn(held)) return false;
    details_[recorded_[held]] = {};
    return true;
  });
  num_held_last_ = std::max(held_.size(), kMaxDetailed);
}

bool ReportBuilder::may_be_drawn(std::size_t recorded) const {
  return recorded < kMaxDetailed || ranking_.has_reason(recorded);
}

// Notes on what is left out, and why the drawn runs were chosen.
std::vector<std::string> ReportBuilder::detail_notes(std::span<const DetailChoice> drawn) const {
  const auto counted = [](std::size_t number) {
    return grouped_text(static_cast<std::int64_t>(number));
  };
  std::vector<std::string> notes;
  if (drawn.size() < recorded_.size()) {
    std::vector<std::string> names;
    for (const std::size_t run : recorded_) names.push_back(runs_[run].name);
    notes.push_back(counted(drawn.size()) + " of " + counted(runs_.size()) +
                    " runs are drawn in detail: " + detail_reasons_text(drawn, names) +
                    ". Others are drawn from fewer points when they are selected in the table.");
  }
  std::string without;
  std::size_t num_without = 0;
  bool are_clients = true;
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    if (std::binary_search(recorded_.begin(), recorded_.end(), run)) continue;
    are_clients = are_clients && runs_[run].result.info.backend == kHttpBackend;
    if (num_without++ < kMaxNames) without += (without.empty() ? "" : ", ") + runs_[run].name;
  }
  if (num_without > 0) {
    if (num_without > kMaxNames) without += ", ...";
    notes.push_back(counted(num_without) + " of the " + counted(runs_.size()) +
                    " runs are only in the summary (" + without + "): the detailed figures need " +
                    (are_clients ? "the start and every gap of each request, which these "
                                   "clients' results lack."
                                 : "requests.jsonl and steps.jsonl."));
  }
  return notes;
}

std::vector<DetailChoice> ReportBuilder::select() {
  std::vector<DetailChoice> ranked = ranking_.ranked();
  ranked.resize(std::min(kMaxDetailed, ranked.size()));
  for (const DetailChoice& choice : ranked) {
    ReportRun& run = runs_[recorded_[choice.run]];
    run.detail_json = std::move(details_[recorded_[choice.run]]);
    run.is_selected = true;
  }
  // Runs without records are drawn by their figures.
  std::vector<DetailCandidate> others;
  if (recorded_.empty()) {
    for (const ReportRun& run : runs_) others.push_back(detail_candidate(run.result));
  }
  const std::vector<DetailChoice> by_figures = ranked_for_detail(others);
  for (std::size_t i = 0; i < std::min(kMaxDetailed, by_figures.size()); ++i) {
    runs_[by_figures[i].run].is_selected = true;
  }
  if (runs_.size() <= kMaxDetailed) {
    for (ReportRun& run : runs_) run.is_selected = true;
  }
  return ranked;
}

std::string ReportBuilder::html() {
  make_names_differ(runs_);
  const std::vector<DetailChoice> ranked = select();
  ReportText text;
  text.description = description_;
  for (std::size_t i = 0; i < std::min(kMaxNames, scenarios_.size()); ++i) {
    text.title += (i == 0 ? "" : ", ") + scenarios_[i];
  }
  if (scenarios_.size() > kMaxNames) {
    text.title += fmt::format(" and {} more", scenarios_.size() - kMaxNames);
  }
  text.answer = answer_;
  text.notes = notes_;
  for (std::string& note : detail_notes(ranked)) text.notes.push_back(std::move(note));
  return report_html(text, runs_);
}

}  // namespace metronome
