// SPDX-License-Identifier: Apache-2.0
// The drafts that a simulated model accepts: rates, types of requests, positions, and vLLM's log.
#include <cmath>

#include "core/base/error.h"
#include "sim/drafts/acceptance.h"
#include "sim/drafts/acceptance_log.h"
#include "tests/catch.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr std::int32_t kDrafts = 4;
constexpr const char* kLogKey = "speculative.acceptance.log";

SpeculativeConfig config_of(AcceptanceConfig acceptance) {
  SpeculativeConfig config;
  config.method = SpeculativeMethod::Eagle;
  config.num_speculative_tokens = kDrafts;
  config.acceptance = std::move(acceptance);
  return config;
}

SpeculativeConfig with_rates(std::vector<double> rates) {
  AcceptanceConfig acceptance;
  acceptance.rate = std::move(rates);
  return config_of(acceptance);
}

// The mean number of accepted drafts, over many requests and places.
double mean_accepted(const Acceptance& acceptance, std::int32_t num_drafts, TimeNs now = 0) {
  constexpr std::int32_t kRequests = 200;
  constexpr std::int32_t kPlaces = 200;
  double sum = 0;
  for (std::int32_t r = 0; r < kRequests; ++r) {
    for (std::int32_t place = 0; place < kPlaces; ++place) {
      sum += acceptance.num_accepted(static_cast<RequestId>(r), place * kDrafts, num_drafts, now);
    }
  }
  return sum / (kRequests * kPlaces);
}

// A log's line, as vLLM 0.33 writes it.
std::string line_at(const std::string& time, const std::string& drafted,
                    const std::string& positions) {
  return "(APIServer pid=7) INFO 11-24 " + time +
         " [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.10, Accepted "
         "throughput: 11.00 tokens/s, Drafted throughput: 40.00 tokens/s, Accepted: 110 tokens, "
         "Drafted: " +
         drafted + " tokens, Per-position acceptance rate: " + positions +
         ", Avg Draft acceptance rate: 27.5%\n";
}

