#include "study/what_if/what_if.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/run_record.h"
#include "reports/terminal/text.h"
#include "study/what_if/replays.h"

namespace metronome {
namespace {

// Powers of two below `from`, down to `least`.
std::vector<std::int64_t> smaller_powers(std::int64_t from, std::int64_t least) {
  std::int64_t power = 1;
  while (power * 2 < from) power *= 2;
  std::vector<std::int64_t> powers;
  for (; power >= least && power < from; power /= 2) powers.push_back(power);
  return powers;
}

constexpr std::int64_t kLeastTokens = 64;

// Values of one setting to try, nearest to the run's first, together with fixed `others`.
struct Family {
  std::vector<std::string> others;
  std::string key;                   // empty: only `others`, once
  std::vector<std::int64_t> values;  // for an empty key, one unused value
  // A value nearer to the run's than the first one that is known to fail; nullopt: none was tried.
  std::optional<std::int64_t> failing;
  std::int64_t grain = 1;  // values between two powers of two are multiples of this

  std::vector<std::string> assignments(std::int64_t value) const {
    std::vector<std::string> all = others;
    if (!key.empty()) all.push_back(assignment(key, value));
    return all;
  }
};

class Candidates {
 public:
  Candidates(const Scenario& scenario, double target_ms)
      : scenario_(scenario), target_ms_(target_ms), config_(Json::parse(scenario.to_json())) {}

  // Tokens of a step, or of a chunk if the policy has no budget.
  std::vector<Family> sizes() const {
    std::vector<Family> families;
    const char* const keys[] = {"max_num_batched_tokens", "prefill_chunk_size", "chunk_size",
                                "chunked_prefill_size",   "max_num_tokens",     "n_batch",
                                "max_ragged_batch_size"};
    for (const char* key : keys) {
      if (!reads(key) || (is_token_budget() && std::string_view(key) == "prefill_chunk_size")) {
        continue;
      }
      families.push_back(falling_tokens(std::string("scheduler.") + key, current(key)));
    }
    return families;
  }

  std::vector<Family> other_settings() const {
    std::vector<Family> families;
    const std::int64_t budget = token_budget(scenario_.scheduler);
    if (reads("long_prefill_token_threshold")) {
      const std::int64_t now = scenario_.scheduler.vllm.long_prefill_token_threshold;
      families.push_back(
          falling_tokens("scheduler.long_prefill_token_threshold", now > 0 ? now : budget));
    }
    if (is_token_budget()) {
      families.push_back(falling_tokens("scheduler.prefill_chunk_size",
                                        scenario_.scheduler.prefill_chunk_size.value_or(budget)));
    }
    if (reads("max_prefill_chunks_per_step")) {
      const std::int64_t now = scenario_.scheduler.max_prefill_chunks_per_step;
      families.push_back(falling("scheduler.max_prefill_chunks_per_step", now > 0 ? now : 8, 1));
    }
    if (reads("enable_mixed_chunk") && !scenario_.scheduler.sglang.enable_mixed_chunk) {
      // Decodes in prefill steps, with the run's chunk size and then smaller ones.
      const std::vector<std::string> mixed = {"scheduler.enable_mixed_chunk=true"};
      families.push_back({mixed, "", {0}, std::nullopt});
      families.push_back(
          falling_tokens("scheduler.chunked_prefill_size", current("chunked_prefill_size"), mixed));
    }
    add_sglang(families);
    add_drafts(families);
    families.push_back(falling("engine.max_num_seqs", scenario_.engine.max_num_seqs, 1));
    if (reads("prefill_chunk_size") && !is_token_budget()) {
      families.push_back(falling_tokens("scheduler.prefill_chunk_size",
                                        current("prefill_chunk_size"),
                                        {"scheduler.max_prefill_chunks_per_step=1"}));
    }
    return families;
  }

  // Larger reserves for outputs: fewer requests at once, and fewer that lose their blocks.
  std::vector<Family> reserves() const {
    std::vector<Family> families;
    if (!reads("schedule_conservativeness")) return families;
    const double now = scenario_.scheduler.sglang.schedule_conservativeness;
    for (const char* more : {"1.3", "1.7", "2.5"}) {
      if (std::stod(more) <= now) continue;
      families.push_back(
          {{std::string("scheduler.schedule_conservativeness=") + more}, "", {0}, std::nullopt});
    }
    return families;
  }

