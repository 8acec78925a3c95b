// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/what_if.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <tuple>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/run_record.h"
#include "core/scenario/engine_product.h"
#include "engines/arguments/engine_settings.h"
#include "reports/terminal/text.h"
#include "study/what_if/candidates.h"
#include "study/what_if/replays.h"

namespace metronome {
namespace {

// Of a device's memory. The rest holds allocations that the engine does not count.
constexpr double kMostShare = 0.95;
// A change is nearer to the limits than the run if it takes more than noise off the distance.
constexpr double kNearer = 0.99;

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
      workload.requests.back().class_number = request.class_number;
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

// ---- what counts ----

constexpr double kLeastThroughput = 0.9;
constexpr double kMostTtft = 1.5;     // p99 of the first tokens, of a run without a limit for them
constexpr double kMostLatency = 1.1;  // of an answer with fewer drafts: gaps bring fewer tokens

std::string service_loss(const Trial& trial, const Trial& baseline) {
  const Summary& now = trial.summary;
  const Summary& before = baseline.summary;
  if (now.completed < before.completed) {
    return count_text(now.completed, "request") + " complete, instead of " +
           grouped_text(before.completed);
  }
  if (now.output_throughput < kLeastThroughput * before.output_throughput) {
    return "the throughput is " +
           fixed_text(100 * (1 - now.output_throughput / before.output_throughput), 1) + " % lower";
  }
  const bool has_fewer_drafts =
      trial.scenario.speculative.num_drafts() < baseline.scenario.speculative.num_drafts();
  if (has_fewer_drafts && now.tpot.mean_ms > kMostLatency * before.tpot.mean_ms) {
    return "the mean TPOT is " + ms_text(now.tpot.mean_ms) + " ms, instead of " +
           ms_text(before.tpot.mean_ms);
  }
  return {};
}

// Whether an engine with the run's policy can be set to it.
std::string setting_loss(const Trial& trial, const WhatIf& what_if) {
  const std::string& policy = trial.scenario.scheduler.policy;
  const std::string& own = what_if.baseline.scenario.scheduler.policy;
  if (policy == own) return {};
  if (find_policy(policy)->predicts_steps) return "no engine has this policy";
  const ServerFlags* server = product_of(own).flags;
  return server == nullptr ? "" : "it is no setting of " + std::string(server->server);
}

std::string first_token_loss(const Trial& trial, const WhatIf& what_if) {
  const double p99 = trial.summary.ttft.p99_ms;
  if (!(p99 > what_if.ttft_limit_ms)) return {};
  const std::string text = "the p99 TTFT is " + ms_text(p99) + " ms, above ";
  if (!what_if.has_ttft_slo) {
    return text + "1.5 times the run's " + ms_text(what_if.baseline.summary.ttft.p99_ms);
  }
  return text + "slo.ttft_ms " + ms_text(what_if.ttft_limit_ms);
}

void judge(Trial& trial, const WhatIf& what_if) {
  const std::pair<Loss, std::string> losses[] = {
      {Loss::Service, service_loss(trial, what_if.baseline)},
      {Loss::NoSetting, setting_loss(trial, what_if)},
      {Loss::FirstTokens, first_token_loss(trial, what_if)}};
  for (const auto& [loss, text] : losses) {
    if (text.empty()) continue;
    trial.loss = loss;
    trial.loss_text = text;
    return;
  }
}

// How many times the longest gap, and the first tokens of a run with a limit for them, are as long
// as they may be.
double excess(const Trial& trial, const WhatIf& what_if) {
  const double gap = trial.summary.itl.max_ms / what_if.target_ms;
  if (!what_if.has_ttft_slo) return gap;
  return std::max(gap, trial.summary.ttft.p99_ms / what_if.ttft_limit_ms);
}

// Whether it may be advised: it counts, or the run, too, is above the limit for first tokens, and a
// p99 within the target stays so.
bool may_advise(const Trial& trial, const WhatIf& what_if) {
  const Trial& baseline = what_if.baseline;
  const bool is_above =
      what_if.has_ttft_slo && trial.loss == Loss::FirstTokens && !what_if.keeps_ttft(baseline);
  return (trial.counts() || is_above) && (trial.keeps_p99 || !baseline.keeps_p99);
}

// Whether the table would show the same figures for both.
bool has_figures_of(const Trial& a, const Trial& b) {
  const auto shown = [](const Summary& summary) {
    return std::tuple(ms_text(summary.itl.p99_ms), ms_text(summary.itl.max_ms),
                      ms_text(summary.ttft.p50_ms), ms_text(summary.ttft.p99_ms),
                      fixed_text(summary.output_throughput, 1), summary.num_preemptions);
  };
  return shown(a.summary) == shown(b.summary);
}

// ---- the search ----

// Why a value that was tried does not do; "it does not" keep the target.
struct Tried {
  bool is_valid = false;
  bool keeps_p99 = false;
  bool keeps_all = false;
  std::string loss_text;

