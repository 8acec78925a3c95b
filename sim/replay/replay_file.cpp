// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/replay_file.h"

#include <algorithm>
#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <utility>

#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/number_chars.h"
#include "core/metrics/digest.h"
#include "core/metrics/recorded_steps.h"
#include "sim/cost/pass_cost.h"
#include "sim/fitted/fitted_file.h"

namespace metronome {
namespace {

constexpr auto kMostNs = static_cast<TimeNs>(kMaxStepNs);

// When a simulated host would plan each step if the steps took the recorded times.
class HostClock {
 public:
  HostClock(const RunRecord& record, const RecordedSetup& setup) : record_(record), setup_(setup) {
    for (const RequestRecord& request : record.requests) {
      arrivals_.push_back(request.arrival);
      ends_.push_back(request.last_token != kNoTime ? request.last_token : request.ended);
    }
    std::sort(arrivals_.begin(), arrivals_.end());
    std::sort(ends_.begin(), ends_.end());
  }

  TimeNs ready_at(std::size_t step) {
    const TimeNs planned_at = record_.steps.planned_at(step);
    if (!setup_.is_measured) return planned_at + (step == 0 ? setup_.cold_start_ns : 0);
    const TimeNs free_at = host_free_at(step);
    const auto num_until = [&](const std::vector<TimeNs>& times) {
      return std::upper_bound(times.begin(), times.end(), free_at) - times.begin();
    };
    const auto num_arrived = num_until(arrivals_);
    const bool is_idle = num_arrived == num_until(ends_);
    TimeNs ready = free_at;
    if (is_idle && num_arrived < std::ssize(arrivals_)) {
      ready = arrivals_[static_cast<std::size_t>(num_arrived)];
    }
    return std::min(ready, planned_at) + (step == 0 ? setup_.cold_start_ns : 0);
  }

 private:
  // The end of the newest step whose tokens were known when this step was planned.
  TimeNs host_free_at(std::size_t step) const {
    if (step == 0) return 0;
    const StepEntry& entry = record_.steps[step];
    const StepEntry& before = record_.steps[step - 1];
    const bool is_pipelined = setup_.async_depth > 1 &&
                              (entry.num_continued > 0 || entry.planned_at < before.finished_at);
    if (!is_pipelined) return before.finished_at;
    return step == 1 ? 0 : record_.steps.finished_at(step - 2);
  }

  const RunRecord& record_;
  const RecordedSetup& setup_;
  std::vector<TimeNs> arrivals_;
  std::vector<TimeNs> ends_;
};

std::uint64_t read_hex(const JsonPlace& place) {
  const std::string text = place.text();
  std::uint64_t number = 0;
  const auto [end, error] = read_number(text.data(), text.data() + text.size(), number, 16);
  if (text.size() != kHexDigits || error != std::errc() || end != text.data() + text.size()) {
    place.fail("is not a number of 16 hexadecimal digits");
  }
  return number;
}

Json time_json(TimeNs ns) { return ns == kNoTime ? Json() : Json(ns); }

TimeNs read_time(const JsonPlace& place) {
  return place.is_null() ? kNoTime : place.integer(0, kMostNs);
}

// The part of the file that would be the body of a file of kind `fitted`.
CostModelFile fitted_part(const CostModelFile& file) {
  const JsonPlace body(file.name + ": " + file.body_place, *file.body);
  const JsonPlace fitted = body.at("fitted");
  if (!fitted.json().is_object()) fitted.fail("is not an object");
  CostModelFile part = file;
  part.kind = "fitted";
  part.body_place = file.body_place + ": fitted";
  part.body = std::make_shared<const Json>(fitted.json());
  return part;
}

// Columns of the rows in `steps`, in order.
Json column_names() {
  return {"composition", "device_ns", "gap_ns", "is_gap_hidden", "decode_only_ns"};
}

}  // namespace

std::vector<RecordedStep> replay_steps(const RunRecord& record, const RecordedSetup& setup) {
  std::vector<RecordedStep> all;
  HostClock host(record, setup);
  RecordedSteps steps(record, setup.step_shape);
  StepPlan plan;
  TimeNs free_at = 0;  // of the device
  while (steps.next(plan)) {
    const std::size_t at = steps.position();
    const StepEntry& entry = record.steps[at];
    RecordedStep step;
    if (!entry.failed && steps.num_missing_decodes() == 0 && !plan.passes.empty()) {
      step.composition = step_composition(plan);
    }
    step.device_ns =
        entry.finished_at - std::min(std::max(entry.started_at, free_at), entry.finished_at);
    step.gap_ns = std::max<TimeNs>(entry.started_at - host.ready_at(at), 0);
    step.is_gap_hidden = at > 0 && entry.started_at <= free_at;
    step.decode_only_ns = entry.decode_only_ns;
    free_at = std::max(free_at, entry.finished_at);
    all.push_back(step);
  }
  return all;
}

Json replay_body(const std::vector<RecordedStep>& steps, const FittedModel& fitted,
                 const ModelConfig& model) {
  Json body;
  body["columns"] = column_names();
  body["steps"] = Json::array();
  for (const RecordedStep& step : steps) {
    body["steps"].push_back({hex_digits(step.composition), step.device_ns, time_json(step.gap_ns),
                             step.is_gap_hidden, time_json(step.decode_only_ns)});
  }
  body["fitted"] = fitted_body(fitted, model);
  return body;
}

std::vector<RecordedStep> read_replay(const CostModelFile& file) {
  std::vector<RecordedStep> steps;
  const JsonPlace body(file.name + ": " + file.body_place, *file.body);
  if (body.at("columns").json() != column_names()) {
    body.at("columns").fail("is not " + column_names().dump() +
                            "; allowed: these columns, in this order");
  }
  body.at("steps").for_each([&](const JsonPlace& row) {
    RecordedStep step;
    std::size_t column = 0;
    row.for_each([&](const JsonPlace& cell) {
      switch (column++) {
        case 0: step.composition = read_hex(cell); break;
        case 1: step.device_ns = cell.integer(0, kMostNs); break;
        case 2: step.gap_ns = read_time(cell); break;
        case 3: step.is_gap_hidden = cell.truth(); break;
        case 4: step.decode_only_ns = read_time(cell); break;
        default: break;
      }
    });
    if (column != 5) row.fail(fmt::format("has {} columns; allowed: 5", column));
    steps.push_back(step);
  });
  return steps;
}

std::unique_ptr<CostModel> make_replay_cost_model(const CostModelFile& file,
                                                  const ModelConfig& model,
                                                  const HardwareSpec& hardware,
                                                  const CostModelConfig& config) {
  std::unique_ptr<CostModel> unseen =
      make_fitted_cost_model(fitted_part(file), model, hardware, config);
  return std::make_unique<ReplayCostModel>(read_replay(file), std::move(unseen),
                                           config.host_gap_us.has_value());
}

}  // namespace metronome
