// SPDX-License-Identifier: Apache-2.0
// Trials that `metronome tune` keeps for later searches.
#include <cmath>
#include <fstream>

#include "study/tune/tune_store.h"
#include "tests/catch.h"
#include "tests/scratch_folder.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

TEST_CASE("a kept trial is the trial", "[tune]") {
  const ScratchFolder scratch;
  const std::string path = scratch.path() + "/trials.jsonl";
  TuneTrial trial;
  trial.load = 1.0 / 3;
  trial.num_requests = 400;
  trial.num_runs = 3;
  trial.num_simulated = 500;
  trial.can_be_longer = true;
  trial.good = {1, 0, 0, 1, 1, 0, 1};
  trial.attainment = 4.0 / 7;
  trial.goodput = trial.attainment * trial.load;
  trial.summary.ttft.p99_ms = 0.1 + 0.2;
  trial.summary.itl.p99_ms = std::nan("");
  trial.run_p99_itl_ms = {1.5, std::nan(""), 2.5};
  trial.run_mean_tpot_ms = {1.25, 3.5, 4};
  trial.misses.itl = 3;
  trial.waits.kv_cache = 0.7;
  {
    TuneStore store(path);  // no such file
    CHECK_FALSE(store.find("a", trial.load, 400));
    store.add("a", trial);
    std::ofstream(path) << "not a trial\n" << store.text(false) << "{\"id\": \"b\"}\n";
  }
  TuneStore store(path);
  CHECK_FALSE(store.find("a", trial.load, 401));
  CHECK_FALSE(store.find("b", trial.load, 400));
  CHECK(store.text(false).empty());  // keeps what was asked for
  CHECK(store.text(true).find(R"("id":"a")") != std::string::npos);
  const std::optional<TuneTrial> kept = store.find("a", trial.load, 400);
  REQUIRE(kept);
  CHECK(store.num_reused() == 1);
  CHECK(kept->good == trial.good);
  CHECK(kept->attainment == trial.attainment);
  CHECK(kept->goodput == trial.goodput);
  CHECK(kept->num_runs == 3);
  CHECK(kept->num_simulated == 500);
  CHECK(kept->can_be_longer);
  CHECK(kept->summary.ttft.p99_ms == trial.summary.ttft.p99_ms);
  CHECK(std::isnan(kept->summary.itl.p99_ms));
  CHECK(kept->run_p99_itl_ms[0] == 1.5);
  CHECK(kept->run_mean_tpot_ms == trial.run_mean_tpot_ms);
  CHECK(std::isnan(kept->run_p99_itl_ms[1]));
  CHECK(kept->misses.itl == 3);
  CHECK(kept->waits.kv_cache == 0.7);
  CHECK(store.text(false) == store.text(true));
}

}  // namespace TEST_FILE
