// SPDX-License-Identifier: Apache-2.0
// An engine in this process, and a client that asks it.
#pragma once

#include <cstdint>

#include "serve/server/live_engine.h"
#include "serve/server/local_client.h"
#include "serve/server/plausible_text.h"
#include "serve/server/serve_clock.h"
#include "tools/commands/local_model.h"

namespace metronome {

// `local` outlives it and is not used anew meanwhile. An EngineThread runs `engine`; the client
// then gets its events. Simulated time is as fast as real time.
struct LocalEngine {
  explicit LocalEngine(LocalModel& local)
      : clock(local.is_simulated() ? ServeClock(1) : ServeClock()),
        text(*local.served().tokenizer),
        engine(local.run(), clock, text, kMaxWaiting, [this] { client.on_events(); }),
        client(local.served(), engine) {}

  static constexpr std::int64_t kMaxWaiting = 16;  // the client asks a few requests at once

  ServeClock clock;
  PlausibleText text;
  LiveEngine engine;
  LocalClient client;
};

}  // namespace metronome
