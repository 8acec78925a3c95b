#include "study/run/saturation.h"

#include <algorithm>
#include <vector>

#include "core/base/command_errors.h"
#include "core/base/progress.h"
#include "core/workload/workload_cut.h"
#include "sim/virtual_clock.h"

namespace metronome {
namespace {

constexpr std::size_t kMostRequests = 1000;

// The first arrivals of the workload, all at 0, in the same order. `count` is of requests, or of
// whole sessions with at least as many requests.
Workload saturated(const Workload& workload, std::size_t count) {
  Workload result = workload;
  result.mode = ArrivalMode::Timed;
  result.concurrency = 0;
  result.think_time = 0;
  std::size_t num_kept = std::min(count, workload.requests.size());
  if (workload.has_sessions()) {
    const auto last =
        std::lower_bound(workload.session_begin.begin(), workload.session_begin.end(), num_kept);
    result.session_begin.assign(workload.session_begin.begin(), last + 1);
    num_kept = *last;
    result.delays.assign(num_kept, 0);
  }
  keep_first(num_kept, result);
  for (RequestSpec& request : result.requests) request.arrival = 0;
  return result;
}

// Counts the requests that got all their tokens.
class CompletedCount final : public EventSink {
 public:
  void on_event(const Event& event, const Request& request) override {
    const bool is_completed =
        event.kind == EventKind::Ended && request.state == RequestState::Finished;
    count_ += is_completed ? 1 : 0;
  }
  bool takes_runs() const override { return true; }
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}
  double count() const { return count_; }

 private:
  double count_ = 0;
};

struct Saturated {
  double num_completed;
  double seconds;
};

Saturated simulate(PreparedVariant& variant, std::size_t count) {
  const Workload workload = saturated(*variant.workload, count);
  CompletedCount completed;
  EventSink* const sinks[] = {&completed};
  VirtualClock clock;
  const RunOutcome run = variant.run->run(workload, clock, sinks, [](const RunProgress&) {
    throw_if_interrupted();
    return true;
  });
  if (!run.completed) throw Interrupted();
  return {completed.count(), to_seconds(clock.now())};
}

}  // namespace

double most_requests_per_s(PreparedVariant& variant) {
  const std::size_t all = std::min(variant.workload->requests.size(), kMostRequests);
  const Saturated whole = simulate(variant, all);
  const Saturated half = simulate(variant, std::max<std::size_t>(all / 2, 1));
  const double seconds = whole.seconds - half.seconds;
  if (whole.num_completed > half.num_completed && seconds > 0) {
    return (whole.num_completed - half.num_completed) / seconds;
  }
  return whole.seconds > 0 ? whole.num_completed / whole.seconds : 0;
}

}  // namespace metronome
