// SPDX-License-Identifier: Apache-2.0
#include "core/engine/event.h"

namespace metronome {

std::string_view to_string(FleetChange change) {
  switch (change) {
    case FleetChange::Failed: return "failed";
    case FleetChange::Recovered: return "recovered";
    case FleetChange::Added: return "added";
    case FleetChange::Ready: return "ready";
    case FleetChange::Draining: return "draining";
    case FleetChange::Removed: return "removed";
  }
  return "?";
}

}  // namespace metronome
