#include "core/run.h"

#include "core/prefix_hash.h"

namespace metronome {

RunOutcome run_workload(const EngineSetup& setup, Executor& executor, Clock& clock,
                        const Workload& workload, std::span<EventSink* const> sinks,
                        const ProgressFn& progress, std::int64_t steps_per_progress) {
  const PrefixHasher hasher(&workload);
  Engine engine(setup, executor, clock, sinks, &hasher);
  ArrivalSource arrivals(workload);
  RunOutcome outcome;
  outcome.completed = engine.run(arrivals, progress, steps_per_progress);
  for (const EndReason reason :
       {EndReason::NeverFits, EndReason::QueueFull, EndReason::StepFailed}) {
    const std::string& message = engine.first_message(reason);
    if (!message.empty()) outcome.messages.push_back({reason, message});
  }
  outcome.remark = engine.remark();
  return outcome;
}

}  // namespace metronome
