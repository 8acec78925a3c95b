// SPDX-License-Identifier: Apache-2.0
#include "core/run/run.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/drive.h"
#include "core/engine/due_arrivals.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/workload/front_end_arrivals.h"
#include "core/workload/session_arrivals.h"
#include "core/workload/workload_arrivals.h"

namespace metronome {

namespace {

// A backend that computes blocks also computes embeddings.
void set_items(const PromptSource& prompts, EngineSetup& setup) {
  setup.encoder.items = &prompts;
  setup.encoder.forgets_unfilled = setup.kv_cache.forgets_unfilled_blocks;
}

}  // namespace

RunOutcome run_workload(const EngineSetup& setup, Executor& executor, Clock& clock,
                        const Workload& workload, std::span<EventSink* const> sinks,
                        const ProgressFn& progress, std::int64_t steps_per_progress,
                        const FrontEnd& front_end) {
  std::optional<SessionArrivals> sessions;
  std::optional<WorkloadArrivals> single;
  std::vector<EventSink*> all_sinks(sinks.begin(), sinks.end());
  if (workload.has_sessions()) {
    all_sinks.push_back(&sessions.emplace(workload));
  } else {
    single.emplace(workload);
  }
  const PromptSource& prompts = sessions ? static_cast<const PromptSource&>(*sessions) : workload;
  ArrivalSource& clients = sessions ? static_cast<ArrivalSource&>(*sessions) : *single;
  const PrefixHasher hasher(&prompts);
  EngineSetup with_items = setup;
  if (!workload.images.empty()) set_items(prompts, with_items);
  Engine engine(with_items, executor, all_sinks, &hasher);
  FrontEndArrivals handed_over(clients, front_end);
  ArrivalSource& arrivals = front_end.is_off() ? clients : handed_over;
  RunOutcome outcome;
  DueArrivals source(arrivals, engine);
  outcome.completed = drive(engine, source, clock, progress, steps_per_progress);
  outcome.num_unsent = workload.requests.size() - arrivals.num_total();
  for (const EndReason reason :
       {EndReason::NeverFits, EndReason::QueueFull, EndReason::StepFailed}) {
    const std::string message = engine.first_message(reason);
    if (!message.empty()) outcome.messages.push_back({reason, message});
  }
  outcome.remark = engine.remark();
  return outcome;
}

void serve_requests(const EngineSetup& setup, Executor& executor, Clock& clock, RequestFeed& feed,
                    std::span<EventSink* const> sinks) {
  const PrefixHasher hasher(&feed);
  EngineSetup with_items = setup;
  if (setup.encoder.takes_images()) set_items(feed, with_items);
  Engine engine(with_items, executor, sinks, &hasher);
  drive(engine, feed, clock);
}

}  // namespace metronome
