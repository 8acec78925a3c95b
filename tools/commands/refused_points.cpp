// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/refused_points.h"

#include <iostream>

#include "core/base/count_text.h"

namespace metronome {

std::string refused_text(const SweepPlan& plan) {
  if (plan.invalid.empty()) return "";
  return count_text(plan.invalid.size(), "point") +
         (plan.invalid.size() == 1 ? " is not a valid scenario" : " are not valid scenarios");
}

void print_refused(const SweepPlan& plan, const char* severity) {
  if (plan.invalid.empty()) return;
  std::cerr << "metronome: " << severity << ": " << refused_text(plan) << ":\n";
  for (const std::string& error : plan.invalid) std::cerr << "  " << error << '\n';
}

}  // namespace metronome
