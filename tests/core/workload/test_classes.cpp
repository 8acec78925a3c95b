// SPDX-License-Identifier: Apache-2.0
// Classes of requests: shares and rates, lengths in pairs, prefixes, limits, traces.
#include <algorithm>
#include <string>
#include <vector>

#include "core/workload/workload.h"
#include "core/workload/workload_config.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

const std::string kShares =
    "{num_requests: 3000, arrivals: {rate: 5}, output_tokens: {value: 50}, classes: ["
    "{name: chat, share: 3, prompt_tokens: {value: 100}, priority: 1}, "
    "{name: rag, lengths: [[4000, 20], [200, 900]], prefix: {kind: groups, num_groups: 2, "
    "prefix_tokens: 64}, max_tokens: 512}]}";

std::vector<std::size_t> of_class(const Workload& workload, int number) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    if (workload.requests[i].class_number == number) found.push_back(i);
  }
  return found;
}

TEST_CASE("classes by shares", "[core][workload]") {
  const Workload workload = make(kShares);
  CHECK(workload.class_names == std::vector<std::string>{"chat", "rag"});
  const std::vector<std::size_t> chat = of_class(workload, 1), rag = of_class(workload, 2);
  CHECK(chat.size() + rag.size() == 3000);
  CHECK(std::abs(static_cast<double>(chat.size()) - 2250) < 100);
  for (const std::size_t i : chat) {
    const RequestSpec& request = workload.requests[i];
    REQUIRE(request.num_prompt_tokens == 100);
    REQUIRE(request.max_output_tokens == 50);
    REQUIRE(request.priority == 1);
    REQUIRE(request.output_limit == 0);
  }
  int num_long = 0;
  for (const std::size_t i : rag) {
    const RequestSpec& request = workload.requests[i];
    const bool is_long = request.num_prompt_tokens == 4064;
    num_long += is_long ? 1 : 0;
    // Pairs stay together; the limit ends the longer answer.
    REQUIRE(request.num_prompt_tokens == (is_long ? 4064 : 264));
    REQUIRE(request.max_output_tokens == (is_long ? 20 : 512));
    REQUIRE(request.limit_tokens() == 512);
  }
  CHECK(num_long > 300);
  CHECK(num_long < 450);
}

TEST_CASE("a class keeps its draws when another changes", "[core][workload]") {
  const auto with = [](const std::string& second) {
    return make(
        "{num_requests: 500, arrivals: {rate: 5}, classes: [{name: a, prompt_tokens: "
        "{distribution: uniform, min: 1, max: 999}, output_tokens: {value: 9}}, {name: b, " +
        second + "}]}");
  };
  const Workload one = with("lengths: [[10, 10]]");
  const Workload other = with("lengths: [[20, 30]], priority: 7");
  for (const std::size_t i : of_class(one, 1)) {
    CHECK(one.requests[i].num_prompt_tokens == other.requests[i].num_prompt_tokens);
    CHECK(one.requests[i].arrival == other.requests[i].arrival);
  }
}

TEST_CASE("classes at rates of their own", "[core][workload]") {
  const Workload workload = make(
      "{num_requests: 1000, prompt_tokens: {value: 10}, output_tokens: {value: 5}, classes: "
      "[{name: steady, rate: 9, burstiness: .inf}, {name: bursty, rate: 1, burstiness: 0.2}]}");
  const std::vector<std::size_t> steady = of_class(workload, 1);
  CHECK(steady.size() == 900);
  CHECK(workload.requests.size() == 1000);
  CHECK(to_seconds(workload.requests[steady.back()].arrival) == Approx(100));
  CHECK(std::is_sorted(
      workload.requests.begin(), workload.requests.end(),
      [](const RequestSpec& a, const RequestSpec& b) { return a.arrival < b.arrival; }));
}

TEST_CASE("classes of a trace have its names", "[core][workload][trace]") {
  const ScratchFolder folder;
  folder.write("t",
               "arrival_s,prompt_tokens,output_tokens,class\n0,10,5,batch\n1,10,5,chat\n"
               "2,10,5,\n");
  const auto load = [&](const std::string& beside) {
    return make_workload(read_config("{trace: {file: t}" + beside + "}", folder.path()), 7);
  };
  const Workload workload =
      load(", classes: [{name: chat, priority: -1}, {name: batch, max_tokens: 99}]");
  CHECK(workload.class_names == std::vector<std::string>{"chat", "batch"});
  CHECK(workload.requests[0].class_number == 2);
  CHECK(workload.requests[0].output_limit == 99);
  CHECK(workload.requests[1].priority == -1);
  CHECK(workload.requests[2].class_number == 0);
  CHECK(error_of([&] { load(", classes: [{name: chat, share: 2}]"); })
            .ends_with("classes.0.share: not used with a trace, which brings its own requests; it "
                       "belongs to workloads without a trace"));
  const Workload prefixed = load(", prefix: {kind: groups, num_groups: 1, prefix_tokens: 32}");
  CHECK(prefixed.requests[1].num_prompt_tokens == 42);
  CHECK(prefixed.segments[0].content == prefixed.segments[2].content);
}

TEST_CASE("mistakes in classes", "[core][config]") {
  const auto error = [](const std::string& classes, const std::string& beside = "") {
    return error_of([&] {
      make("{num_requests: 9, prompt_tokens: {value: 9}, output_tokens: {value: 9}" + beside +
           ", classes: [" + classes + "]}");
    });
  };
  CHECK(error("{share: 1}").find("classes.0.name: missing") != std::string::npos);
  CHECK(error("{name: a}, {name: a}").find("is another class already") != std::string::npos);
  CHECK(error("{name: a, rate: 1}, {name: b}").find("all or none") != std::string::npos);
  CHECK(error("{name: a, lenghts: [[1, 2]]}").find("lenghts") != std::string::npos);
  CHECK(error("{name: a, lengths: [[1, 2]], prompt_tokens: {value: 3}}")
            .find("not used beside lengths") != std::string::npos);
  CHECK(error("{name: a, rate: 2}", ", arrivals: {rate: 3}").find("workload.arrivals") !=
        std::string::npos);
  CHECK(error("{name: a, prompt_tokens: {distribution: lognormal, median: 3}}").find("p99") !=
        std::string::npos);
  CHECK(error("5").find("must be a mapping") != std::string::npos);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
