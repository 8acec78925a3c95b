// SPDX-License-Identifier: Apache-2.0
// Times of steps by the host's clock, from events that know none.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "gpu/engine/step_timer.h"
#include "study/run/wall_clock.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr TimeNs kResolution = 1'000;  // of events: half a microsecond each

// A second opinion on how long a step took: events just outside and just inside the timer's own.
struct Marks {
  std::array<CudaEvent, 4> events{make_event(), make_event(), make_event(), make_event()};

  void record(std::size_t i, const Stream& stream) const {
    check_cuda(cudaEventRecord(events[i].get(), stream.get()), "cudaEventRecord");
  }
  TimeNs around_ns() const { return std::llround(elapsed_ms(events[0], events[3]) * 1e6); }
  TimeNs inside_ns() const { return std::llround(elapsed_ms(events[1], events[2]) * 1e6); }
};

}  // namespace

TEST_CASE("steps are timed one after another, between launch and wait", "[gpu][timer]") {
  const Stream stream = make_stream();
  const DeviceArray<std::byte> memory(std::size_t{1} << 18);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    Rng rng(seed, "step timer");
    WallClock clock;
    StepTimer timer(clock);
    std::deque<TimeNs> launched;
    TimeNs finished_at = 0;
    std::deque<Marks> marks;
    const auto wait = [&] {
      const StepTimer::Times times = timer.wait();
      const TimeNs duration = times.finished_at - times.started_at;
      check_cuda(cudaEventSynchronize(marks.front().events[3].get()), "cudaEventSynchronize");
      // Less than what lies inside only where that would begin before the launch or the step
      // before.
      const TimeNs possible = times.finished_at - std::max(finished_at, launched.front());
      CHECK(duration >= std::min(marks.front().inside_ns() - kResolution, possible));
      CHECK(duration <= marks.front().around_ns() + kResolution);
      marks.pop_front();
      CHECK(times.started_at >= launched.front());
      CHECK(times.started_at >= finished_at);
      CHECK(times.finished_at >= times.started_at);
      CHECK(times.finished_at <= clock.now());
      launched.pop_front();
      finished_at = times.finished_at;
    };
    for (int step = 0; step < 12; ++step) {
      launched.push_back(clock.now());
      Marks& mine = marks.emplace_back();
      mine.record(0, stream);
      timer.begin(stream.get());
      mine.record(1, stream);
      for (int i = draw(rng, 0, 3); i > 0; --i) {
        check_cuda(cudaMemsetAsync(memory.data(), 0, memory.num_bytes(), stream.get()),
                   "cudaMemsetAsync");
      }
      mine.record(2, stream);
      timer.end(stream.get());
      mine.record(3, stream);
      // Over before it is waited for, or not.
      if (chance(rng, 0.4)) check_cuda(cudaStreamSynchronize(stream.get()), "synchronize");
      while (launched.size() > static_cast<std::size_t>(draw(rng, 0, 1))) wait();
    }
    while (!launched.empty()) wait();
  }
}

}  // namespace metronome::testing::TEST_FILE
