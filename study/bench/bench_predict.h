// SPDX-License-Identifier: Apache-2.0
// `metronome bench --predict`: the floor and the cost model's prediction for the steps of
// `metronome bench`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "gpu/plan/bench_report.h"

namespace metronome {

struct PredictOptions {
  std::string model;
  std::string hardware;    // a catalogue name or a YAML file
  std::string cost_model;  // a measured cost model file; empty: the roofline of the hardware
  std::string measured;    // output file of `metronome bench --json`; empty: no measurements
  // Rates of the floor; absent: the measured rates, else the hardware's peaks.
  std::optional<MachineRates> rates;
};

struct PredictedPoint {
  BenchCase what;
  double bytes = 0;  // FloorWork
  double flops = 0;
  double floor_us = 0;
  bool is_memory_bound = false;  // whether its floor is bound by memory bandwidth
  double predicted_us = 0;
  std::optional<double> measured_us;  // median
};

struct Prediction {
  ModelConfig model;
  std::string hardware;
  std::string source;  // of the predicted times
  MachineRates rates;
  std::string rates_source;
  std::string device;  // the measured device; empty: no measurements
  std::vector<PredictedPoint> points;
};

// Predicts every standard case whose contexts fit the model's positions. Throws ConfigError for an
// unknown model or hardware, a cost model of another model or hardware, and a report that is
// malformed or of another model.
Prediction predict_bench(const PredictOptions& options);

std::string prediction_text(const Prediction& prediction);
std::string prediction_json(const Prediction& prediction);

}  // namespace metronome
