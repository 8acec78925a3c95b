// The tables of `metronome tune`.
#include <sstream>
#include <string>

#include "tests/catch.h"
#include "tests/error_of.h"
#include "tools/commands/tune_output.h"

using namespace metronome;
using namespace metronome::testing;

namespace {

TuneTrial trial_at(double load) {
  TuneTrial trial;
  trial.load = load;
  trial.good.assign(100, 1);
  trial.attainment = 1;
  trial.goodput = load;
  trial.num_in_system = 5;
  trial.output_throughput = 10 * load;
  trial.p99_ttft_ms = 40;
  trial.itl.p99_ms = 20;
  trial.mean_tpot_ms = 10;
  return trial;
}

TuneFinding finding_of(std::size_t setting, double capacity) {
  TuneFinding finding;
  finding.setting = setting;
  finding.is_finalist = true;
  finding.trials = {trial_at(capacity)};
  finding.capacity = capacity;
  return finding;
}

// Two settings of one scenario.
struct Pair {
  Scenario scenario;
  TunedSettings settings = {.names = {"small", "large"},
                            .scenarios = {&scenario, &scenario},
                            .bounds = {{}, {}},
                            .given_load = 8,
                            .attainment = 0.99};
};

template <typename Result>
std::string table(void (*print)(std::ostream&, const Result&, const TunedSettings&),
                  const Result& result) {
  const Pair pair;
  std::ostringstream out;
  print(out, result, pair.settings);
  return out.str();
}

}  // namespace

TEST_CASE("when the search was cut short, the best is the best so far", "[tune]") {
  TuneResult result;
  result.findings = {finding_of(0, 12), finding_of(1, 9)};
  CHECK(contains(table(print_capacities, result), "best, front"));
  CHECK(!contains(table(print_capacities, result), "so far"));
  for (TuneFinding& finding : result.findings) finding.is_cut_short = true;
  CHECK(contains(table(print_capacities, result), "best so far, front"));
  CHECK(contains(table(print_capacities, result), "not finished"));
  result.findings[0].trials.clear();
  result.findings[0].capacity = 0;
  CHECK(!contains(table(print_capacities, result), "so far"));
}

TEST_CASE("tables have columns for drafts, prices and numbers of GPUs where settings have them",
          "[tune]") {
  Pair pair;
  TuneResult found;
  found.findings = {finding_of(0, 12), finding_of(1, 9)};
  TuneLoadResult at_load;
  at_load.findings = {{.setting = 0, .trial = trial_at(8), .is_within = true},
                      {.setting = 1, .trial = trial_at(8), .is_within = true}};
  const auto tables = [&] {
    std::ostringstream out;
    print_capacities(out, found, pair.settings);
    print_at_load(out, at_load, pair.settings);
    return out.str();
  };
  for (const char* column : {"TPOT ms", "per M out", "per hour", "GPUs"}) {
    INFO(column);
    CHECK(!contains(tables(), column));
  }
  Scenario drafted;
  drafted.speculative.method = SpeculativeMethod::Eagle;
  drafted.speculative.num_speculative_tokens = 3;
  drafted.cost_model.tensor_parallel_size = 2;
  pair.settings.scenarios[1] = &drafted;
  CHECK(contains(tables(), "TPOT ms"));
  CHECK(contains(tables(), "GPUs"));
  CHECK(!contains(tables(), "per hour"));
  pair.scenario.price_per_gpu_hour = drafted.price_per_gpu_hour = 1.5;
  CHECK(contains(tables(), "per hour"));
  CHECK(contains(tables(), " 3.00 "));  // two GPUs
  CHECK(contains(tables(), "per M out"));
}

TEST_CASE("at one load, too, the best may be the best so far", "[tune]") {
  TuneLoadResult result;
  result.findings = {{.setting = 0, .trial = trial_at(8), .is_within = true},
                     {.setting = 1, .trial = trial_at(8), .is_within = true}};
  CHECK(contains(table(print_at_load, result), "best"));
  CHECK(!contains(table(print_at_load, result), "so far"));
  result.findings[1].is_cut_short = true;
  CHECK(contains(table(print_at_load, result), "best so far"));
  CHECK(contains(table(print_at_load, result), "not finished"));
}
