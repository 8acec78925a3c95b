// SPDX-License-Identifier: Apache-2.0
#include "study/sweep/sweep_summary.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "core/base/count_text.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_node.h"
#include "core/config/config_reader.h"
#include "core/metrics/figures.h"
#include "core/metrics/goals.h"
#include "core/metrics/steadiness.h"
#include "reports/files/result_bands.h"
#include "reports/files/result_files.h"
#include "reports/files/result_names.h"
#include "reports/files/result_reader.h"
#include "reports/terminal/text.h"
#include "study/sweep/sweep_points.h"
#include "system/parallel.h"

namespace metronome {
namespace {

const std::vector<const Figure*>& columns() {
  static const std::vector<const Figure*> all = [] {
    std::vector<const Figure*> figures;
    for (const std::string_view key : figures_of(FigureList::Sweep))
      figures.push_back(&figure(key));
    return figures;
  }();
  return all;
}
int decimals_of(const Figure& figure) {
  return figure.shown.decimals == kByLargest ? 1 : figure.shown.decimals;
}
std::size_t place_of(std::string_view key) {
  const auto keys = figures_of(FigureList::Sweep);
  return static_cast<std::size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin());
}
// Figures by which rows are sorted, or that only some sweeps show.
const std::size_t kItlP99 = place_of("p99_itl_ms");
const std::size_t kLongest = place_of("longest_stall_ms");
const std::size_t kTpot = place_of("mean_tpot_ms");  // only with drafts: gaps bring several tokens
const std::size_t kGoodput = place_of("request_goodput");              // only with limits
const std::size_t kCost = place_of("cost_per_million_output_tokens");  // only with a price

// A scalar as JSON text, with numbers formatted as in result.json. A nested value becomes text.
std::string json_text(const Json& value) {
  JsonText json;
  if (value.is_null()) {
    json.null();
  } else if (value.is_boolean()) {
    json.value(value.get<bool>());
  } else if (value.is_number_unsigned()) {
    json.value(value.get<std::uint64_t>());
  } else if (value.is_number_integer()) {
    json.value(value.get<std::int64_t>());
  } else if (value.is_number()) {
    json.value(value.get<double>());
  } else {
    json.value(value.is_string() ? value.get<std::string>() : value.dump());
  }
  return std::string(json.view());
}

template <class Number>
std::optional<Number> whole_number(const std::string& text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || rest != end) return std::nullopt;
  return number;
}

// The value of an assignment: a number if it parses as one.
Json typed_value(const std::string& yaml) {
  const ConfigNode node = parse_config_text(yaml, "value");
  if (node.kind == ConfigNode::Kind::Null) return nullptr;
  if (node.kind != ConfigNode::Kind::Scalar) return yaml_text(node);
  if (node.is_quoted) return node.scalar;
  if (node.scalar == "true" || node.scalar == "false") return node.scalar == "true";
  if (const auto number = whole_number<std::int64_t>(node.scalar)) return *number;
  if (const auto number = whole_number<double>(node.scalar)) {
    if (std::isfinite(*number)) return *number;
    return "inf";  // vLLM's notation
  }
  return node.scalar;
}

// A dotted key of the resolved configuration; null if the key does not apply.
Json configured_value(const Json& config, std::string_view key) {
  const Json* node = &config;
  while (!key.empty()) {
    const std::size_t length = std::min(key.find('.'), key.size());
    node = node->find(key.substr(0, length));
    if (node == nullptr) return nullptr;
    key.remove_prefix(std::min(length + 1, key.size()));
  }
  return *node;
}

// Whether the whole node comes from this `--set` assignment, with no part from elsewhere.
bool is_assigned(const ConfigNode& node, const std::string& assignment) {
  if (node.where.file == nullptr || *node.where.file != assignment) return false;
  const auto is_own = [&assignment](const ConfigNode& child) {
    return is_assigned(child, assignment);
  };
  return std::all_of(node.items.begin(), node.items.end(), is_own) &&
         std::all_of(node.entries.begin(), node.entries.end(),
                     [&is_own](const ConfigNode::Entry& entry) { return is_own(entry.value); });
}

// Whether the run uses the point's value for the key. The run's variant may override it.
bool is_in_force(const SweepRun& run, const std::string& key) {
  if (key.starts_with("variants.") || key == "description") return true;
  const ConfigNode* node = run.scenario.source->find_path(key);
  return node != nullptr && is_assigned(*node, *assignment_location(key).file);
}

Json value_of(const SweepRun& run, const SweepRow& row, const std::string& key,
              const Json& result) {
  for (const auto& [name, value] : row.values) {
    if (name == key && is_in_force(run, key)) return typed_value(value);
  }
  return result.contains("config") ? configured_value(result.at("config"), key) : Json(nullptr);
}