  std::vector<Family> other_policies() const {
    std::vector<Family> families;
    // The first of equal candidates is chosen, so a policy that an engine has comes first.
    add_policy("vllm", "scheduler.max_num_batched_tokens", {}, families);
    add_policy("token_budget", "scheduler.max_num_batched_tokens", {}, families);
    add_policy("chunked", "scheduler.prefill_chunk_size", {}, families);
    add_policy("sglang", "scheduler.chunked_prefill_size", {"scheduler.enable_mixed_chunk=true"},
               families);
    // Shown, but never chosen: only Metronome has this policy.
    if (scenario_.scheduler.policy != "slo") {
      const std::string target = Json(target_ms_).dump();  // shortest digits
      families.push_back(
          {{"scheduler.policy=slo", "scheduler.itl_target_ms=" + target}, "", {0}, std::nullopt});
    }
    return families;
  }

 private:
  // Fewer drafts, which take less of a step and of its budget; 0: none.
  void add_drafts(std::vector<Family>& families) const {
    const SpeculativeConfig& drafts = scenario_.speculative;
    if (!drafts.has_drafts() || !drafts.num_speculative_tokens_per_batch_size.empty()) return;
    Family family = falling("speculative.num_speculative_tokens", drafts.num_speculative_tokens, 1);
    family.values.push_back(0);
    // A mean length is that of the run's number of drafts.
    const AcceptanceConfig& acceptance = drafts.acceptance;
    if (acceptance.kind == AcceptanceKind::Length && !acceptance.mean_length_tokens) {
      family.others.push_back(
          assignment("speculative.acceptance.mean_length_tokens", drafts.num_speculative_tokens));
    }
    families.push_back(std::move(family));
  }
  // What limits how long SGLang prefills before it decodes again.
  void add_sglang(std::vector<Family>& families) const {
    if (!reads("prefill_decode_interval")) return;
    const SglangConfig& now = scenario_.scheduler.sglang;
    if (now.prefill_decode_interval == 0 && !now.enable_mixed_chunk) {
      // A decode step behind each batch, with the run's chunk size and then smaller ones.
      const std::vector<std::string> apart = {"scheduler.prefill_decode_interval=1"};
      families.push_back({apart, "", {0}, std::nullopt});
      families.push_back(
          falling_tokens("scheduler.chunked_prefill_size", current("chunked_prefill_size"), apart));
    }
    families.push_back(falling_tokens("scheduler.max_prefill_tokens", now.max_prefill_tokens));
    families.push_back(falling("scheduler.prefill_max_requests",
                               now.prefill_max_requests.value_or(scenario_.engine.max_num_seqs),
                               1));
  }
  bool is_token_budget() const { return scenario_.scheduler.policy == "token_budget"; }
  bool reads(std::string_view key) const {
    const auto keys = find_policy(scenario_.scheduler.policy)->keys;
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  }
  // The run's value; nullopt if it has no limit.
  std::optional<std::int64_t> current(std::string_view key) const {
    const Json* found = config_.at("scheduler").find(key);
    if (found != nullptr && found->is_number_integer() && found->get<std::int64_t>() > 0) {
      return found->get<std::int64_t>();
    }
    if (key == "prefill_chunk_size") return 512;
    const std::int64_t budget = token_budget(scenario_.scheduler);
    if (key == "max_num_batched_tokens" && budget > 0) return budget;
    return std::nullopt;
  }
  static Family falling(const std::string& key, std::int64_t from, std::int64_t least) {
    return {{}, key, smaller_powers(from, least), from};
  }
  // Multiples of the tokens that kernels compute at once and of a block, as engines require.
  Family falling_tokens(const std::string& key, std::optional<std::int64_t> from,
                        std::vector<std::string> others = {}) const {
    constexpr std::int64_t kLargest = 16384;
    Family family = falling(key, from.value_or(kLargest + 1), kLeastTokens);
    if (!from) family.failing.reset();
    family.others = std::move(others);
    family.grain = kLeastTokens;
    if (scenario_.kv_cache.backend == KvBackend::Paged) {
      family.grain = std::lcm(kLeastTokens, std::int64_t{scenario_.kv_cache.block_size});
    }
    return family;
  }
  void add_policy(const std::string& name, const std::string& key,
                  const std::vector<std::string>& others, std::vector<Family>& families) const {
    if (scenario_.scheduler.policy == name) return;
    constexpr std::int64_t kLargest = 8192;
    std::vector<std::string> assignments = {"scheduler.policy=" + name};
    assignments.insert(assignments.end(), others.begin(), others.end());
    families.push_back(falling_tokens(key, kLargest + 1, std::move(assignments)));
    families.back().failing.reset();
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
    return make_workload(scenario);
  } catch (const ConfigError&) {  // the trace does not exist here
    return std::nullopt;
  }
}

// The scenario's workload if the record has the same requests: it also knows shared prefixes and
// closed-loop clients. Otherwise the requests of the record.
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
    notes.push_back(
        drawn ? "Arrivals and lengths come from the record; the scenario now gives different ones."
              : "Arrivals and lengths come from the record; the trace cannot be read: " +
                    printable(scenario.workload.trace.file) + ".");
    if (scenario.workload.images.is_on()) {
      notes.push_back("Prompts have no images here, unlike in the run.");
    }
    if (has_hits) notes.push_back("Prompts share no prefixes here, unlike in the run.");
    return workload;
  }
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (request.reason != EndReason::Stop) continue;
    workload.requests[i].max_output_tokens = request.num_output_tokens;
  }
  return workload;
}

