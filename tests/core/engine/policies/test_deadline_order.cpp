// SPDX-License-Identifier: Apache-2.0
// Which prompts stand back so that the most of them meet their deadlines.
#include <algorithm>
#include <deque>

#include "core/engine/policies/deadline_order.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

struct Jobs {
  std::deque<Request> requests;
  std::vector<PromptJob> jobs;

  void add(TimeNs deadline, TimeNs work_ns) {
    requests.emplace_back();
    requests.back().id = static_cast<RequestId>(requests.size() - 1);
    jobs.push_back({&requests.back(), deadline, work_ns});
  }
  std::vector<bool> mark(TimeNs now) {
    LateMarker().mark_late(jobs, now);
    std::vector<bool> late;
    for (const PromptJob& job : jobs) late.push_back(job.is_late);
    return late;
  }
};

// Whether those of `kept` (a bit each), one after the other, all meet their deadlines.
bool is_feasible(const std::vector<PromptJob>& jobs, unsigned kept, TimeNs now) {
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if ((kept >> i & 1) == 0) continue;
    now += jobs[i].work_ns;
    if (now > jobs[i].deadline) return false;
  }
  return true;
}

std::vector<RequestId> ids_of(const std::vector<PromptJob>& jobs) {
  std::vector<RequestId> ids;
  for (const PromptJob& job : jobs) ids.push_back(job.request->id);
  return ids;
}

}  // namespace

TEST_CASE("nobody stands back while all can be in time", "[core][deadline_order]") {
  Jobs jobs;
  jobs.add(110, 10);
  jobs.add(130, 20);
  jobs.add(130, 0);
  jobs.add(kNever, 1'000'000);
  CHECK(jobs.mark(100) == std::vector<bool>{false, false, false, false});
}

TEST_CASE("the longest stands back for the others, the lost for nobody", "[core][deadline_order]") {
  Jobs jobs;
  jobs.add(105, 10);  // lost whatever happens
  jobs.add(150, 50);
  jobs.add(160, 10);  // in time only without the one of 50
  jobs.add(161, 10);
  CHECK(jobs.mark(100) == std::vector<bool>{true, true, false, false});
  CHECK(jobs.mark(90) == std::vector<bool>{false, true, false, false});
  CHECK(jobs.mark(50) == std::vector<bool>{false, false, false, false});
}

TEST_CASE("as few stand back as possible", "[core][deadline_order]") {
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "deadlines");
    Jobs jobs;
    TimeNs deadline = 1'000;
    const int num_jobs = draw(rng, 1, 9);
    for (int i = 0; i < num_jobs; ++i) {
      deadline += draw(rng, 0, 40);
      jobs.add(deadline, draw(rng, 0, 60));
    }
    const TimeNs now = 1'000 - draw(rng, 0, 60);
    const std::vector<bool> late = jobs.mark(now);
    int best = 0;
    for (unsigned kept = 0; kept < 1u << num_jobs; ++kept) {
      if (is_feasible(jobs.jobs, kept, now)) best = std::max(best, __builtin_popcount(kept));
    }
    unsigned kept = 0;
    for (std::size_t i = 0; i < late.size(); ++i) kept |= late[i] ? 0 : 1u << i;
    REQUIRE(is_feasible(jobs.jobs, kept, now));
    REQUIRE(__builtin_popcount(kept) == best);
  }
}

TEST_CASE("a short job passes whoever has time to spare", "[core][deadline_order]") {
  Jobs jobs;
  jobs.add(200, 50);
  jobs.add(300, 50);
  jobs.add(300, 20);
  jobs.add(400, 30);
  let_short_jobs_pass(jobs.jobs, 100);
  // The first has 50 to spare, less than four times 20. The second has 100, which lets the 20 pass,
  // and then 80, less than four times 30.
  CHECK(ids_of(jobs.jobs) ==
        std::vector<RequestId>{RequestId{0}, RequestId{2}, RequestId{1}, RequestId{3}});
  let_short_jobs_pass({}, 100);
}

TEST_CASE("passing makes nobody late", "[core][deadline_order]") {
  int num_moved = 0;
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "passing");
    Jobs jobs;
    const int num_jobs = draw(rng, 1, 12);
    TimeNs end = 0;
    TimeNs deadline = 0;
    for (int i = 0; i < num_jobs; ++i) {
      const TimeNs work_ns = draw(rng, 0, 60);
      end += work_ns;
      deadline = std::max(deadline, end + draw(rng, 0, 400));
      jobs.add(deadline, work_ns);
    }
    std::vector<RequestId> before = ids_of(jobs.jobs);
    let_short_jobs_pass(jobs.jobs, 0);
    REQUIRE(is_feasible(jobs.jobs, (1u << num_jobs) - 1, 0));
    std::vector<RequestId> after = ids_of(jobs.jobs);
    num_moved += before != after ? 1 : 0;
    std::sort(after.begin(), after.end());
    REQUIRE(before == after);
  }
  CHECK(num_moved > 1'000);
}

TEST_CASE("a line keeps the order of submission, and the lost apart", "[core][deadline_order]") {
  std::deque<Request> requests(400);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].id = static_cast<RequestId>(i);
    requests[i].arrival = static_cast<TimeNs>(i);
  }
  DeadlineLine line;
  for (Request& request : requests) line.push(request);
  std::vector<PromptJob> jobs;
  line.list(jobs);
  REQUIRE(jobs.size() == 256);
  CHECK(ids_of(jobs).front() == RequestId{0});

  // Most have lost their deadline: the others are seen all the same, and a few of the lost.
  line.set_lost_aside(390);
  jobs.clear();
  line.list(jobs);
  REQUIRE(jobs.size() == 10 + 16);
  CHECK(jobs[0].request->id == RequestId{390});
  CHECK(jobs[10].request->id == RequestId{0});

  // Who leaves is gone, who comes back has the old place, who ended is passed over.
  line.remove(requests[390]);
  line.remove(requests[0]);
  line.remove(requests[2]);
  requests[391].state = RequestState::Failed;
  requests[1].state = RequestState::Failed;
  line.push(requests[390]);
  requests[2].output_tokens = 1;
  line.push(requests[2]);
  line.set_lost_aside(390);
  jobs.clear();
  line.list(jobs);
  CHECK(jobs[0].request->id == RequestId{2});  // in the middle of an answer
  CHECK(jobs[1].request->id == RequestId{390});
  CHECK(jobs[2].request->id == RequestId{392});
  CHECK(jobs[10].request->id == RequestId{3});
}

}  // namespace metronome::testing::TEST_FILE
