// Steps whose times depend on the same things, and how far predicted step times are off in each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/engine/step_kind.h"

namespace metronome {

// The kinds of steps (core/engine/step_kind.h) that reports and measured scatter know: decodes
// alone by the size of their batch ("decode 1-8", "decode 9-16", ...), prefill chunks alone, and
// both. Regimes sort in this order.
struct StepRegime {
  std::int32_t order = 0;
  std::string name;

  bool operator<(const StepRegime& other) const { return order < other.order; }
};
StepRegime step_regime(const StepTokens& tokens);
// Its `order` alone, without a name to allocate; and the regime of such a number.
std::int32_t step_regime_order(const StepTokens& tokens);
StepRegime step_regime_of_order(std::int32_t order);

// Of predicted / measured - 1.
struct RegimeError {
  std::string regime;  // a StepRegime's name, or "all"
  std::int64_t num_steps = 0;
  double mean_ms = 0;  // measured
  double mean_error = 0;
  double mean_abs_error = 0;
  double p95_abs_error = 0;
  double worst_error = 0;  // the signed error of largest size
  std::int64_t worst_step = 0;
};

class RegimeErrors {
 public:
  void add(const StepRegime& regime, double measured_ns, double predicted_ns, std::int64_t step);
  // By regime, then "all" where there are any.
  std::vector<RegimeError> summaries() const;

 private:
  struct Errors {
    std::vector<double> errors;
    std::vector<std::int64_t> steps;
    double sum_ns = 0;

    RegimeError summary(const std::string& regime) const;
  };
  std::map<StepRegime, Errors> regimes_;
  Errors all_;
};

}  // namespace metronome