  // Empty: it does.
  std::string failing(bool wants_all) const {
    if (!is_valid) return "it is refused";
    if (!(wants_all ? keeps_all : keeps_p99)) return "it does not";
    return loss_text;
  }
};

// A value that works, and its neighbour towards the run's value, which does not.
struct Edge {
  std::int64_t works = 0;
  std::int64_t fails = 0;
  std::string why;             // of `fails`
  std::optional<Trial> trial;  // of `works`, if it was not known
};

// The result of one family.
struct Walked {
  std::size_t trial;  // index into WhatIf::trials
  const Family* family;
  std::size_t position;      // of the trial's value in the family: distance from the run's
  std::vector<Tried> tried;  // the family's first values
  std::optional<Edge> edge;  // of the trial, if it lies between two of these
};

class Search {
 public:
  Search(Replays& replays, WhatIf& what_if) : replays_(replays), what_if_(what_if) {}

  // Tries group by group until one has a change that keeps every gap. Chunk sizes do not help
  // preempted requests. So if the run preempts, more blocks and larger reserves are tried first,
  // and more blocks, if nothing else helped, with each of the other changes.
  void run();

 private:
  std::optional<Trial> try_out(const std::vector<Setting>& changes);
  void note_nearest(const Trial& trial);
  bool is_better(const Trial& trial, const std::optional<Trial>& best) const;
  template <class FailingOf>
  Edge edge_of(const Family& family, std::int64_t works, std::int64_t fails, std::string why,
               const FailingOf& failing_of);
  std::optional<Trial> between(const Family& family, Walked& walked);
  std::optional<Trial> walk_family(const Family& family, Walked& walked);
  std::vector<Walked> walk(const std::vector<Family>& families);
  const Walked* smallest(const std::vector<Walked>& walked) const;
  const Walked* nearest() const;
  void refine(const Walked& chosen);
  std::optional<std::int64_t> enough_blocks();
  bool is_found(std::vector<Family> families, const std::vector<Setting>& others);

