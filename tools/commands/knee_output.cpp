// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/knee_output.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "reports/files/result_files.h"
#include "reports/terminal/text.h"

namespace metronome {
namespace {

std::vector<const KneePoint*> by_rate(const KneeResult& result) {
  std::vector<const KneePoint*> points;
  for (const KneePoint& point : result.points) points.push_back(&point);
  std::sort(points.begin(), points.end(),
            [](const KneePoint* a, const KneePoint* b) { return a->rate < b->rate; });
  return points;
}

std::string whole_ms(double ms) { return grouped_text(ms, ms < 100 ? 1 : 0); }

Json finite_json(double number) { return std::isfinite(number) ? Json(number) : Json(nullptr); }

Json point_json(const KneePoint& point) {
  const Summary& summary = point.summary;
  Json entry = {{"request_rate", point.rate},
                {"num_prompts", static_cast<std::int64_t>(point.num_requests)},
                {"verdict", kKneeVerdicts[static_cast<std::size_t>(point.verdict)]},
                {"num_arrived_in_second_half", point.num_arrived},
                {"num_ended_in_second_half", point.num_ended},
                {"is_short", point.is_short},
                {"completed", summary.completed},
                {"failed", summary.failed},
                {"request_throughput", summary.request_throughput},
                {"output_throughput", summary.output_throughput}};
  entry["request_goodput"] =
      summary.request_goodput ? Json(*summary.request_goodput) : Json(nullptr);
  entry["slo_attainment"] = summary.slo_attainment ? Json(*summary.slo_attainment) : Json(nullptr);
  for (const auto& [name, distribution] :
       {std::pair{"ttft", &summary.ttft}, std::pair{"tpot", &summary.tpot},
        std::pair{"itl", &summary.itl}, std::pair{"e2el", &summary.e2el}}) {
    entry["p50_" + std::string(name) + "_ms"] = finite_json(distribution->p50_ms);
    entry["p99_" + std::string(name) + "_ms"] = finite_json(distribution->p99_ms);
  }
  entry["folder"] = knee_folder(point.rate);
  return entry;
}

std::string figures_text(const KneePoint& point) {
  const Summary& summary = point.summary;
  std::string text = rate_text(point.rate) + " requests/s: TTFT p50 " +
                     whole_ms(summary.ttft.p50_ms) + " and p99 " + whole_ms(summary.ttft.p99_ms) +
                     " ms, TPOT p50 " + whole_ms(summary.tpot.p50_ms) + " and p99 " +
                     whole_ms(summary.tpot.p99_ms) + " ms";
  if (summary.slo_attainment) {
    text += ", " + percent_text(*summary.slo_attainment, 1) + " within the SLO";
  }
  return text;
}

}  // namespace

std::string knee_folder(double rate) {
  std::string text = Json(rate).dump();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return "rate-" + text;
}

std::string knee_text(const KneeResult& result, const KneeOptions& options) {
  std::vector<std::vector<std::string>> rows = {{"req/s", "requests", "arrive", "end", "good %",
                                                 "TTFT p50", "p99 ms", "TPOT p50", "p99 ms",
                                                 "verdict"}};
  for (const KneePoint* point : by_rate(result)) {
    const Summary& summary = point->summary;
    const std::string good =
        summary.slo_attainment ? fixed_text(100 * *summary.slo_attainment, 1) : "-";
    std::string verdict(kKneeVerdicts[static_cast<std::size_t>(point->verdict)]);
    std::replace(verdict.begin(), verdict.end(), '_', ' ');
    rows.push_back({rate_text(point->rate), grouped_text(std::int64_t(point->num_requests)),
                    grouped_text(point->num_arrived), grouped_text(point->num_ended), good,
                    whole_ms(summary.ttft.p50_ms), whole_ms(summary.ttft.p99_ms),
                    whole_ms(summary.tpot.p50_ms), whole_ms(summary.tpot.p99_ms), verdict});
  }
  std::string text = aligned_rows(rows) +
                     "arrive, end: requests in the second half of the time in which a load sends\n";
  const auto tell = [&text](const std::string& name, const std::string& what) {
    text += name + std::string(10 - name.size(), ' ') + wrapped(what, 10, output_columns());
  };
  text += '\n';
  tell("knee", result.knee ? figures_text(result.points[*result.knee])
                           : "none: the server keeps up with no load of the search");
  if (result.above) tell("above", figures_text(result.points[*result.above]));
  tell("stopped", knee_reason(result, options));
  for (const KneePoint* point : by_rate(result)) {
    if (!point->is_short || point->verdict != KneeVerdict::Behind) continue;
    tell("note", "at " + rate_text(point->rate) +
                     " requests/s the answers take longer than half of the load; with more "
                     "requests (workload.num_requests) the load is longer");
  }
  return text;
}

Json knee_json(const KneeResult& result, const KneeOptions& options) {
  Json json = {{std::string(kResultSchemaKey), kResultSchema}};
  json["knee_rate"] = result.knee ? Json(result.points[*result.knee].rate) : Json(nullptr);
  json["rate_above"] = result.above ? Json(result.points[*result.above].rate) : Json(nullptr);
  json["stopped"] = knee_reason(result, options);
  json["attainment"] = options.attainment;
  json["time_limit_s"] = options.time_limit_s;
  json["point_s"] = options.point_s;
  Json points = Json::array();
  for (const KneePoint* point : by_rate(result)) points.push_back(point_json(*point));
  json["points"] = std::move(points);
  return json;
}

}  // namespace metronome
