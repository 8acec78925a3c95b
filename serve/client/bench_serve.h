// What a load on a server comes to: its record, how the client did, and what to warn of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/distribution.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/workload/workload.h"
#include "serve/client/load_client.h"

namespace metronome {

// A request counts from when it was handed to its socket; one that never was, from when it was
// ready. Tokens are counted as the server's usage has them where it sent that; prompts too on the
// chat endpoint, which adds its template.
RunRecord record_of_load(const Workload& workload, const LoadResult& load, LoadEndpoint endpoint);

// Whether the client measured the server, or itself.
struct ClientHealth {
  Distribution send_delay;  // sent - due: all that a request waited in the client
  Distribution send_late;   // sent - ready: without what max_concurrency held back
  Distribution loop_lag;    // of ticks of the event loop
  double cpu_share = 0;     // of the thread, over the whole load
  double busiest_second = 0;
  std::int64_t num_reads = 0;
  std::int64_t num_events = 0;  // with tokens
  std::int64_t num_merged = 0;  // read together with another of the same request
  std::int64_t num_connections = 0;
  std::int64_t num_retries = 0;
  double median_itl_ms = 0;  // NaN: there is none
};

ClientHealth client_health(const LoadResult& load, const Summary& summary);

// The object "client" of result.json.
std::string client_json(const ClientHealth& health);

// One sentence each, with its figures; none when the client kept up.
std::vector<std::string> client_warnings(const ClientHealth& health);

// Where the server's counts are not what was asked for or seen, and failures with the first of each
// kind.
std::vector<std::string> load_warnings(const Workload& workload, const LoadResult& load,
                                       LoadEndpoint endpoint);

// The JSON of `vllm bench serve --save-result --save-detailed`, from the keys of result.json on;
// raw times are seconds.
std::string vllm_detailed_json(const std::string& flat_json, const RunRecord& record,
                               const LoadResult& load);

}  // namespace metronome
