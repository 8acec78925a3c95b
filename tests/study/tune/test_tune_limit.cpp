// What keeps a setting from carrying more load.
#include "study/tune/tune_limit.h"
#include "tests/catch.h"

using namespace metronome;

TEST_CASE("the binding limit is what most bad requests broke, and why they waited", "[tune]") {
  SloConfig slo;
  slo.ttft_ms = 500;
  slo.itl_ms = 25;
  StepBounds bounds;
  bounds.full_step_ms = 20;
  bounds.longest_prompt_ms = 100;
  TuneTrial trial;
  trial.busy_share = 0.9;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::None);

  trial.misses.itl = 5;
  trial.misses.ttft = 4;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Itl);
  bounds.full_step_ms = 30;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::FullStep);

  trial.misses.ttft = 6;
  trial.waits = {.kv_cache = 3, .max_num_seqs = 2, .steps = 1};
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::KvCache);
  trial.waits.max_num_seqs = 4;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::MaxNumSeqs);
  trial.waits.steps = 5;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Throughput);
  trial.busy_share = 0.1;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Throughput);
  bounds.longest_prompt_ms = 600;  // on an idle device
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::PromptAlone);

  trial.misses.tpot = 7;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::Tpot);
  trial.misses.not_completed = 8;
  CHECK(binding_limit(trial, slo, bounds) == TuneLimit::NotCompleted);
}
