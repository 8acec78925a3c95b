// SPDX-License-Identifier: Apache-2.0
#include "study/bench/bench_predict.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <sstream>

#include "core/base/command_errors.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/number_text.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "reports/terminal/text.h"
#include "sim/simulation.h"
#include "study/bench/bench_cases.h"

namespace metronome {
namespace {

SourceLocation option(const char* name) { return {std::make_shared<const std::string>(name), 0}; }

struct MeasuredBench {
  std::string device;
  MachineRates rates;
  std::vector<std::pair<BenchCase, double>> medians_us;
};

bool is_same(const BenchCase& a, const BenchCase& b) {
  return a.num_decodes == b.num_decodes && a.context == b.context && a.chunk_size == b.chunk_size &&
         a.prefix == b.prefix;
}

MeasuredBench read_measured(const std::string& path, const ModelConfig& model) {
  const Json json = read_json_file(path, "a file of `metronome bench --json`");
  const JsonPlace root(path, json);
  if (!root.has("metronome_bench")) {
    root.fail("is not a bench report; allowed: a file of `metronome bench --json`");
  }
  const std::string name = root.at("model").text();
  if (name != model.name) {
    root.at("model").fail("is " + printable(name) + ", not " + model.name +
                          "; allowed: the predicted model");
  }
  constexpr double kMost = 1e18;
  MeasuredBench bench;
  bench.device = root.at("device").text();
  bench.rates.copy_bytes_per_s = root.at("copy_bytes_per_s").number(1, kMost);
  bench.rates.matrix_flops_per_s = root.at("matrix_flops_per_s").number(1, kMost);
  root.at("points").for_each([&](const JsonPlace& point) {
    const BenchCase what{.num_decodes = point.at("decodes").count(),
                         .context = point.at("context").count(),
                         .chunk_size = point.at("chunk").count(),
                         .prefix = point.at("prefix").count()};
    bench.medians_us.emplace_back(what, point.at("median_us").number(0, kMost));
  });
  return bench;
}

std::string rates_text(const MachineRates& rates) {
  return fixed_text(rates.copy_bytes_per_s / 1e12, 2) + " TB/s and " +
         fixed_text(rates.matrix_flops_per_s / 1e12, 0) + " TFLOP/s";
}

// The share of the floor in the measured time, and the error of the prediction: means over the
// measured points.
std::string measured_text(const std::vector<PredictedPoint>& points) {
  double floor_share = 0;
  double error = 0;
  double count = 0;
  for (const PredictedPoint& point : points) {
    if (!point.measured_us) continue;
    floor_share += point.floor_us / *point.measured_us;
    error += std::abs(point.predicted_us / *point.measured_us - 1);
    count += 1;
  }
  if (count == 0) return "none of these steps was measured\n";
  return "on average " + fixed_text(100 * floor_share / count, 0) +
         " % of the floor, and predicted to within " + fixed_text(100 * error / count, 1) + " %\n";
}

}  // namespace

Prediction predict_bench(const PredictOptions& options) {
  Prediction result;
  result.model = find_model(options.model, option("MODEL"));
  const HardwareSpec hardware = find_hardware(options.hardware, option("--predict"));
  result.hardware = hardware.name;
  result.rates = {.copy_bytes_per_s = hardware.peak_bandwidth,
                  .matrix_flops_per_s = hardware.peak_flops};
  result.rates_source = "peaks of " + hardware.name;
  std::optional<MeasuredBench> measured;
  if (!options.measured.empty()) {
    measured = read_measured(options.measured, result.model);
    result.device = measured->device;
    result.rates = measured->rates;
    result.rates_source = "measured with the steps";
  }
  if (options.rates) {
    result.rates = *options.rates;
    result.rates_source = "given";
  }
  Scenario scenario;
  scenario.model = options.model;
  scenario.hardware = options.hardware;
  scenario.cost_model.file = options.cost_model;
  const std::unique_ptr<StepTimePredictor> predictor =
      make_step_predictor(on_own_engine(scenario), result.model);
  result.source = options.cost_model.empty() ? "roofline of " + hardware.name : options.cost_model;
  for (const BenchCase& what : standard_cases()) {
    const std::int64_t longest = std::max(what.context, what.prefix + what.chunk_size);
    if (longest > result.model.max_context()) continue;
    const StepPlan plan = plan_of(what);
    const FloorWork work = floor_work(result.model, plan.chunks);
    PredictedPoint point{.what = what,
                         .bytes = work.bytes,
                         .flops = work.flops,
                         .floor_us = step_floor_s(work, result.rates) * 1e6,
                         .is_memory_bound = work.bytes / result.rates.copy_bytes_per_s >
                                            work.flops / result.rates.matrix_flops_per_s,
                         .predicted_us = static_cast<double>(predictor->step_ns(plan)) / 1e3,
                         .measured_us = {}};
    if (measured) {
      for (const auto& [other, median_us] : measured->medians_us) {
        if (is_same(what, other)) point.measured_us = median_us;
      }
    }
    result.points.push_back(point);
  }
  return result;
}

std::string prediction_text(const Prediction& prediction) {
  const bool has_measured = !prediction.device.empty();
  std::ostringstream out;
  out << "model       " << prediction.model.name << '\n'
      << "floor       by " << rates_text(prediction.rates) << ", " << prediction.rates_source
      << '\n'
      << "predicted   by " << printable(prediction.source) << "; nothing was run here\n";
  if (has_measured) out << "measured    " << printable(prediction.device) << '\n';
  out << '\n';
  std::vector<std::vector<std::string>> rows = {
      {"step", "GB", "TFLOP", "floor ms", "bound by", "predicted ms", "floor/predicted"}};
  if (has_measured) {
    for (const char* name : {"measured ms", "floor/measured", "predicted/measured"}) {
      rows.front().emplace_back(name);
    }
  }
  for (const PredictedPoint& point : prediction.points) {
    rows.push_back({case_text(point.what), fixed_text(point.bytes / 1e9, 3),
                    fixed_text(point.flops / 1e12, 3), fixed_text(point.floor_us / 1e3, 3),
                    point.is_memory_bound ? "memory" : "arithmetic",
                    fixed_text(point.predicted_us / 1e3, 3),
                    fixed_text(point.floor_us / point.predicted_us, 2)});
    if (!has_measured) continue;
    const auto beside = [&](double us) {
      return point.measured_us ? fixed_text(us / *point.measured_us, 2) : std::string("-");
    };
    rows.back().push_back(point.measured_us ? fixed_text(*point.measured_us / 1e3, 3) : "-");
    rows.back().push_back(beside(point.floor_us));
    rows.back().push_back(beside(point.predicted_us));
  }
  out << aligned_rows(rows);
  if (has_measured) out << '\n' << measured_text(prediction.points);
  return out.str();
}

std::string prediction_json(const Prediction& prediction) {
  Json json = {{"metronome_prediction", 1},
               {"model", prediction.model.name},
               {"hardware", prediction.hardware},
               {"source", prediction.source},
               {"copy_bytes_per_s", prediction.rates.copy_bytes_per_s},
               {"matrix_flops_per_s", prediction.rates.matrix_flops_per_s},
               {"rates_source", prediction.rates_source},
               {"device", prediction.device.empty() ? Json() : Json(prediction.device)},
               {"points", Json::array()}};
  for (const PredictedPoint& point : prediction.points) {
    json["points"].push_back(
        {{"decodes", point.what.num_decodes},
         {"context", point.what.context},
         {"chunk", point.what.chunk_size},
         {"prefix", point.what.prefix},
         {"bytes", point.bytes},
         {"flops", point.flops},
         {"floor_us", point.floor_us},
         {"bound", point.is_memory_bound ? "memory" : "arithmetic"},
         {"predicted_us", point.predicted_us},
         {"measured_us", point.measured_us ? Json(*point.measured_us) : Json()}});
  }
  return json.dump(2) + "\n";
}

}  // namespace metronome
