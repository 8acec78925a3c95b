// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/checked.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/cost/csv_table.h"

namespace metronome {

extern const std::string_view kCheckedCsv;  // sim/catalogue/checked.csv

namespace {

struct Checked {
  std::string cost_model;
  std::string hardware;
  bool has_experts = false;
  std::string weights;
  std::int64_t tensor_parallel_size = 1;
};

std::vector<Checked> read_checked() {
  CsvTable csv(kCheckedCsv, "checked.csv",
               {"cost_model", "hardware", "model", "weights", "tensor_parallel_size"});
  std::vector<Checked> all;
  while (csv.next()) {
    all.push_back({std::string(csv.text("cost_model")), std::string(csv.text("hardware")),
                   csv.text("model") == "experts", std::string(csv.text("weights")),
                   static_cast<std::int64_t>(csv.amount("tensor_parallel_size"))});
  }
  return all;
}

}  // namespace

std::string unchecked_warning(std::string_view cost_model, const HardwareSpec& hardware,
                              const ModelConfig& model, std::int64_t tensor_parallel_size) {
  if (cost_model != "roofline" && cost_model != "operators") return {};
  static const std::vector<Checked> all = read_checked();
  const bool has_experts = model.n_experts > 0;
  const WeightFormat format = has_experts ? model.expert_format : model.linear_format;
  const auto any = [&](auto is_near) {
    return std::any_of(all.begin(), all.end(), [&](const Checked& checked) {
      return checked.cost_model == cost_model && checked.hardware == hardware.name &&
             is_near(checked);
    });
  };
  std::string what;
  if (!any([](const Checked&) { return true; })) {
    what = "of this GPU";
  } else if (has_experts && !any([](const Checked& checked) { return checked.has_experts; })) {
    what = "of a mixture of experts on this GPU";
  } else if (format != WeightFormat::Plain &&
             !any([&](const Checked& checked) { return checked.weights == to_string(format); })) {
    what = "with " + std::string(to_string(format)) + " weights on this GPU";
  } else if (tensor_parallel_size > 1 && !any([&](const Checked& checked) {
               return 2 * checked.tensor_parallel_size >= tensor_parallel_size;
             })) {
    what = "of so many GPUs";
  }
  if (what.empty()) return {};
  return hardware.name + ": " + std::string(cost_model) + " times " + what +
         " were never compared with a measured run (docs/accuracy.md)";
}

}  // namespace metronome
