#include "tools/what_if.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/config_reader.h"
#include "core/digest.h"
#include "core/error.h"
#include "core/policy_registry.h"
#include "core/run_record.h"
#include "reports/json_text.h"
#include "reports/number_text.h"
#include "reports/wrapped_text.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tools/text.h"

namespace metronome {
namespace {

using Json = nlohmann::ordered_json;

// Values of one setting to try, the nearest to the run's first. Each is a list of assignments.
struct Family {
  std::vector<std::vector<std::string>> steps;
};

std::string set(const std::string& key, std::int64_t value) {
  return key + "=" + std::to_string(value);
}

// Powers of two below `from`, down to `least`.
std::vector<std::int64_t> smaller_powers(std::int64_t from, std::int64_t least) {
  std::int64_t power = 1;
  while (power * 2 < from) power *= 2;
  std::vector<std::int64_t> powers;
  for (; power >= least && power < from; power /= 2) powers.push_back(power);
  return powers;
}

constexpr std::int64_t kLeastTokens = 64;

class Candidates {
 public:
  Candidates(const Scenario& scenario, double target_ms)
      : scenario_(scenario), target_ms_(target_ms), config_(Json::parse(scenario.to_json())) {}

  // Tokens of a step, or of a chunk where the policy has no budget.
  std::vector<Family> sizes() const {
    std::vector<Family> families;
    const char* const keys[] = {"max_num_batched_tokens", "prefill_chunk_size", "chunk_size",
                                "chunked_prefill_size",   "max_num_tokens",     "n_batch",
                                "max_ragged_batch_size"};
    for (const char* key : keys) {
      if (!reads(key) || (is_token_budget() && std::string_view(key) == "prefill_chunk_size")) {
        continue;
      }
      families.push_back(falling(std::string("scheduler.") + key, current(key), kLeastTokens));
    }
    return families;
  }

  std::vector<Family> other_settings() const {
    std::vector<Family> families;
    const std::int64_t budget = token_budget(scenario_.scheduler);
    if (reads("long_prefill_token_threshold")) {
      const std::int64_t now = scenario_.scheduler.vllm.long_prefill_token_threshold;
      families.push_back(
          falling("scheduler.long_prefill_token_threshold", now > 0 ? now : budget, kLeastTokens));
    }
    if (is_token_budget()) {
      families.push_back(falling("scheduler.prefill_chunk_size",
                                 scenario_.scheduler.prefill_chunk_size.value_or(budget),
                                 kLeastTokens));
    }
    if (reads("max_prefill_chunks_per_step")) {
      const std::int64_t now = scenario_.scheduler.max_prefill_chunks_per_step;
      families.push_back(falling("scheduler.max_prefill_chunks_per_step", now > 0 ? now : 8, 1));
    }
    if (reads("enable_mixed_chunk")) families.push_back(mixed_chunks());
    families.push_back(falling("engine.max_num_seqs", scenario_.engine.max_num_seqs, 1));
    if (reads("prefill_chunk_size") && !is_token_budget()) {
      families.push_back(single_chunks());
    }
    return families;
  }

  std::vector<Family> other_policies() const {
    std::vector<Family> families;
    // Of equals the first is named: best one that an engine has.
    add_policy("vllm", "scheduler.max_num_batched_tokens", {}, families);
    add_policy("token_budget", "scheduler.max_num_batched_tokens", {}, families);
    add_policy("chunked", "scheduler.prefill_chunk_size", {}, families);
    add_policy("sglang", "scheduler.chunked_prefill_size", {"scheduler.enable_mixed_chunk=true"},
               families);
    // Shown, but never named: it is Metronome's alone.
    if (scenario_.scheduler.policy != "slo") {
      const std::string target = Json(target_ms_).dump();  // shortest digits
      families.push_back({{{"scheduler.policy=slo", "scheduler.itl_target_ms=" + target}}});
    }
    return families;
  }

