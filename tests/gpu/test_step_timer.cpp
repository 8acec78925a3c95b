// Times of steps by the host's clock, from events that know none.
#include <deque>

#include "gpu/step_timer.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tools/wall_clock.h"

namespace metronome::testing {

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
    const auto wait = [&] {
      const StepTimer::Times times = timer.wait();
      CHECK(times.started_at >= launched.front());
      CHECK(times.started_at >= finished_at);
      CHECK(times.finished_at >= times.started_at);
      CHECK(times.finished_at <= clock.now());
      launched.pop_front();
      finished_at = times.finished_at;
    };
    for (int step = 0; step < 12; ++step) {
      launched.push_back(clock.now());
      timer.begin(stream.get());
      for (int i = draw(rng, 0, 3); i > 0; --i) {
        check_cuda(cudaMemsetAsync(memory.data(), 0, memory.num_bytes(), stream.get()),
                   "cudaMemsetAsync");
      }
      timer.end(stream.get());
      // Over before it is waited for, or not.
      if (chance(rng, 0.4)) check_cuda(cudaStreamSynchronize(stream.get()), "synchronize");
      while (launched.size() > static_cast<std::size_t>(draw(rng, 0, 1))) wait();
    }
    while (!launched.empty()) wait();
  }
}

}  // namespace metronome::testing
