// `metronome bench --predict`: what the bench's steps can take at least, and will by a cost model.
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
  std::string hardware;    // of the catalogue, or a YAML file
  std::string cost_model;  // file of a measured one; empty: the roofline of the hardware
  std::string measured;    // what `metronome bench --json` wrote; empty: nothing was measured
  // Of the floor; absent: what was measured, else the hardware's peaks.
  std::optional<MachineRates> rates;
};

struct PredictedPoint {
  BenchCase what;
  double bytes = 0;  // FloorWork
  double flops = 0;
  double floor_us = 0;
  bool is_memory_bound = false;  // its floor is
  double predicted_us = 0;
  std::optional<double> measured_us;  // median
};

struct Prediction {
  ModelConfig model;
  std::string hardware;
  std::string source;  // of the predicted times
  MachineRates rates;
  std::string rates_source;
  std::string device;  // that was measured; empty: none was
  std::vector<PredictedPoint> points;
};

// Every standard case whose contexts the model has positions for. Throws ConfigError: an unknown
// model or hardware, a cost model of another model or hardware, a malformed report or one of
// another model.
Prediction predict_bench(const PredictOptions& options);

std::string prediction_text(const Prediction& prediction);
std::string prediction_json(const Prediction& prediction);

}  // namespace metronome