 private:
  bool is_token_budget() const { return scenario_.scheduler.policy == "token_budget"; }
  bool reads(std::string_view key) const {
    const auto keys = find_policy(scenario_.scheduler.policy)->keys;
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }
  // The number the run has, or where to start from.
  std::int64_t current(const char* key) const {
    const Json& scheduler = config_.at("scheduler");
    constexpr std::int64_t kUnchunked = 16384;
    if (scheduler.contains(key) && scheduler.at(key).is_number_integer()) {
      const auto number = scheduler.at(key).get<std::int64_t>();
      if (number > 0) return number;
    }
    return std::string_view(key) == "prefill_chunk_size" ? 512 : kUnchunked;
  }
  static Family falling(const std::string& key, std::int64_t from, std::int64_t least) {
    Family family;
    for (const std::int64_t value : smaller_powers(from, least)) {
      family.steps.push_back({set(key, value)});
    }
    return family;
  }
  // SGLang's decodes in the steps of prompts, with chunks as they are and then smaller.
  Family mixed_chunks() const {
    Family family;
    if (scenario_.scheduler.sglang.enable_mixed_chunk) return family;
    const std::string mixed = "scheduler.enable_mixed_chunk=true";
    family.steps.push_back({mixed});
    for (const std::int64_t size : smaller_powers(current("chunked_prefill_size"), kLeastTokens)) {
      family.steps.push_back({mixed, set("scheduler.chunked_prefill_size", size)});
    }
    return family;
  }
  // One chunk a step, of its present size and then smaller.
  Family single_chunks() const {
    Family family;
    for (const std::int64_t size : smaller_powers(current("prefill_chunk_size"), kLeastTokens)) {
      family.steps.push_back(
          {"scheduler.max_prefill_chunks_per_step=1", set("scheduler.prefill_chunk_size", size)});
    }
    return family;
  }
  void add_policy(const std::string& name, const std::string& key,
                  const std::vector<std::string>& others, std::vector<Family>& families) const {
    if (scenario_.scheduler.policy == name) return;
    constexpr std::int64_t kLargest = 8192;
    Family family;
    for (const std::int64_t size : smaller_powers(kLargest + 1, kLeastTokens)) {
      family.steps.push_back({"scheduler.policy=" + name, set(key, size)});
      family.steps.back().insert(family.steps.back().end(), others.begin(), others.end());
    }
    families.push_back(std::move(family));
  }

