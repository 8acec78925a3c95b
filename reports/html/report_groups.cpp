// SPDX-License-Identifier: Apache-2.0
#include "reports/html/report_groups.h"

#include <fmt/core.h>
#include <limits>
#include <span>

#include "core/base/number_text.h"
#include "reports/html/report_html.h"

namespace metronome {

namespace {

struct GroupColumn {
  const char* title;
  const char* key;
  int decimals;
  double scale = 1;
};
constexpr GroupColumn kColumns[] = {
    {"requests", "num_requests", 0},       {"TTFT p50, ms", "median_ttft_ms", 1},
    {"TTFT p99, ms", "p99_ttft_ms", 1},    {"TPOT p50, ms", "median_tpot_ms", 2},
    {"TPOT p99, ms", "p99_tpot_ms", 2},    {"good, %", "slo_attainment", 1, 100},
    {"goodput, 1/s", "request_goodput", 3}};
constexpr GroupColumn kReplicaColumns[] = {{"requests", "num_requests", 0},
                                           {"prompt tokens", "total_input_tokens", 0},
                                           {"output tokens", "total_output_tokens", 0},
                                           {"busy, %", "busy_share", 1, 100},
                                           {"KV mean, %", "mean_kv_use", 1, 100},
                                           {"KV peak, %", "peak_kv_use", 1, 100},
                                           {"prefix hits, %", "prefix_hit_rate", 1, 100},
                                           {"TTFT p50, ms", "median_ttft_ms", 1},
                                           {"TTFT p99, ms", "p99_ttft_ms", 1},
                                           {"ITL p50, ms", "median_itl_ms", 2},
                                           {"ITL p99, ms", "p99_itl_ms", 2}};

// A row for each group of a run.
std::string rows_of(const ReportRun& run, const Json& groups,
                    std::span<const GroupColumn> columns) {
  std::string html;
  for (const Json& group : groups) {
    html += "<tr><th scope=\"row\">" + html_text(run.name) + "</th><td>" +
            html_text(group.value("name", "").string()) + "</td>";
    for (const GroupColumn& column : columns) {
      const Json* const found = group.find(column.key);
      const bool is_known = found != nullptr && found->is_number();
      const double number =
          is_known ? column.scale * found->get<double>() : std::numeric_limits<double>::quiet_NaN();
      html += "<td>" + grouped_text(number, column.decimals) + "</td>";
    }
    html += "</tr>\n";
  }
  return html;
}

std::string table_of(std::span<const ReportRun> runs, const char* title,
                     Json ResultContent::*groups, std::span<const GroupColumn> columns = kColumns) {
  std::string rows;
  for (const ReportRun& run : runs) rows += rows_of(run, run.result.*groups, columns);
  if (rows.empty()) return {};
  std::string head =
      "<tr><th scope=\"col\">run</th><th scope=\"col\">" + std::string(title) + "</th>";
  for (const GroupColumn& column : columns) {
    head += "<th scope=\"col\">" + std::string(column.title) + "</th>";
  }
  return "<h2>By " + std::string(title) + "</h2>\n<div class=\"scroll\"><table>\n<thead>" + head +
         "</tr></thead>\n<tbody>" + rows + "</tbody></table></div>\n";
}

// A row for each change of a replica; of many the first ones.
std::string event_table(std::span<const ReportRun> runs) {
  constexpr std::size_t kMost = 500;
  std::string rows;
  for (const ReportRun& run : runs) {
    const Json& events = run.result.fleet_events;
    std::size_t num_shown = 0;
    for (const Json& event : events) {
      if (++num_shown > kMost) break;
      const auto seconds = static_cast<double>(event.at("time_ns").get<std::int64_t>()) / 1e9;
      const auto number = [&event](const char* key) {
        const Json* const found = event.find(key);
        return found == nullptr ? std::string("-") : grouped_text(found->get<std::int64_t>());
      };
      rows += fmt::format(
          "<tr><th scope=\"row\">{}</th><td>{}</td><td>replica {}</td><td>{}</td><td>{}</td>"
          "<td>{}</td><td>{}</td></tr>\n",
          html_text(run.name), grouped_text(seconds, 3), number("replica"),
          html_text(event.value("event", "").string()),
          html_text(event.value("cause", "").string()),
          number("retried"), number("lost"));
    }
    if (events.size() <= kMost) continue;
    rows += fmt::format("<tr><th scope=\"row\">{}</th><td colspan=\"6\">and {} more: "
                        "fleet_events of result.json</td></tr>\n",
                        html_text(run.name), events.size() - kMost);
  }
  if (rows.empty()) return {};
  return "<h2>Replicas that failed, came or went</h2>\n<div class=\"scroll\"><table>\n<thead>"
         "<tr><th scope=\"col\">run</th><th scope=\"col\">time, s</th><th scope=\"col\">which</th>"
         "<th scope=\"col\">event</th><th scope=\"col\">cause</th>"
         "<th scope=\"col\">requests retried</th><th scope=\"col\">requests lost</th>"
         "</tr></thead>\n<tbody>" +
         rows + "</tbody></table></div>\n";
}

}  // namespace

std::string first_token_table(std::span<const ReportRun> runs) {
  FirstTokenParts sum;
  for (const ReportRun& run : runs) {
    for (const FirstTokenRow& row : run.late) sum += row.parts;
  }
  if (sum.total_ns() == 0) return {};
  std::string head =
      "<tr><th scope=\"col\">run</th><th scope=\"col\">first tokens</th>"
      "<th scope=\"col\">requests</th>";
  for (std::size_t p = 0; p < kNumFirstTokenParts; ++p) {
    const auto part = static_cast<FirstTokenPart>(p);
    if (sum[part] > 0) head += "<th scope=\"col\">" + std::string(part_words(part)) + ", %</th>";
  }
  std::string rows;
  for (const ReportRun& run : runs) {
    for (const FirstTokenRow& row : run.late) {
      rows += "<tr><th scope=\"row\">" + html_text(run.name) + "</th><td>" + html_text(row.name) +
              "</td><td>" + grouped_text(row.num_requests) + "</td>";
      const auto total = static_cast<double>(row.parts.total_ns());
      for (std::size_t p = 0; p < kNumFirstTokenParts; ++p) {
        if (sum.ns[p] == 0) continue;
        const double share = total > 0 ? 100 * static_cast<double>(row.parts.ns[p]) / total : 0;
        rows += "<td>" + grouped_text(share, 1) + "</td>";
      }
      rows += "</tr>\n";
    }
  }
  return "<h2>Where the time to first tokens went</h2>\n<div class=\"scroll\"><table>\n<thead>" +
         head + "</tr></thead>\n<tbody>" + rows + "</tbody></table></div>\n";
}

std::string group_tables(std::span<const ReportRun> runs) {
  return table_of(runs, "class", &ResultContent::classes) +
         table_of(runs, "priority", &ResultContent::priorities) +
         table_of(runs, "replica", &ResultContent::replicas, kReplicaColumns) + event_table(runs);
}

}  // namespace metronome
