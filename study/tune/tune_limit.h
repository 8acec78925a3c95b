// SPDX-License-Identifier: Apache-2.0
// Finds the limit that keeps a setting of `metronome tune` from carrying more load, and a remedy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/step_predictor.h"
#include "core/run/run.h"
#include "core/workload/workload.h"
#include "study/tune/tune_trial.h"

namespace metronome {

struct Scenario;

enum class TuneLimit : std::uint8_t {
  None,          // nothing failed
  NotCompleted,  // requests are refused, or too long for the engine
  FullStep,      // a step full of prompt tokens, without a decode, takes longer than the ITL limit
  Itl,           // steps with prompt tokens and decodes do
  Tpot,
  PromptAlone,  // the prefill of the longest prompt takes longer than the limit on TTFT
  KvCache,      // requests wait for blocks until TTFT or E2EL is over its limit
  MaxNumSeqs,   // they wait, as so many run
  Throughput,   // they wait, as steps have no room for their tokens
  E2el,         // they do not wait for long, and are over the limit on E2EL
};

// "ITL: full step", "TTFT: KV cache", ...; "-" for None.
std::string_view to_string(TuneLimit limit);

// Times of a setting's steps that do not depend on its load.
struct StepBounds {
  std::int64_t full_step_tokens = 0;  // prompt tokens of the largest step
  // Of the last chunk of the longest prompt, without a decode, with encode_ms and what shows of the
  // host's gap.
  double full_step_ms = 0;
  double encode_ms = 0;     // of the workload's largest image, which no budget cuts
  double longest_prompt_ms = 0;  // all steps of its prefill
  // The most prompt tokens of a step within the limit on ITL; 0: not even one, or no limit.
  std::int64_t fitting_tokens = 0;
  double one_token_ms = 0;  // a step with one prompt token, with encode_ms
  // About the requests/s that such steps carry, in closed form. Each prompt token takes its share
  // of a full step, each image its encoding. Each output token takes its share of a step of as many
  // decodes as the engine and the KV cache hold. Tokens found in a cache count as computed.
  double capacity = 0;
  // Requests of mean length, with half of their output, that the KV cache holds; 0: unknown.
  std::int64_t num_cached_requests = 0;
};

// `run` is the scenario, prepared for simulation.
StepBounds step_bounds(const Scenario& scenario, const PreparedRun& run, const Workload& workload);

// The limit that most of a trial's bad requests broke, and its cause.
TuneLimit binding_limit(const TuneTrial& failing, const SloConfig& slo, const StepBounds& bounds);

// A change of a setting that may help against a limit.
enum class TuneRemedy : std::uint8_t {
  LargerBudget,
  SmallerBudget,
  HigherMaxNumSeqs,
  LowerMaxNumSeqs,
  LargerCache,
  Fp8Cache,
  LongerRequests,
  FasterGpu,
  MoreGpus,
  Other,  // no setting of an engine
};

// A setting whose trials say that it does no better than another.
struct ComparedSetting {
  std::string name;
  const Scenario* scenario = nullptr;
};

// The remedies that a search has tried in vain, so that no advice names them.
struct ComparedRemedies {
  std::map<TuneRemedy, std::string> names;  // of a setting with the remedy
  std::set<TuneRemedy> moot;                // the setting has them already, or cannot have them
  std::string verdict;                      // of all names: "Compared, and outside the SLO"
};
ComparedRemedies compared_remedies(const Scenario& from, const std::vector<ComparedSetting>& others,
                                   std::string verdict);

// Why a setting with this limit fails the SLO under load, which untried changes may help, and
// which were compared. With numbers.
std::string limit_advice(TuneLimit limit, const SloConfig& slo, const StepBounds& bounds,
                         const ComparedRemedies& compared = {});

// Advice for a trial whose requests waited for a busy device, at 2.5 times or more what the
// setting's steps carry (StepBounds::capacity): no budget a step helps. Else empty. `limit` is the
// trial's binding_limit().
std::string overload_advice(const TuneTrial& trial, TuneLimit limit, const StepBounds& bounds,
                            const ComparedRemedies& compared = {});

// Prompt and output tokens of the longest request.
std::int64_t longest_request(const Workload& workload);

// The scenario with a max_model_len with which the engine starts: where it is more than the KV
// cache holds, it becomes what the workload's longest request needs, if the cache holds that.
// `note` says so; it is empty if nothing changed.
Scenario with_fitting_length(const Scenario& scenario, const PreparedRun& run,
                             const Workload& workload, std::string& note);

}  // namespace metronome
