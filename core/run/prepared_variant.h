// SPDX-License-Identifier: Apache-2.0
// A scenario that is ready to run, with its workload.
#pragma once

#include <memory>

#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "core/workload/workload.h"

namespace metronome {

// Everything a run needs. All errors in it have been reported before.
struct PreparedVariant {
  Scenario scenario;
  std::unique_ptr<PreparedRun> run;
  std::shared_ptr<const Workload> workload;  // shared by all variants with the same workload
};

}  // namespace metronome
