// SPDX-License-Identifier: Apache-2.0
// A fitted cost model for tests: every coefficient is known, and every step is inside its range.
#pragma once

#include "sim/fitted/fitted_model.h"

namespace metronome::testing {

inline FittedModel known_model() {
  FittedModel fitted;
  fitted.form = {.graph = 1.5e6,
                 .eager = 2e6,
                 .prefill = 0,
                 .pair = 2,
                 .chunk = 1e5,
                 .decode = 2e4,
                 .decode_kv = 12,
                 .head = 0,
                 .row = 1e4,
                 .tokens = {{0, 0, 9e3}},
                 .max_graph_decodes = {}};
  fitted.tokens_shape = "a line";
  fitted.decode_range = FeatureRange{{}, {1e4, 1e10, 1e4, 1e4, 1e8, 1e4}};
  fitted.prefill_range = fitted.decode_range;
  fitted.host_gap_ns = 120'000;
  return fitted;
}

// Times of all steps scatter evenly, from `least` to `least` + `width` times the fitted ones.
inline void scatter_evenly(FittedModel& fitted, double least, double width) {
  StepScatter scatter{step_regime({.prefill = 0, .decode = 1}), {}};
  for (const double share : StepScatter::kShares) {
    scatter.ratios.push_back(least + share * width);
  }
  fitted.scatter = {scatter};
}

}  // namespace metronome::testing