// The result of one family.
struct Walked {
  std::size_t trial;  // index into WhatIf::trials
  const Family* family;
  std::size_t position;  // of the trial's value in the family: distance from the run's
};

// A change that loses requests or more than a tenth of the throughput is not acceptable. Nor is one
// to fewer drafts that makes answers more than a tenth slower: gaps get shorter as they bring fewer
// tokens.
bool keeps_service(const Trial& trial, const Trial& baseline) {
  const bool has_fewer_drafts =
      trial.scenario.speculative.num_drafts() < baseline.scenario.speculative.num_drafts();
  return trial.summary.completed >= baseline.summary.completed &&
         trial.summary.output_throughput >= 0.9 * baseline.summary.output_throughput &&
         (!has_fewer_drafts || trial.summary.tpot.mean_ms <= 1.1 * baseline.summary.tpot.mean_ms);
}

// For a family: the first value that keeps every gap within the target. Else the first that keeps
// the p99 if the run does not. Else the one with the shortest longest gap. `position` is its index
// in the family.
std::optional<Trial> walk_family(const Family& family, Replays& replays, const Trial& baseline,
                                 std::size_t& position) {
  std::optional<Trial> best;
  for (std::size_t i = 0; i < family.values.size(); ++i) {
    std::optional<Trial> trial = replays.try_out(family.assignments(family.values[i]));
    if (!trial || !keeps_service(*trial, baseline)) continue;
    const bool has_p99 = best && best->keeps_p99 && !baseline.keeps_p99;
    const bool is_better = !best || (trial->keeps_p99 != best->keeps_p99
                                         ? trial->keeps_p99
                                         : trial->summary.itl.max_ms < best->summary.itl.max_ms);
    if (!trial->keeps_all && (has_p99 || !is_better)) continue;
    position = i;
    best = std::move(trial);
    if (best->keeps_all) return best;
  }
  return best;
}

// Whether an engine has such a setting: no flag makes an engine choose its chunks by time.
bool has_counterpart(const Trial& trial) {
  return !find_policy(trial.scenario.scheduler.policy)->predicts_steps;
}

std::vector<Walked> walk(const std::vector<Family>& families, Replays& replays, WhatIf& what_if) {
  std::vector<Walked> walked;
  for (const Family& family : families) {
    std::size_t position = 0;
    std::optional<Trial> best = walk_family(family, replays, what_if.baseline, position);
    if (!best) continue;
    if (has_counterpart(*best)) walked.push_back({what_if.trials.size(), &family, position});
    what_if.trials.push_back(std::move(*best));
  }
  return walked;
}