std::string log_refusal(const std::string& text) {
  const ScratchFolder folder;
  const std::string path = folder.write("vllm.log", text);
  try {
    read_acceptance_log(path, kLogKey);
  } catch (const ConfigError& error) {
    std::string what = error.what();
    if (const std::size_t at = what.find(path); at != std::string::npos) {
      what.replace(at, path.size(), "LOG");
    }
    return what;
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a mean acceptance length and its rate", "[sim][drafts]") {
  // 1 + 0.5 + 0.25 + 0.125
  CHECK(acceptance_length(0.5, 3) == 1.875);
  CHECK(acceptance_rate(1.875, 3) == Approx(0.5).epsilon(1e-12));
  CHECK(acceptance_rate(1, 3) == Approx(0).margin(1e-12));
  CHECK(acceptance_rate(4, 3) == Approx(1).epsilon(1e-12));
}

TEST_CASE("drafts are accepted at the rate that is given", "[sim][drafts]") {
  const Acceptance acceptance(with_rates({0.6}), 5);
  CHECK(mean_accepted(acceptance, 1) == Approx(0.6).margin(0.01));
  CHECK(mean_accepted(acceptance, kDrafts) ==
        Approx(acceptance_length(0.6, kDrafts) - 1).margin(0.02));
  CHECK(acceptance.num_accepted(RequestId{0}, 0, 0, 0) == 0);
  CHECK(mean_accepted(Acceptance(with_rates({0}), 5), kDrafts) == 0);
  CHECK(mean_accepted(Acceptance(with_rates({1}), 5), kDrafts) == kDrafts);
}

TEST_CASE("a length is that of the drafts with which it was measured", "[sim][drafts]") {
  AcceptanceConfig length;
  length.kind = AcceptanceKind::Length;
  length.mean_length = {2.5};
  CHECK(mean_accepted(Acceptance(config_of(length), 5), kDrafts) == Approx(1.5).margin(0.02));
  length.mean_length_tokens = 2;  // then more drafts give more
  CHECK(mean_accepted(Acceptance(config_of(length), 5), 2) == Approx(1.5).margin(0.02));
  CHECK(mean_accepted(Acceptance(config_of(length), 5), kDrafts) > 2);
}

TEST_CASE("positions give the shares of drafts that reach them", "[sim][drafts]") {
  AcceptanceConfig positions;
  positions.kind = AcceptanceKind::Positions;
  positions.positions = {0.8, 0.4, 0.4, 0};
  const Acceptance acceptance(config_of(positions), 5);
  CHECK(mean_accepted(acceptance, 1) == Approx(0.8).margin(0.01));
  CHECK(mean_accepted(acceptance, kDrafts) == Approx(1.6).margin(0.02));
  for (std::int32_t place = 0; place < 1000; ++place) {
    // Who has a second token has a third, and nobody has a fourth.
    const std::int32_t num = acceptance.num_accepted(RequestId{1}, place, kDrafts, 0);
    CHECK((num == 0 || num == 1 || num == 3));
  }
}

TEST_CASE("types of requests have rates of their own", "[sim][drafts]") {
  AcceptanceConfig types;
  types.rate = {0, 1};
  types.weights = {3, 1};
  const Acceptance acceptance(config_of(types), 5);
  std::int32_t num_all = 0;
  constexpr std::int32_t kRequests = 4000;
  for (std::int32_t r = 0; r < kRequests; ++r) {
    const std::int32_t first = acceptance.num_accepted(static_cast<RequestId>(r), 0, kDrafts, 0);
    const std::int32_t later = acceptance.num_accepted(static_cast<RequestId>(r), 99, kDrafts, 0);
    CHECK((first == 0 || first == kDrafts));
    CHECK(first == later);
    num_all += first == kDrafts ? 1 : 0;
  }
  CHECK(num_all / double{kRequests} == Approx(0.25).margin(0.02));
}

TEST_CASE("a token is accepted or not however many drafts there are", "[sim][drafts]") {
  const Acceptance acceptance(with_rates({0.7}), 9);
  for (std::int32_t place = 0; place < 500; ++place) {
    const std::int32_t all = acceptance.num_accepted(RequestId{3}, place, kDrafts, 0);
    for (std::int32_t num_drafts = 0; num_drafts < kDrafts; ++num_drafts) {
      CHECK(acceptance.num_accepted(RequestId{3}, place, num_drafts, 0) ==
            std::min(all, num_drafts));
    }
  }
}

TEST_CASE("a lookup finds drafts for a share of the decodes", "[sim][drafts]") {
  AcceptanceConfig lookup;
  lookup.proposal_rate = 0.3;
  SpeculativeConfig config = config_of(lookup);
  CHECK_FALSE(Acceptance(config, 5).limits_proposals());  // eagle always proposes
  config.method = SpeculativeMethod::Ngram;
  const Acceptance acceptance(config, 5);
  REQUIRE(acceptance.limits_proposals());
  std::int32_t num_found = 0;
  for (std::int32_t place = 0; place < 10000; ++place) {
    const std::int32_t num = acceptance.num_proposed(RequestId{0}, place, 3);
    CHECK((num == 0 || num == 3));
    num_found += num / 3;
  }
  CHECK(num_found / 1e4 == Approx(0.3).margin(0.02));
}

TEST_CASE("a log's lines hold for their time", "[sim][drafts]") {
  const ScratchFolder folder;
  const std::string path =
      folder.write("vllm.log", "INFO 11-24 23:59:40 [loggers.py:1] Engine 000: Running: 3 reqs\n" +
                                   line_at("23:59:50", "400", "0.900, 0.500") +
                                   line_at("00:00:00", "100", "0.200, 0.100") +
                                   line_at("00:00:30", "100", "0.000, 0.000"));
  const std::vector<AcceptanceLine> lines = read_acceptance_log(path, kLogKey);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].until == 10 * kNsPerSecond);  // as long as the next
  CHECK(lines[1].until == 20 * kNsPerSecond);
  CHECK(lines[2].until == 50 * kNsPerSecond);
  CHECK(lines[0].positions == std::vector<double>{0.9, 0.5});

  AcceptanceConfig log;
  log.kind = AcceptanceKind::Log;
  log.log = path;
  SpeculativeConfig config = config_of(log);
  config.num_speculative_tokens = 2;
  const Acceptance acceptance(config, 5);
  CHECK(mean_accepted(acceptance, 2, 0) == Approx(1.4).margin(0.02));
  CHECK(mean_accepted(acceptance, 2, 10 * kNsPerSecond) == Approx(0.3).margin(0.02));
  CHECK(mean_accepted(acceptance, 2, kNsPerSecond * 1000) == 0);  // the last line goes on
  config.num_speculative_tokens = 3;
  CHECK_THROWS_WITH(Acceptance(config, 5),
                    Catch::Contains("speculative.acceptance.log: has 2 positions; "
                                    "speculative.num_speculative_tokens is 3"));
}

TEST_CASE("without times of day the lines are one, weighted by their drafts", "[sim][drafts]") {
  const ScratchFolder folder;
  const std::string path =
      folder.write("vllm.log",
                   "SpecDecoding metrics: Drafted: 300 tokens, Per-position acceptance "
                   "rate: 0.8, 0.4, Avg Draft acceptance rate: 60%\n"
                   "SpecDecoding metrics: Drafted: 100 tokens, Per-position acceptance "
                   "rate: 0.4, 0.0\n");
  const std::vector<AcceptanceLine> lines = read_acceptance_log(path, kLogKey);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].positions[0] == Approx(0.7));
  CHECK(lines[0].positions[1] == Approx(0.3));
}

TEST_CASE("a log without acceptance is refused", "[sim][drafts]") {
  CHECK(log_refusal("INFO 11-24 10:00:00 nothing\n") ==
        "speculative.acceptance.log: LOG has no line \"SpecDecoding metrics: ... Per-position "
        "acceptance rate: ...\"; allowed: the log of a vLLM server with drafts");
  CHECK(log_refusal(line_at("10:00:00", "1", "0.5") + line_at("10:00:10", "1", "0.5, 0.2")) ==
        "speculative.acceptance.log: LOG has lines with different numbers of positions; allowed: "
        "the log of one server");
  CHECK_THROWS_WITH(read_acceptance_log("/no/such/file", kLogKey),
                    Catch::Contains("/no/such/file does not exist"));
}

}  // namespace metronome::testing::TEST_FILE