  const Scenario& scenario_;
  double target_ms_;
  Json config_;
};

// ---- the recorded requests ----

bool has_requests_of(const Workload& workload, const RunRecord& record) {
  if (workload.requests.size() != record.requests.size()) return false;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestSpec& spec = workload.requests[i];
    const RequestRecord& request = record.requests[i];
    const bool has_time = workload.mode == ArrivalMode::Timed;
    if (spec.num_prompt_tokens != request.num_prompt_tokens ||
        spec.max_output_tokens != request.max_output_tokens || spec.priority != request.priority ||
        (has_time && spec.arrival != request.arrival)) {
      return false;
    }
  }
  return true;
}

std::optional<Workload> drawn_again(const Scenario& scenario) {
  try {
    return make_workload(scenario.workload, scenario.seed);
  } catch (const ConfigError&) {  // a trace that is not here
    return std::nullopt;
  }
}

// The workload of the scenario where the record has the same requests: it also knows which prompts
// share prefixes, and clients that wait for answers. Otherwise what the record has.
Workload recorded_workload(const Scenario& scenario, const RunRecord& record,
                           std::vector<std::string>& notes) {
  std::optional<Workload> drawn = drawn_again(scenario);
  Workload workload;
  if (drawn && has_requests_of(*drawn, record)) {
    workload = std::move(*drawn);
  } else {
    bool has_hits = false;
    for (const RequestRecord& request : record.requests) {
      workload.requests.push_back({request.arrival, std::max(1, request.num_prompt_tokens),
                                   std::max(1, request.max_output_tokens), request.priority});
      has_hits = has_hits || request.num_prefix_hit_tokens > 0;
    }
    std::stable_sort(workload.requests.begin(), workload.requests.end(),
                     [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
    notes.push_back(drawn ? "Arrivals and lengths are the record's; the scenario gives others now."
                          : "Arrivals and lengths are the record's; the scenario's trace cannot be "
                            "read from here.");
    if (has_hits) notes.push_back("Prompts share no prefixes here, as they did in the run.");
    return workload;
  }
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (request.reason != EndReason::Stop) continue;
    workload.requests[i].max_output_tokens = request.num_output_tokens;
  }
  return workload;
}

// ---- replays ----

class Replays {
 public:
  Replays(const StoredRun& run, double target_ms, const std::string& hardware,
          const std::function<void(const std::string&)>& start, const ProgressFn& progress)
      : run_(run), target_ms_(target_ms), start_(start), progress_(progress) {
    if (!hardware.empty()) fixed_.push_back("hardware=" + hardware);
  }

  Scenario scenario_with(const std::vector<std::string>& changes) const {
    std::vector<std::string> assignments = fixed_;
    assignments.insert(assignments.end(), changes.begin(), changes.end());
    const std::string path = run_.folder + "/" + std::string(kResultFile) + ": config";
    ScenarioFile file = parse_scenario(run_.result.info.config_json, path, assignments);
    Scenario scenario = std::move(file.variants.front());
    // A relative path is the current folder's, as the run left it.
    scenario.name = run_.result.info.label;
    return scenario;
  }
  void keep_cache_size(const Scenario& scenario) {
    if (scenario.kv_cache.backend != KvBackend::Paged || scenario.kv_cache.num_blocks) return;
    fixed_.push_back(set("kv_cache.num_blocks", run_.result.info.num_blocks));
  }
  void take_workload(Workload workload) { workload_ = std::move(workload); }

  // Nothing where the settings are none.
  std::optional<Trial> try_out(const std::vector<std::string>& changes) const {
    try {
      return replay(changes, nullptr);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }
  Trial replay(const std::vector<std::string>& changes, std::string* digest) const {
    Trial trial;
    trial.changes = changes;
    trial.scenario = scenario_with(changes);
    Simulation simulation = prepare_simulation(trial.scenario);
    EventDigest fingerprint;
    RunRecorder recorder(workload_.requests.size());
    EventSink* sinks[] = {&fingerprint, &recorder};
    VirtualClock clock;
    start_(changes.empty() ? std::string("as recorded") : changes.back());
    simulation.run(workload_, clock, sinks, progress_);
    trial.summary =
        summarize(recorder.finish(), {run_.result.info.slo, simulation.setup.kv_cache.num_blocks});
    trial.keeps_p99 = trial.summary.itl.count > 0 && trial.summary.itl.p99_ms <= target_ms_;
    trial.keeps_all = trial.summary.itl.count > 0 && trial.summary.itl.max_ms <= target_ms_;
    if (digest != nullptr) *digest = fingerprint.hex();
    return trial;
  }

 private:
  const StoredRun& run_;
  double target_ms_;
  const std::function<void(const std::string&)>& start_;
  const ProgressFn& progress_;
  std::vector<std::string> fixed_;
  Workload workload_;
};

struct Ranked {
  std::size_t trial;
  std::size_t position;  // in its family: how far from the run's value
};

// Losing requests, or more than a tenth of the throughput, is no way to keep the others' cadence.
bool keeps_service(const Trial& trial, const Trial& baseline) {
  return trial.summary.completed >= baseline.summary.completed &&
         trial.summary.output_throughput >= 0.9 * baseline.summary.output_throughput;
}

// Of a family: the first value that keeps every gap, else the first that keeps the p99 where the
// run does not, else the one with the shortest longest gap.
std::optional<Trial> walk_family(const Family& family, const Replays& replays,
                                 const Trial& baseline, std::size_t& position) {
  std::optional<Trial> best;
  for (position = 0; position < family.steps.size(); ++position) {
    std::optional<Trial> trial = replays.try_out(family.steps[position]);
    if (!trial || !keeps_service(*trial, baseline)) continue;
    if (trial->keeps_all) return trial;
    const bool has_p99 = best && best->keeps_p99 && !baseline.keeps_p99;
    const bool is_better = !best || (trial->keeps_p99 && !best->keeps_p99) ||
                           trial->summary.itl.max_ms < best->summary.itl.max_ms;
    if (!has_p99 && is_better) best = std::move(trial);
  }
  return best;
}

// Whether an engine can be set so: no flag makes one choose its chunks by time.
bool has_counterpart(const Trial& trial) {
  return !find_policy(trial.scenario.scheduler.policy)->predicts_steps;
}

std::vector<Ranked> walk(const std::vector<Family>& families, const Replays& replays,
                         WhatIf& what_if) {
  std::vector<Ranked> successes;
  for (const Family& family : families) {
    std::size_t position = 0;
    std::optional<Trial> best = walk_family(family, replays, what_if.baseline, position);
    if (!best) continue;
    if (best->keeps_all && has_counterpart(*best)) {
      successes.push_back({what_if.trials.size(), position});
    }
    what_if.trials.push_back(std::move(*best));
  }
  return successes;
}

void choose(const std::vector<Ranked>& successes, WhatIf& what_if) {
  const auto rank = [&what_if](const Ranked& success) {
    return std::pair(what_if.trials[success.trial].changes.size(), success.position);
  };
  const auto best =
      std::min_element(successes.begin(), successes.end(),
                       [&rank](const Ranked& a, const Ranked& b) { return rank(a) < rank(b); });
  what_if.chosen = best->trial;
}

// Nothing keeps every gap: the first that keeps the p99, else the shortest longest stall, provided
// that it is shorter than the run's.
void choose_nearest(WhatIf& what_if) {
  const auto& trials = what_if.trials;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (!has_counterpart(trials[i])) continue;
    const double longest = what_if.chosen ? trials[*what_if.chosen].summary.itl.max_ms
                                          : what_if.baseline.summary.itl.max_ms;
    if (trials[i].keeps_p99 && !what_if.baseline.keeps_p99) {
      what_if.chosen = i;
      return;
    }
    if (trials[i].summary.itl.max_ms < longest) what_if.chosen = i;
  }
}

}  // namespace

WhatIf find_smallest_change(const StoredRun& run, double target_ms, const std::string& hardware,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress) {
  WhatIf what_if;
  what_if.target_ms = target_ms;
  if (run.result.info.config_json.empty()) {
    what_if.obstacle = "result.json has no config: nothing says what to simulate";
    return what_if;
  }
  Replays replays(run, target_ms, hardware, start, progress);
  const Scenario scenario = replays.scenario_with({});
  if (scenario.hardware.empty()) {
    what_if.obstacle =
        "the run names no hardware to simulate; give one with --hardware (see "
        "`metronome list hardware`)";
    return what_if;
  }
  replays.keep_cache_size(scenario);
  replays.take_workload(recorded_workload(scenario, run.record, what_if.notes));
  std::string digest;
  what_if.baseline = replays.replay({}, &digest);
  what_if.is_same_run = digest == run.result.info.digest;
  if (what_if.baseline.keeps_all) return what_if;

  const Candidates candidates(scenario, target_ms);
  for (const auto& families :
       {candidates.sizes(), candidates.other_settings(), candidates.other_policies()}) {
    const std::vector<Ranked> successes = walk(families, replays, what_if);
    if (successes.empty()) continue;
    choose(successes, what_if);
    return what_if;
  }
  choose_nearest(what_if);
  return what_if;
}

std::vector<EngineFlags> changed_flags(const Scenario& before, const Scenario& after) {
  const std::vector<EngineFlags> old_flags = engine_flags(before);
  std::vector<EngineFlags> changed = engine_flags(after);
  for (std::size_t e = 0; e < changed.size(); ++e) {
    const std::vector<std::string>& old = old_flags[e].flags;
    std::erase_if(changed[e].flags, [&old](const std::string& flag) {
      return std::find(old.begin(), old.end(), flag) != old.end();
    });
  }
  return changed;
}

}  // namespace metronome
