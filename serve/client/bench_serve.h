// SPDX-License-Identifier: Apache-2.0
// The result of a load on a server: its record, the client's health, and warnings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/workload/workload.h"
#include "serve/client/load_client.h"

namespace metronome {

// A request counts from when it was written to its socket, or from when it was ready if it never
// was. Token counts come from the server's usage if present. On the chat endpoint so do prompt
// counts, as the server adds its template.
RunRecord record_of_load(const Workload& workload, const LoadResult& load, LoadEndpoint endpoint);

// Whether the client was fast enough to measure the server and not itself.
struct ClientHealth {
  Distribution send_delay;  // sent - due: the total wait in the client
  Distribution send_late;   // sent - ready: excludes the wait for max_concurrency
  Distribution loop_lag;    // of ticks of the event loop
  double cpu_share = 0;     // of the thread, over the whole load
  double busiest_second = 0;
  std::int64_t num_reads = 0;
  std::int64_t num_events = 0;  // events with tokens
  std::int64_t num_merged = 0;  // of those, read together with another event of the same request
  std::int64_t num_connections = 0;
  std::int64_t num_retries = 0;
  double median_itl_ms = 0;  // NaN: no ITL
};

ClientHealth client_health(const LoadResult& load, const Summary& summary);

// The object "client" of result.json.
Json client_json(const ClientHealth& health);

// One sentence each, with figures; empty if the client kept up.
std::vector<std::string> client_warnings(const ClientHealth& health);

// Differences between the server's token counts and the requested or received ones; failures, with
// the first of each kind.
std::vector<std::string> load_warnings(const Workload& workload, const LoadResult& load,
                                       LoadEndpoint endpoint);

// Appends the keys that `vllm bench serve --save-detailed` adds to those of result.json. Times are
// in seconds.
void append_vllm_detail(const RunRecord& record, const LoadResult& load, JsonText& json);

}  // namespace metronome