// Among those that keep every gap within the target: the fewest keys, then the nearest value.
const Walked* smallest(const std::vector<Walked>& walked, const WhatIf& what_if) {
  const auto rank = [&what_if](const Walked& w) {
    return std::pair(what_if.trials[w.trial].changes.size(), w.position);
  };
  const Walked* best = nullptr;
  for (const Walked& w : walked) {
    if (!what_if.trials[w.trial].keeps_all) continue;
    if (best == nullptr || rank(w) < rank(*best)) best = &w;
  }
  return best;
}

// If nothing keeps every gap: the first that keeps the p99 if the run does not. Else the shortest
// longest stall, if it is shorter than the run's and a p99 within the target stays so.
const Walked* nearest(const std::vector<Walked>& walked, const WhatIf& what_if) {
  const Walked* best = nullptr;
  double longest = what_if.baseline.summary.itl.max_ms;
  for (const Walked& w : walked) {
    const Trial& trial = what_if.trials[w.trial];
    if (trial.keeps_p99 && !what_if.baseline.keeps_p99) return &w;
    if (trial.summary.itl.max_ms >= longest || trial.keeps_p99 != what_if.baseline.keeps_p99) {
      continue;
    }
    longest = trial.summary.itl.max_ms;
    best = &w;
  }
  return best;
}

// Bisects between the chosen value and its neighbour towards the run's value, which fails. Finds
// the nearest value to the run's that still works. If the effect is not monotonic, it is a value
// whose next neighbour fails.
void refine(const Walked& chosen, Replays& replays, WhatIf& what_if) {
  const Family& family = *chosen.family;
  what_if.chosen = chosen.trial;
  const Trial& first = what_if.trials[chosen.trial];
  const bool wants_all = first.keeps_all;
  if (!wants_all && (!first.keeps_p99 || what_if.baseline.keeps_p99)) return;  // only the nearest
  std::optional<std::int64_t> fails = family.failing;
  if (chosen.position > 0) fails = family.values[chosen.position - 1];
  if (!fails) return;
  std::int64_t works = family.values[chosen.position];
  std::optional<Trial> refined;
  while (true) {
    // Multiples of the grain between the two.
    const std::int64_t least = std::min(works, *fails) / family.grain + 1;
    const std::int64_t most = (std::max(works, *fails) - 1) / family.grain;
    if (least > most) break;
    const std::int64_t value = (least + most + 1) / 2 * family.grain;
    std::optional<Trial> trial = replays.try_out(family.assignments(value));
    const bool does = trial && keeps_service(*trial, what_if.baseline) &&
                      (wants_all ? trial->keeps_all : trial->keeps_p99);
    (does ? works : *fails) = value;
    if (does) refined = std::move(trial);
  }
  what_if.next_failing = fails;
  if (!refined) return;
  what_if.chosen = what_if.trials.size();
  what_if.trials.push_back(std::move(*refined));
}

// The KV blocks with which the run's settings cause no preemption: the smallest doubling of the
// run's blocks, or all that fit the device. nullopt if the device has no more.
std::optional<std::int64_t> enough_blocks(const Scenario& scenario, Replays& replays) {
  if (scenario.kv_cache.backend != KvBackend::Paged) return std::nullopt;
  const std::int64_t now = *scenario.kv_cache.num_blocks;
  const std::int64_t most = replays.most_blocks();
  for (std::int64_t blocks = now; blocks < most;) {
    blocks = std::min(2 * blocks, most);
    const std::optional<Trial> trial = replays.try_out({assignment(kNumBlocksKey, blocks)});
    if (!trial || trial->summary.num_preemptions == 0 || blocks == most) return blocks;
  }
  return std::nullopt;
}

