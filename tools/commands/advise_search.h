// SPDX-License-Identifier: Apache-2.0
// The findings of `metronome advise` in the last steps of a server's log.
#pragma once

#include <string>

#include "core/metrics/slo_config.h"
#include "engines/log/engine_log.h"
#include "study/watch/watch_report.h"

namespace metronome {

struct AdviceSearch {
  SloConfig goals;
  std::string model, gpu;  // in place of the log's; may be empty
  int num_threads = 1;
  bool is_quiet = false;
};

// Adds what the metrics say of the KV cache and the log does not.
void add_cache(const WatchReport& report, EngineLog& log);

// Diagnoses the log, and replays its requests with other settings: sets causes, advice and notes of
// the report. Input that cannot be replayed is a note. Throws Interrupted.
void search_advice(const EngineLog& log, const AdviceSearch& search, WatchReport& report);

}  // namespace metronome
