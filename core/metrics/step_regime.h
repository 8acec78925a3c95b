// SPDX-License-Identifier: Apache-2.0
// Groups steps whose times depend on the same quantities, and reports prediction errors per group.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/engine/step_kind.h"

namespace metronome {

// The kinds of steps (core/engine/step_kind.h) in reports and in measured noise. Decode-only steps
// are split by batch size ("decode 1-8", "decode 9-16", ...). The others are prefill-only and mixed
// steps. Regimes sort in this order.
struct StepRegime {
  std::int32_t order = 0;
  std::string name;

  bool operator<(const StepRegime& other) const { return order < other.order; }
};
StepRegime step_regime(const StepTokens& tokens);
// The `order` alone, without allocating a name; and the regime of such an order.
std::int32_t step_regime_order(const StepTokens& tokens);
StepRegime step_regime_of_order(std::int32_t order);

// Statistics of predicted / measured - 1.
struct RegimeError {
  std::string regime;  // a StepRegime's name, or "all"
  std::int64_t num_steps = 0;
  double mean_ms = 0;  // measured
  double mean_error = 0;
  double mean_abs_error = 0;
  double p95_abs_error = 0;
  double worst_error = 0;  // the signed error of largest magnitude
  std::int64_t worst_step = 0;
  double total_error = 0;  // of the sum of all times
};

class RegimeErrors {
 public:
  void add(const StepRegime& regime, double measured_ns, double predicted_ns, std::int64_t step);
  // By regime, then "all" if there are any steps.
  std::vector<RegimeError> summaries() const;

 private:
  struct Errors {
    std::vector<double> errors;
    std::vector<std::int64_t> steps;
    double sum_ns = 0;
    double predicted_ns = 0;

    RegimeError summary(const std::string& regime) const;
  };
  std::map<StepRegime, Errors> regimes_;
  Errors all_;
};

}  // namespace metronome