std::string csv_field(const std::string& json) {
  if (json == "null") return {};
  const std::string text = json.starts_with('"') ? Json::parse(json).get<std::string>() : json;
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

// The sides of a goal that a run breaks: "longest gap, p99 TTFT"; "-": none, empty: no goal.
std::string broken_sides(const SloConfig& slo, const FigureValues& figures) {
  const std::vector<Goal> goals = goals_of(slo);
  std::string text;
  for (const Goal& goal : goals) {
    if (goal.is_kept_by(goal_figure(goal, figures))) continue;
    text += (text.empty() ? "" : ", ") + short_goal_words(goal);
  }
  return text.empty() && !goals.empty() ? "-" : text;
}

// "prefill_chunk_size", or the whole key if two keys end alike.
std::string short_name(const std::string& key, const std::vector<std::string>& keys) {
  const auto last = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  const auto num_alike = std::count_if(
      keys.begin(), keys.end(), [&](const std::string& other) { return last(other) == last(key); });
  return num_alike > 1 ? key : last(key);
}

}  // namespace

SweepSummary::SweepSummary(const SweepPlan& plan, const SweepFolder& folder, int num_threads)
    : plan_(plan) {
  std::vector<std::optional<Row>> rows(plan.rows.size());
  for_each_index(plan.rows.size(), num_threads, [&](std::size_t i) {
    const SweepRun& run = plan.runs[plan.rows[i].run];
    if (folder.state_of(run) != SweepFolder::State::Done) return;
    const std::string file = folder.run_path(run) + "/" + std::string(kResultFile);
    rows[i] = make_row(plan.rows[i], file);
  });
  std::vector<char> is_missing(plan.runs.size(), 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]) {
      rows_.push_back(std::move(*rows[i]));
    } else {
      is_missing[plan.rows[i].run] = 1;
    }
  }
  for (std::size_t i = 0; i < is_missing.size(); ++i) {
    if (is_missing[i] != 0) missing_.push_back(i);
  }
}

SweepSummary::Row SweepSummary::make_row(const SweepRow& row, const std::string& file) const {
  const SweepRun& run = plan_.runs[row.run];
  const Json result = Json::parse(read_file(file).value_or(""));
  const FigureValues figures = read_figures(JsonPlace(file, result));
  Row added;
  added.accuracy = read_accuracy(JsonPlace(file, result));
  added.run = row.run;
  added.label = run.scenario.name;
  for (const auto& [key, value] : result.items()) {
    if (value.is_structured()) break;  // the flat keys are the first
    added.fields.emplace_back(
        key, key == "run_number" ? std::to_string(run.run_number) : json_text(value));
  }
  for (const std::string& key : plan_.keys) {
    const Json value = value_of(run, row, key, result);
    added.values.push_back(value.is_string() ? value.get<std::string>() : json_text(value));
    // As in vLLM's sweep, a varied key replaces a figure with the same name (`seed`).
    const auto same = std::find_if(added.fields.begin(), added.fields.end(),
                                   [&key](const Field& field) { return field.first == key; });
    if (same != added.fields.end()) {
      same->second = json_text(value);
    } else {
      added.fields.emplace_back(key, json_text(value));
    }
  }
  added.fields.emplace_back("point", json_text(run.id));
  for (const Figure* metric : columns()) added.metrics.push_back(figures.number(metric->key));
  added.itl = figures.distribution("itl");
  added.breaks = broken_sides(run.scenario.slo, figures);
  added.has_drafts = figures.number("spec_decode_num_drafts") > 0;
  const auto count = [&figures](const char* key) {
    return static_cast<std::int64_t>(figures.number(key));
  };
  added.compared = {run.workload_key, slo_limits_ms(run.scenario.slo), count("completed"),
                    count("total_input_tokens"), count("total_output_tokens")};
  return added;
}

std::string SweepSummary::json() const {
  std::string text = "[";
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    text += i == 0 ? "\n  {" : ",\n  {";
    const char* separator = "\n    ";
    for (const auto& [key, value] : rows_[i].fields) {
      text += separator + json_text(key) + ": " + value;
      separator = ",\n    ";
    }
    text += "\n  }";
  }
  return text + (rows_.empty() ? "]\n" : "\n]\n");
}

