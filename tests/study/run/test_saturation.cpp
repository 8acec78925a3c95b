// The most that an engine does of a workload.
#include <string>

#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/run/saturation.h"
#include "study/run/variant_run.h"
#include "tests/catch.h"

namespace metronome::testing {
namespace {

PreparedVariant variant_of(const std::string& workload) {
  SimulatedBackend backend;
  ScenarioFile file = parse_scenario(
      "model: llama-3.2-1b\nhardware: h100-sxm\nscheduler: {policy: continuous}\n"
      "engine: {max_num_seqs: 1, max_model_len: 4096}\nworkload: " +
          workload + "\n",
      "s.yaml", {});
  return std::move(prepare_variants(backend, std::move(file.variants)).front());
}

double seconds_of(PreparedVariant variant) {
  VirtualClock clock;
  variant.run->run(*variant.workload, clock, {}, {});
  return to_seconds(clock.now());
}

constexpr const char* kLengths = "prompt_tokens: {value: 300}, output_tokens: {value: 20}";

// One request at a time: the next begins when the one before has ended.
TEST_CASE("an engine of one sequence does one request after the other", "[study]") {
  const std::string lengths = kLengths;
  const double alone =
      seconds_of(variant_of("{num_requests: 1, arrivals: {process: burst}, " + lengths + "}"));
  PreparedVariant many = variant_of("{num_requests: 40, arrivals: {rate: 0.1}, " + lengths + "}");
  CHECK(most_requests_per_s(many) == Approx(1 / alone).epsilon(0.02));
  PreparedVariant one = variant_of("{num_requests: 1, arrivals: {rate: 0.1}, " + lengths + "}");
  CHECK(most_requests_per_s(one) > 0);
}

TEST_CASE("pauses of sessions do not count, and none fits is zero", "[study]") {
  const std::string sessions =
      "arrivals: {rate: 0.1}, sessions: {kind: chat, num_sessions: 20, turns: {value: 2}, "
      "think_time_ms: {value: 60000}}";
  PreparedVariant chat = variant_of("{" + sessions + ", " + kLengths + "}");
  CHECK(most_requests_per_s(chat) > 1);  // with the pauses: fewer than 40 in a minute
  PreparedVariant none = variant_of(
      "{num_requests: 4, arrivals: {rate: 1}, prompt_tokens: {value: 5000}, output_tokens: {value: "
      "1}}");
  CHECK(most_requests_per_s(none) == 0);
}

}  // namespace
}  // namespace metronome::testing
