// SPDX-License-Identifier: Apache-2.0
// Open-loop load on a server. Every request of a workload is sent when it is due, regardless of the
// server, on its own connection. The time of every token is recorded. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/engine/clock.h"
#include "core/engine/request.h"
#include "core/workload/workload.h"
#include "serve/client/load_requests.h"
#include "serve/client/server_probe.h"

namespace metronome {

struct LoadOptions {
  ServerAddress address;
  std::int64_t max_concurrency = 0;  // requests in progress at once; 0: no limit
  TimeNs timeout_ns = 0;             // per request, from when it is ready to be sent
  TimeNs most_ns = kNever;           // of the load: then the requests that are left are given up
  // Called a hundred times per second; an exception from it ends the load.
  std::function<void(std::size_t num_ended)> on_tick = [](std::size_t) {};
};

// The result of a request. Times are on the load's clock; kNoTime if the event did not happen.
struct LoadedRequest {
  TimeNs due = kNoTime;    // arrival time in the workload
  TimeNs ready = kNoTime;  // `due`, or when max_concurrency allowed the request
  TimeNs sent = kNoTime;   // written to its connection's socket
  TimeNs ended = kNoTime;
  std::vector<TimeNs> tokens;                     // when each event with tokens had been read
  std::optional<std::int64_t> prompt_tokens;      // the server's count
  std::optional<std::int64_t> completion_tokens;  // the server's count
  EndReason reason = EndReason::None;
  std::string error;  // one line; empty: no error
};

// How the client's event loop performed.
struct LoadLoop {
  TimeNs wall_ns = 0;
  TimeNs cpu_ns = 0;                 // of the thread, user and system
  double busiest_second = 0;         // highest share of the processor in any second
  std::vector<TimeNs> lags;          // delay of each tick
  std::int64_t num_reads = 0;        // reads that returned bytes
  std::int64_t num_events = 0;       // events with tokens
  std::int64_t num_merged = 0;       // of those, after another of the same request in one read
  std::int64_t num_connections = 0;  // opened in total
  std::int64_t num_retries = 0;      // a kept connection was closed when a request was sent on it
};

struct LoadResult {
  std::vector<LoadedRequest> requests;  // by RequestId
  LoadLoop loop;
};

// Sends the workload, whose arrivals are not by steps, and reads every answer completely. `clock`
// is real time; the load begins at its now(). Throws the exceptions of on_tick.
LoadResult run_load(const Workload& workload, LoadRequestQueue& texts, const Clock& clock,
                    const LoadOptions& options);

// The number of files and sockets that the process may open. Raises the soft limit to the hard
// limit.
std::int64_t raise_open_file_limit();
// A lower estimate of the most connections that a workload needs at once.
std::int64_t connections_wanted(const Workload& workload, std::int64_t max_concurrency);

}  // namespace metronome