std::string SweepSummary::csv() const {
  if (rows_.empty()) return {};
  const std::vector<std::string> columns = columns_of(rows_);
  std::string text;
  const auto end_field = [&](const std::string& column) {
    text += &column == &columns.back() ? '\n' : ',';
  };
  for (const std::string& column : columns) {
    text += csv_field(json_text(column));
    end_field(column);
  }
  for (const Row& row : rows_) {
    const std::map<std::string_view, std::string_view> fields(row.fields.begin(), row.fields.end());
    for (const std::string& column : columns) {
      const auto field = fields.find(column);
      if (field != fields.end()) text += csv_field(std::string(field->second));
      end_field(column);
    }
  }
  return text;
}

// The keys of all rows: each behind the key that is before it in the first row that has it.
std::vector<std::string> SweepSummary::columns_of(const std::vector<Row>& rows) {
  std::vector<std::string> columns;
  for (const Row& row : rows) {
    auto next = columns.begin();
    for (const auto& [key, value] : row.fields) {
      auto place = next != columns.end() && *next == key
                       ? next
                       : std::find(columns.begin(), columns.end(), key);
      if (place == columns.end()) place = columns.insert(next, key);
      next = std::next(place);
    }
  }
  return columns;
}

bool SweepSummary::has_completed() const {
  return std::any_of(rows_.begin(), rows_.end(),
                     [](const Row& row) { return row.compared.completed > 0; });
}

std::vector<std::size_t> SweepSummary::distinct_rows() const {
  std::vector<std::size_t> distinct;
  std::set<std::pair<std::size_t, std::vector<std::string>>> seen;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (seen.emplace(rows_[i].run, rows_[i].values).second) distinct.push_back(i);
  }
  return distinct;
}

// Groups comparable rows, the best first; ties keep their order.
std::vector<SweepSummary::Group> SweepSummary::groups_of(const Order& order) const {
  std::vector<Group> groups;
  std::map<ComparedRun, std::size_t> group_of;
  for (const std::size_t i : distinct_rows()) {
    const auto [known, is_new] = group_of.emplace(rows_[i].compared, groups.size());
    if (is_new) groups.emplace_back();
    groups[known->second].push_back(i);
  }
  for (Group& group : groups) sort_group(order, group);
  return groups;
}

// By the chief figure, rows without it last. Goodputs within kSameShare of the highest are equal:
// the steadiest of these rows comes first.
void SweepSummary::sort_group(const Order& order, Group& group) const {
  const std::size_t metric = order.chief;
  std::stable_sort(group.begin(), group.end(), [&](std::size_t a, std::size_t b) {
    const double left = rows_[a].metrics[metric];
    const double right = rows_[b].metrics[metric];
    if (std::isnan(left) || std::isnan(right)) return !std::isnan(left) && std::isnan(right);
    return columns()[metric]->shown.better == Better::Higher ? left > right : left < right;
  });
  if (metric != kGoodput) return;
  const double most = rows_[group.front()].metrics[metric];
  std::vector<double> figures;
  for (const std::size_t i : group) {
    if (!is_same_figure(rows_[i].metrics[metric], most)) break;
    figures.push_back(rows_[i].metrics[order.steady]);
  }
  const auto first = group.begin() + static_cast<std::ptrdiff_t>(steadiest(figures));
  std::rotate(group.begin(), first, first + 1);
}

// The figures that order the rows: goodput if there is an SLO, and how steady they are.
SweepSummary::Order SweepSummary::order() const {
  const auto has = [this](std::size_t metric) {
    return std::any_of(rows_.begin(), rows_.end(),
                       [metric](const Row& row) { return !std::isnan(row.metrics[metric]); });
  };
  std::vector<Distribution> itls;
  for (const Row& row : rows_) itls.push_back(row.itl);
  Order order;
  order.has_drafts =
      std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.has_drafts; });
  order.hides_stalls = steady_by(itls) == SteadyBy::Longest;
  order.steady = order.has_drafts ? kTpot : order.hides_stalls ? kLongest : kItlP99;
  order.has_slo = has(kGoodput);
  order.chief = order.has_slo ? kGoodput : order.steady;
  order.has_price = has(kCost);
  return order;
}

// Whether each row of a group has the best value of a metric, to kSameShare. No row has if all
// have, or if the lowest p99 ITL comes with a longer longest gap than others have.
std::vector<char> SweepSummary::best_of(const Group& group, std::size_t metric) const {
  const auto figures = [&](std::size_t m) {
    std::vector<double> values;
    for (const std::size_t i : group) values.push_back(rows_[i].metrics[m]);
    return values;
  };
  return metric == kItlP99
             ? marked_p99_itls(figures(kItlP99), figures(kLongest))
             : marked_leaders(figures(metric), columns()[metric]->shown.better == Better::Higher);
}

