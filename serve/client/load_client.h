// Open-loop load on a server: every request of a workload is sent when it is due, whatever the
// server does, on a connection of its own, and the time of every token is kept. One thread.
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
  std::int64_t max_concurrency = 0;  // requests on the way at once; 0: no limit
  TimeNs timeout_ns = 0;             // of a request, from when it is ready to be sent
  // Called a hundred times a second; what it throws ends the load.
  std::function<void(std::size_t num_ended)> on_tick = [](std::size_t) {};
};

// What became of a request. Times are on the clock of the load, kNoTime for what did not happen.
struct LoadedRequest {
  TimeNs due = kNoTime;    // when the workload has it arrive
  TimeNs ready = kNoTime;  // the same, or when max_concurrency had room for it
  TimeNs sent = kNoTime;   // handed to its connection's socket
  TimeNs ended = kNoTime;
  std::vector<TimeNs> tokens;  // of every event that carried tokens: when it had been read
  std::optional<std::int64_t> prompt_tokens;      // as the server counted them
  std::optional<std::int64_t> completion_tokens;  // as the server counted them
  EndReason reason = EndReason::None;
  std::string error;  // one line; empty: it was answered
};

// How the client itself did.
struct LoadLoop {
  TimeNs wall_ns = 0;
  TimeNs cpu_ns = 0;                 // of the thread, user and system
  double busiest_second = 0;         // greatest share of the processor in any second
  std::vector<TimeNs> lags;          // by how much each tick came late
  std::int64_t num_reads = 0;        // that brought bytes
  std::int64_t num_events = 0;       // with tokens
  std::int64_t num_merged = 0;       // of those, behind another of the same request in one read
  std::int64_t num_connections = 0;  // ever opened
  std::int64_t num_retries = 0;      // a kept connection had gone when a request was sent on it
};

struct LoadResult {
  std::vector<LoadedRequest> requests;  // by RequestId
  LoadLoop loop;
};

// Sends the workload, whose arrivals are not by steps, and reads every answer to its end. `clock`
// is real; the load begins at its now(). Throws what on_tick throws.
LoadResult run_load(const Workload& workload, LoadRequestQueue& texts, const Clock& clock,
                    const LoadOptions& options);

// Files and sockets that the process may have open: the soft limit, raised to the hard one.
std::int64_t raise_open_file_limit();
// The most connections that a workload may need at once: a guess from below.
std::int64_t connections_wanted(const Workload& workload, std::int64_t max_concurrency);

}  // namespace metronome