// Tries group by group until one has a change that keeps every gap. Chunk sizes do not help
// preempted requests. So if the run preempts, more blocks and larger reserves are tried first, and
// more blocks, if nothing else helped, with each of the other changes.
void search(const Candidates& candidates, Replays& replays, WhatIf& what_if) {
  std::deque<std::vector<Family>> tried;  // Walked points into it
  std::vector<Walked> all;
  const auto is_found = [&](std::vector<Family> families, const std::vector<std::string>& others) {
    for (Family& family : families) {
      family.others.insert(family.others.end(), others.begin(), others.end());
    }
    tried.push_back(std::move(families));
    const std::vector<Walked> walked = walk(tried.back(), replays, what_if);
    const Walked* best = smallest(walked, what_if);
    if (best != nullptr) refine(*best, replays, what_if);
    all.insert(all.end(), walked.begin(), walked.end());
    return best != nullptr;
  };
  const auto is_found_with = [&](const std::vector<std::string>& others) {
    return is_found(candidates.sizes(), others) || is_found(candidates.other_settings(), others) ||
           (what_if.engine.empty() && is_found(candidates.other_policies(), others));
  };
  std::optional<std::int64_t> blocks;
  const Scenario& scenario = what_if.baseline.scenario;
  if (what_if.baseline.summary.num_preemptions > 0) blocks = enough_blocks(scenario, replays);
  constexpr std::int64_t kGrain = 64;
  if (what_if.baseline.summary.num_preemptions > 0) {
    std::vector<Family> families = candidates.reserves();
    if (blocks) {
      families.insert(families.begin(),
                      {{}, kNumBlocksKey, {*blocks}, *scenario.kv_cache.num_blocks, kGrain});
    }
    if (is_found(std::move(families), {})) return;
  }
  if (is_found_with({}) || (blocks && is_found_with({assignment(kNumBlocksKey, *blocks)}))) return;
  if (const Walked* best = nearest(all, what_if); best != nullptr) refine(*best, replays, what_if);
}

}  // namespace

WhatIf find_smallest_change(const StoredRun& run, double target_ms, const std::string& hardware,
                            const std::string& engine,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress) {
  WhatIf what_if;
  what_if.target_ms = target_ms;
  what_if.engine = engine;
  what_if.recorded_itl = run.result.summary.itl;
  if (run.result.info.config_json.empty()) {
    what_if.obstacle = "result.json has no config, so the settings to simulate are unknown";
    return what_if;
  }
  Replays replays(run, target_ms, hardware, start, progress);
  const Scenario scenario = replays.scenario_with({});
  if (!scenario.names_step_times()) {
    what_if.obstacle =
        "the run names no hardware to simulate; give one with --hardware (see "
        "`metronome list hardware`)";
    return what_if;
  }
  replays.keep_cache_size(scenario);
  replays.keep_host(scenario);
  replays.take_workload(recorded_workload(scenario, run.record, what_if.notes));
  std::string digest;
  what_if.baseline = replays.replay({}, &digest);
  what_if.is_same_run = digest == run.result.info.digest;
  if (!what_if.baseline.keeps_all) search({scenario, target_ms}, replays, what_if);
  what_if.num_replays = replays.num_replays();
  return what_if;
}

std::vector<FlagChanges> changed_flags(const Scenario& before, const Scenario& after) {
  Scenario same_null_block = after;
  const auto has_null_block = [](const Scenario& scenario) {
    return find_policy(scenario.scheduler.policy)->cache.has_null_block;
  };
  if (same_null_block.kv_cache.num_blocks) {
    *same_null_block.kv_cache.num_blocks += has_null_block(after) - has_null_block(before);
  }
  const std::vector<EngineFlags> old_flags = engine_flags(before);
  const std::vector<EngineFlags> new_flags = engine_flags(same_null_block);
  const bool has_more_memory = after.kv_cache.num_blocks > before.kv_cache.num_blocks;
  std::vector<FlagChanges> changes;
  for (std::size_t e = 0; e < new_flags.size(); ++e) {
    changes.push_back(flag_changes(old_flags[e], new_flags[e]));
    if (!has_more_memory) continue;
    const bool is_vllm = new_flags[e].engine == "vLLM";
    changes.back().notes.push_back(
        std::string("more KV blocks need more memory: a higher ") +
        (is_vllm ? "--gpu-memory-utilization" : "--mem-fraction-static") +
        ", or more GPUs, provides them without that flag");
  }
  return changes;
}

}  // namespace metronome