// Explains the marks and the order.
std::string SweepSummary::legend(const std::vector<Group>& groups, const Order& order) const {
  std::size_t num_rows = 0;
  std::vector<ComparedRun> kinds;
  for (const Group& group : groups) {
    num_rows += group.size();
    kinds.push_back(rows_[group.front()].compared);
  }
  const std::string reason(incomparable_because(kinds));
  const std::string sorted = "sorted by " + columns()[order.chief]->name_elsewhere();
  const std::string all = num_rows == 1 ? "one row" : "all " + count_text(num_rows, "row");
  std::string text;
  if (groups.size() == 1) {
    text = "* best of its column, of " + all + "; latencies in ms; " + sorted;
  } else if (groups.size() == num_rows) {
    text = "no value is marked as the best: " + reason + "; latencies in ms";
  } else {
    text = "* best of its column in its group; no value is the best of " + all + ": " + reason +
           "; latencies in ms; groups " + sorted;
  }
  if (groups.size() < num_rows) {
    text += "; figures within 1 % are equal";
    if (order.has_slo) {
      text +=
          ", and the first of equals has the lowest " + columns()[order.steady]->name_elsewhere();
    }
  }
  if (order.hides_stalls) {
    text +=
        ". In at least one row fewer than 1 % of the gaps hold most of the stalled time. Its ITL "
        "p99 "
        "does not see them; 'longest' is the longest gap";
  }
  if (order.has_slo && groups.size() < num_rows) {
    text +=
        ". `metronome tune` compares the highest loads that settings carry, and may name another";
  }
  return wrapped(text, 0, output_columns());
}

std::string SweepSummary::table(std::size_t max_rows) const {
  const auto differ = [this](const auto& get) {
    return std::any_of(rows_.begin(), rows_.end(),
                       [&](const Row& row) { return get(row) != get(rows_.front()); });
  };
  const bool has_variants = differ([](const Row& row) { return row.label; });
  const bool has_counts = differ([](const Row& row) { return row.compared.completed; });
  const Order order = this->order();
  std::vector<std::size_t> shown;
  for (std::size_t m = 0; m < columns().size(); ++m) {
    const bool is_left_out = (m == kGoodput && !order.has_slo) ||
                             (m == kCost && !order.has_price) || (m == kTpot && !order.has_drafts);
    if (!is_left_out) shown.push_back(m);
  }
  const std::vector<Group> groups = groups_of(order);

  std::vector<std::vector<std::string>> lines(1);
  for (const std::string& key : plan_.keys) lines[0].push_back(short_name(key, plan_.keys));
  if (has_variants) lines[0].emplace_back("variant");
  if (has_counts) lines[0].emplace_back("completed");
  for (const std::size_t m : shown) lines[0].push_back(columns()[m]->name_elsewhere());
  const bool has_goals =
      std::any_of(rows_.begin(), rows_.end(), [](const Row& row) { return !row.breaks.empty(); });
  if (has_goals) lines[0].emplace_back("breaks");
  std::size_t num_rows = 0;
  for (const Group& group : groups) {
    std::map<std::size_t, std::vector<char>> best;
    for (const std::size_t m : shown) best[m] = best_of(group, m);
    // An empty line between groups, unless every group has one row.
    if (num_rows > 0 && num_rows < max_rows && groups.size() < distinct_rows().size()) {
      lines.emplace_back();
    }
    for (std::size_t place = 0; place < group.size(); ++place) {
      if (num_rows++ >= max_rows) continue;
      const Row& row = rows_[group[place]];
      std::vector<std::string> cells;
      for (const std::string& value : row.values) cells.push_back(one_line(value));
      if (has_variants) cells.push_back(row.label);
      if (has_counts) cells.push_back(grouped_text(row.compared.completed));
      for (const std::size_t m : shown) {
        const Figure& column = *columns()[m];
        cells.push_back(grouped_text(column.shown.scale * row.metrics[m], decimals_of(column)) +
                        (best.at(m)[place] != 0 ? "*" : ""));
      }
      if (has_goals) cells.push_back(row.breaks);
      lines.push_back(std::move(cells));
    }
  }
  std::string text = aligned_rows(lines) + legend(groups, order);
  if (num_rows > max_rows) {
    text += grouped_text(static_cast<std::int64_t>(num_rows - max_rows)) +
            " more rows are in summary.csv\n";
  }
  std::vector<TimeAccuracy> accuracies;
  for (const Row& row : rows_) {
    if (row.accuracy) add_accuracy(*row.accuracy, accuracies);
  }
  for (const TimeAccuracy& accuracy : accuracies) {
    text += wrapped("how sure: " + accuracy.text(), 0, output_columns());
  }
  return text;
}

}  // namespace metronome