  Replays& replays_;
  WhatIf& what_if_;
  std::deque<std::vector<Family>> families_;  // Walked points into it
  std::vector<Walked> all_;
};

// Of the engine's own settings: nearer to both limits than all before.
void Search::note_nearest(const Trial& trial) {
  std::optional<Trial>& nearest = what_if_.nearest;
  if (!what_if_.has_ttft_slo || trial.loss == Loss::Service || trial.loss == Loss::NoSetting)
    return;
  const Trial& best = nearest ? *nearest : what_if_.baseline;
  if (excess(trial, what_if_) < excess(best, what_if_)) nearest = trial;
}

// nullopt if the settings are invalid.
std::optional<Trial> Search::try_out(const std::vector<Setting>& changes) {
  std::optional<Trial> trial = replays_.try_out(changes);
  if (!trial) return trial;
  judge(*trial, what_if_);
  if (trial->keeps_all && !trial->counts() && !what_if_.ruled_out) what_if_.ruled_out = trial;
  note_nearest(*trial);
  return trial;
}

// Whether a value of a family is shown in place of another that is nearer to the run's.
bool Search::is_better(const Trial& trial, const std::optional<Trial>& best) const {
  if (trial.loss == Loss::Service) return false;
  if (trial.loss == Loss::FirstTokens && !what_if_.has_ttft_slo) return false;
  if (!best) return true;
  const auto gains_p99 = [this](const Trial& one) {
    return one.counts() && one.keeps_p99 && !what_if_.baseline.keeps_p99;
  };
  if (gains_p99(*best)) return false;
  if (gains_p99(trial)) return true;
  if (may_advise(trial, what_if_) != may_advise(*best, what_if_))
    return may_advise(trial, what_if_);
  if (!what_if_.has_ttft_slo && trial.keeps_p99 != best->keeps_p99) return trial.keeps_p99;
  return excess(trial, what_if_) < excess(*best, what_if_);
}

Tried tried_of(const std::optional<Trial>& trial) {
  if (!trial) return {};
  return {true, trial->keeps_p99, trial->keeps_all, trial->loss_text};
}

// Bisects between values of which one works and the other fails. Finds the nearest value to `fails`
// that still works. If the effect is not monotonic, it is a value whose next neighbour fails.
template <class FailingOf>
Edge Search::edge_of(const Family& family, std::int64_t works, std::int64_t fails, std::string why,
                     const FailingOf& failing_of) {
  Edge edge{works, fails, std::move(why), {}};
  while (true) {
    // Multiples of the grain between the two.
    const std::int64_t least = std::min(edge.works, edge.fails) / family.grain + 1;
    const std::int64_t most = (std::max(edge.works, edge.fails) - 1) / family.grain;
    if (least > most) return edge;
    const std::int64_t value = (least + most + 1) / 2 * family.grain;
    std::optional<Trial> trial = try_out(family.settings(value));
    std::string failing = failing_of(tried_of(trial));
    if (failing.empty()) {
      edge.works = value;
      edge.trial = std::move(trial);
    } else {
      edge.fails = value;
      edge.why = std::move(failing);
    }
  }
}

// Where a value keeps every gap and loses too much, one between it and the next larger value, which
// does not keep them, may do both.
std::optional<Trial> Search::between(const Family& family, Walked& walked) {
  const std::size_t i = walked.tried.size() - 1;
  if (i == 0 || !walked.tried[i - 1].is_valid || walked.tried[i - 1].keeps_all) return {};
  Edge edge = edge_of(family, family.values[i], family.values[i - 1], "it does not",
                      [](const Tried& tried) {
                        return std::string(tried.is_valid && tried.keeps_all ? "" : "it does not");
                      });
  if (!edge.trial || edge.trial->loss == Loss::Service || edge.trial->loss == Loss::FirstTokens) {
    return {};
  }
  std::optional<Trial> trial = std::move(edge.trial);
  walked.edge = std::move(edge);
  return trial;
}

// For a family: the first value that counts and keeps every gap within the target. Else the first
// that counts and keeps the p99 if the run does not. Else the nearest to the limits.
std::optional<Trial> Search::walk_family(const Family& family, Walked& walked) {
  std::optional<Trial> best;
  for (std::size_t i = 0; i < family.values.size(); ++i) {
    std::optional<Trial> trial = try_out(family.settings(family.values[i]));
    walked.tried.push_back(tried_of(trial));
    if (!trial) continue;
    const bool loses = trial->loss == Loss::Service || trial->loss == Loss::FirstTokens;
    if (trial->keeps_all && loses) {
      if (std::optional<Trial> found = between(family, walked)) {
        walked.position = i;
        return found;
      }
    }
    const bool is_done = trial->keeps_all && !loses;
    if (!is_done && !is_better(*trial, best)) continue;
    walked.position = i;
    best = std::move(trial);
    if (is_done) return best;
  }
  return best;
}

std::vector<Walked> Search::walk(const std::vector<Family>& families) {
  std::vector<Walked> all;
  for (const Family& family : families) {
    Walked walked{what_if_.trials.size(), &family, 0, {}, {}};
    std::optional<Trial> best = walk_family(family, walked);
    if (!best || has_figures_of(*best, what_if_.baseline)) continue;
    what_if_.trials.push_back(std::move(*best));
    all.push_back(std::move(walked));
  }
  return all;
}

// Among those that count and keep every gap within the target: the fewest keys, then the nearest
// value.
const Walked* Search::smallest(const std::vector<Walked>& walked) const {
  const auto rank = [this](const Walked& w) {
    return std::pair(what_if_.trials[w.trial].changes.size(), w.position);
  };
  const Walked* best = nullptr;
  for (const Walked& w : walked) {
    const Trial& trial = what_if_.trials[w.trial];
    if (!trial.keeps_all || !trial.counts()) continue;
    if (best == nullptr || rank(w) < rank(*best)) best = &w;
  }
  return best;
}

// If nothing keeps every gap: the first that counts and keeps the p99 if the run does not. Else the
// nearest to the limits, if it may be advised and is nearer than the run.
const Walked* Search::nearest() const {
  const Trial& baseline = what_if_.baseline;
  for (const Walked& w : all_) {
    const Trial& trial = what_if_.trials[w.trial];
    if (trial.counts() && trial.keeps_p99 && !baseline.keeps_p99) return &w;
  }
  const Walked* best = nullptr;
  double least = kNearer * excess(baseline, what_if_);
  for (const Walked& w : all_) {
    const Trial& trial = what_if_.trials[w.trial];
    if (!may_advise(trial, what_if_) || !(excess(trial, what_if_) < least)) continue;
    least = excess(trial, what_if_);
    best = &w;
  }
  return best;
}

// Chooses the nearest value to the run's that still works.
void Search::refine(const Walked& chosen) {
  const Family& family = *chosen.family;
  what_if_.chosen = chosen.trial;
  const Trial& first = what_if_.trials[chosen.trial];
  const bool wants_all = first.keeps_all;
  // Only the nearest.
  if (!first.counts() || (!wants_all && (!first.keeps_p99 || what_if_.baseline.keeps_p99))) return;
  const auto failing_of = [wants_all](const Tried& tried) { return tried.failing(wants_all); };
  std::optional<Edge> edge = chosen.edge;
  std::optional<Trial> present;  // with the run's own value
  if (edge) {
    edge->trial.reset();
  } else if (chosen.position > 0) {
    edge = edge_of(family, family.values[chosen.position], family.values[chosen.position - 1],
                   failing_of(chosen.tried[chosen.position - 1]), failing_of);
  } else if (family.failing) {
    present = try_out(family.settings(*family.failing));
    std::string why = failing_of(tried_of(present));
    if (!why.empty()) {
      edge = edge_of(family, family.values[0], *family.failing, std::move(why), failing_of);
      present.reset();
    }
  }
  if (edge) {
    what_if_.next_failing = edge->fails;
    what_if_.failing_text = edge->why;
    present = std::move(edge->trial);
  }
  if (!present) return;
  what_if_.chosen = what_if_.trials.size();
  what_if_.trials.push_back(std::move(*present));
}

// The KV blocks with which the run's settings cause no preemption: the smallest doubling of the
// run's blocks, or all that the device has room for. nullopt if it has room for no more.
std::optional<std::int64_t> Search::enough_blocks() {
  const Scenario& scenario = what_if_.baseline.scenario;
  if (scenario.kv_cache.backend != KvBackend::Paged) return std::nullopt;
  // A share of what is free has no room for activations: what the server chose is what they leave.
  const double share = scenario.cost_model.gpu_memory_utilization;
  const bool is_of_free =
      find_policy(scenario.scheduler.policy)->memory_share == MemoryShare::OfFree;
  what_if_.cache.most_share = is_of_free ? share : std::max(share, kMostShare);
  const std::int64_t most = replays_.blocks_of_share(what_if_.cache.most_share);
  what_if_.cache.most_blocks = most;
  for (std::int64_t blocks = what_if_.cache.num_blocks; blocks < most;) {
    blocks = std::min(2 * blocks, most);
    const std::optional<Trial> trial = try_out({{kNumBlocksKey, blocks}});
    if (!trial || trial->summary.num_preemptions == 0 || blocks == most) return blocks;
  }
  return std::nullopt;
}

bool Search::is_found(std::vector<Family> families, const std::vector<Setting>& others) {
  for (Family& family : families) {
    family.others.insert(family.others.end(), others.begin(), others.end());
  }
  families_.push_back(std::move(families));
  const std::vector<Walked> walked = walk(families_.back());
  const Walked* best = smallest(walked);
  if (best != nullptr) refine(*best);
  all_.insert(all_.end(), walked.begin(), walked.end());
  return best != nullptr;
}

void Search::run() {
  const Candidates candidates(what_if_.baseline.scenario, what_if_.target_ms);
  const auto is_found_with = [&](const std::vector<Setting>& others) {
    return is_found(candidates.sizes(), others) || is_found(candidates.other_settings(), others) ||
           (what_if_.engine.empty() && is_found(candidates.other_policies(), others));
  };
  std::optional<std::int64_t> blocks;
  if (what_if_.baseline.summary.num_preemptions > 0) {
    blocks = enough_blocks();
    std::vector<Family> families = candidates.reserves();
    constexpr std::int64_t kGrain = 64;
    if (blocks) {
      families.insert(families.begin(),
                      {{}, kNumBlocksKey, {*blocks}, what_if_.cache.num_blocks, kGrain});
    }
    if (is_found(std::move(families), {})) return;
  }
  if (is_found_with({}) || (blocks && is_found_with({{kNumBlocksKey, *blocks}}))) return;
  if (const Walked* best = nearest(); best != nullptr) refine(*best);
}

// The share of memory that gives the chosen blocks, in hundredths; nullopt: none is known to.
std::optional<double> share_of(const WhatIf& what_if, const Replays& replays) {
  if (!what_if.chosen || what_if.cache.is_set) return std::nullopt;
  const Scenario& chosen = what_if.trials[*what_if.chosen].scenario;
  if (!chosen.kv_cache.num_blocks || what_if.cache.most_blocks == 0) return std::nullopt;
  const double now = what_if.baseline.scenario.cost_model.gpu_memory_utilization;
  for (auto percent = std::llround(100 * now);
       0.01 * static_cast<double>(percent) <= what_if.cache.most_share + 1e-9; ++percent) {
    const double share = 0.01 * static_cast<double>(percent);
    if (share > now && replays.blocks_of_share(share) >= *chosen.kv_cache.num_blocks) return share;
  }
  return std::nullopt;
}

// Whether the nearest replay may not be advised, and is nearer than what is.
bool is_news(const Trial& nearest, const WhatIf& what_if) {
  if (may_advise(nearest, what_if)) return false;
  if (!what_if.chosen) return true;
  const Trial& chosen = what_if.trials[*what_if.chosen];
  if (chosen.keeps_all && chosen.counts()) return false;
  return excess(nearest, what_if) < excess(chosen, what_if);
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
  if (run.result.info.config.is_null()) {
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
  what_if.cache.is_set = scenario.kv_cache.num_blocks.has_value();
  what_if.cache.num_blocks = run.result.info.num_blocks;
  replays.keep_cache_size(scenario);
  replays.keep_host(scenario);
  what_if.fixed = replays.fixed();
  replays.take_workload(recorded_workload(scenario, run.record, what_if.notes));
  std::string digest;
  what_if.baseline = replays.replay({}, &digest);
  what_if.is_same_run = digest == run.result.info.digest;
  const SloConfig& slo = run.result.info.slo;
  what_if.has_ttft_slo = slo.ttft_ms.has_value();
  what_if.ttft_limit_ms = slo.ttft_ms.value_or(kMostTtft * what_if.baseline.summary.ttft.p99_ms);
  if (!what_if.baseline.keeps_all) Search(replays, what_if).run();
  if (what_if.nearest && !is_news(*what_if.nearest, what_if)) what_if.nearest.reset();
  what_if.cache.share = share_of(what_if, replays);
  if (what_if.cache.is_set) what_if.cache.default_blocks = replays.blocks_without_size();
  what_if.num_replays = replays.num_replays();
  return what_if;
}

}  // namespace metronome
