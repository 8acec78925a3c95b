// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <tuple>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/figures.h"
#include "core/scenario/engine_product.h"
#include "reports/terminal/text.h"
#include "study/what_if/sides.h"
#include "system/parallel.h"

namespace metronome {
namespace {

// A change is nearer to the limits than the run if it takes more than noise off the distance.
constexpr double kNearer = 0.99;
// A point of the front is worth a line if a figure is so much better than the run's.
constexpr double kWorthwhile = 0.95;
// Of a device's memory. The rest holds allocations that the engine does not count.
constexpr double kMostShare = 0.95;

// Whether the table would show the same figures for both.
bool has_figures_of(const Trial& a, const Trial& b) {
  const auto shown = [](const Trial& trial) {
    const Summary& summary = trial.summary;
    return std::tuple(ms_text(summary.itl.p99_ms), ms_text(summary.itl.max_ms),
                      ms_text(summary.ttft.p50_ms), ms_text(summary.ttft.p99_ms),
                      ms_text(trial.reachable_ttft_ms), fixed_text(summary.output_throughput, 1),
                      fixed_text(summary.rates.during_prefill, 2), summary.num_preemptions);
  };
  return shown(a) == shown(b);
}

bool is_solution(const Trial& trial) { return trial.keeps_all && trial.counts(); }

}  // namespace

// The first replay that keeps the goal and does not count, and the one nearest to the limits.
void Search::note(const Trial& trial) {
  if (trial.is_cut_short) return;
  if (trial.keeps_all && !trial.counts() && !what_if_.ruled_out) what_if_.ruled_out = trial;
  if (trial.loss != Loss::Goal) return;
  const Trial& best = what_if_.nearest ? *what_if_.nearest : what_if_.baseline;
  if (trial.excess < kNearer * best.excess) what_if_.nearest = trial;
}

// nullopt if the settings are invalid.
std::optional<Trial> Search::try_out(const std::vector<Setting>& changes) {
  std::optional<Trial> trial = replays_.try_out(changes);
  ++num_tried_;
  if (!trial) return trial;
  judge(*trial, what_if_);
  note(*trial);
  return trial;
}

// Replays each value of each family, as far as replays are left.
void Search::walk(std::vector<Family> families) {
  struct Task {
    std::size_t walked;
    std::size_t value;
  };
  std::vector<Task> tasks;
  const std::size_t first = all_.size();
  for (Family& family : families) {
    Walked walked;
    walked.rank = all_.size();
    walked.trials.resize(family.values.size());
    walked.family = std::move(family);
    for (std::size_t v = 0; v < walked.family.values.size(); ++v) tasks.push_back({all_.size(), v});
    all_.push_back(std::move(walked));
  }
  const std::size_t left =
      options_.max_replays > num_tried_ ? options_.max_replays - num_tried_ : 0;
  if (tasks.size() > left) tasks.resize(left);
  num_tried_ += tasks.size();
  start_(count_text(static_cast<std::int64_t>(tasks.size()), "candidate"));
  std::mutex mutex;
  std::size_t num_done = 0;
  for_each_index(tasks.size(), options_.num_threads, [&](std::size_t i) {
    Walked& walked = all_[tasks[i].walked];
    const std::size_t v = tasks[i].value;
    std::optional<Trial> trial = replays_.try_out(walked.family.settings(walked.family.values[v]));
    if (trial) judge(*trial, what_if_);
    walked.trials[v] = std::move(trial);
    const std::lock_guard lock(mutex);
    if (progress_) progress_({.num_ended = ++num_done, .num_total = tasks.size()});
  });
  for (std::size_t w = first; w < all_.size(); ++w) {
    for (const std::optional<Trial>& trial : all_[w].trials) {
      if (trial) note(*trial);
    }
    choose_best(all_[w]);
  }
}

// Whether a value of a family stands for it in place of one that is nearer to the run's.
bool Search::is_better(const Trial& trial, const Trial& best) const {
  if (is_solution(best)) return false;
  if (is_solution(trial)) return true;
  if (trial.counts() != best.counts()) return trial.counts();
  if (what_if_.goals.empty()) return trial.loss_excess < best.loss_excess;
  if (trial.counts()) {
    if (trial.excess > kNearer * best.excess && trial.excess < best.excess / kNearer) {
      return trial.summary.itl.p99_ms < kWorthwhile * best.summary.itl.p99_ms;
    }
    return trial.excess < best.excess;
  }
  return trial.loss_excess < best.loss_excess;
}

// The first value that counts and keeps the goal. Else the nearest to the limits that counts, else
// the nearest of all.
void Search::choose_best(Walked& walked) const {
  walked.best = walked.trials.size();
  for (std::size_t v = 0; v < walked.trials.size(); ++v) {
    const std::optional<Trial>& trial = walked.trials[v];
    if (!trial || trial->is_cut_short) continue;
    if (!walked.has_trial() || is_better(*trial, walked.trial())) walked.best = v;
  }
}

// Between two values that break different sides, one may break none.
void Search::look_between(Walked& walked) {
  const Family& family = walked.family;
  if (family.key.empty() || !walked.has_trial() || is_solution(walked.trial())) return;
  constexpr int kMostHalvings = 3;
  const std::size_t at = walked.best;
  for (const bool is_nearer_run : {true, false}) {
    std::int64_t near = family.values[at];
    std::optional<std::int64_t> far;
    if (!is_nearer_run && at + 1 < family.values.size()) far = family.values[at + 1];
    if (is_nearer_run && at > 0) far = family.values[at - 1];
    if (is_nearer_run && at == 0) far = family.failing;
    for (int i = 0; i < kMostHalvings && far; ++i) {
      const std::int64_t middle = (near + *far) / 2 / family.grain * family.grain;
      if (middle <= std::min(near, *far) || middle >= std::max(near, *far)) break;
      std::optional<Trial> trial = try_out(family.settings(middle));
      if (!trial || trial->is_cut_short || !is_better(*trial, walked.trial())) {
        far = middle;
        continue;
      }
      near = middle;
      walked.family.values.push_back(middle);
      walked.trials.push_back(std::move(trial));
      walked.best = walked.trials.size() - 1;
      walked.towards_run = is_nearer_run ? far : std::optional(family.values[at]);
      if (is_solution(walked.trial())) return;
    }
  }
}

// In the families that come nearest.
void Search::look_between_best() {
  constexpr std::size_t kMostFamilies = 4;
  std::vector<Walked*> best;
  for (Walked& walked : all_) {
    const bool is_nearer = walked.has_trial() && walked.trial().excess < what_if_.baseline.excess;
    if (is_nearer) best.push_back(&walked);
  }
  std::stable_sort(best.begin(), best.end(), [](const Walked* a, const Walked* b) {
    return a->trial().loss_excess < b->trial().loss_excess;
  });
  if (best.size() > kMostFamilies) best.resize(kMostFamilies);
  for (Walked* walked : best) look_between(*walked);
}

// Among those that count and keep the goal: the fewest keys, then the group, then the nearest
// value.
const Search::Walked* Search::smallest() const {
  const auto rank = [](const Walked& w) {
    return std::tuple(w.trial().changes.size(), w.family.group, w.best, w.rank);
  };
  const Walked* best = nullptr;
  for (const Walked& w : all_) {
    if (!w.has_trial() || !is_solution(w.trial())) continue;
    if (best == nullptr || rank(w) < rank(*best)) best = &w;
  }
  return best;
}

// The nearest to the limits that counts, if it is nearer than the run.
const Search::Walked* Search::nearest() const {
  const Walked* best = nullptr;
  double least = kNearer * what_if_.baseline.excess;
  for (const Walked& w : all_) {
    if (!w.has_trial() || !w.trial().counts() || !(w.trial().excess < least)) continue;
    least = kNearer * w.trial().excess;
    best = &w;
  }
  return best;
}

// The best few single changes, each with every other.
std::vector<Family> Search::pairs() const {
  constexpr std::size_t kMostFirst = 3;
  std::vector<const Walked*> first;
  for (const Walked& w : all_) {
    const bool is_nearer = w.has_trial() && w.trial().loss != Loss::NoSetting &&
                           w.trial().excess < kNearer * what_if_.baseline.excess &&
                           w.trial().changes.size() <= 2 && !is_other_policy(w.trial().changes);
    if (is_nearer) first.push_back(&w);
  }
  std::stable_sort(first.begin(), first.end(), [](const Walked* a, const Walked* b) {
    return a->trial().loss_excess < b->trial().loss_excess;
  });
  if (first.size() > kMostFirst) first.resize(kMostFirst);
  std::vector<Family> families;
  for (const Walked* one : first) {
    const std::vector<Setting>& changes = one->trial().changes;
    for (const Walked& other : all_) {
      // A setting without effect has none beside others, as far as anybody knows.
      if (!other.has_trial() || has_figures_of(other.trial(), what_if_.baseline)) continue;
      const bool is_single = other.family.others.size() + (other.family.key.empty() ? 0 : 1) == 1;
      const std::string& key =
          other.family.key.empty() ? other.family.others.front().key : other.family.key;
      const bool is_set = std::any_of(changes.begin(), changes.end(),
                                      [&key](const Setting& change) { return change.key == key; });
      if (!is_single || is_set || is_other_policy(other.family.others)) continue;
      Family family = other.family;
      family.others.insert(family.others.begin(), changes.begin(), changes.end());
      family.failing.reset();
      families.push_back(std::move(family));
    }
  }
  return families;
}

std::string Search::failing_text(const std::optional<Trial>& trial) const {
  if (!trial) return "it is refused";
  if (!trial->counts()) return trial->loss_text;
  return trial->keeps_all ? "" : "it does not";
}

std::size_t Search::add_trial(const Trial& trial) {
  std::vector<Trial>& trials = what_if_.trials;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    if (trials[i].changes == trial.changes) return i;
  }
  trials.push_back(trial);
  return trials.size() - 1;
}

// Bisects between values of which one works and the other fails. Finds the nearest value to
// `failing` that still works. If the effect is not monotonic, it is a value whose next neighbour
// fails.
void Search::refine_edge(const Walked& chosen, Trial works, std::int64_t value,
                         std::int64_t failing, std::string why) {
  const Family& family = chosen.family;
  while (true) {
    // Multiples of the grain between the two.
    const std::int64_t least = std::min(value, failing) / family.grain + 1;
    const std::int64_t most = (std::max(value, failing) - 1) / family.grain;
    if (least > most) break;
    const std::int64_t middle = (least + most + 1) / 2 * family.grain;
    std::optional<Trial> trial = try_out(family.settings(middle));
    std::string failed = failing_text(trial);
    if (failed.empty()) {
      value = middle;
      works = std::move(*trial);
    } else {
      failing = middle;
      why = std::move(failed);
    }
  }
  what_if_.chosen = add_trial(works);
  what_if_.next_failing = failing;
  what_if_.failing_text = why;
}

// Chooses the nearest value to the run's that still works.
void Search::refine(const Walked& chosen) {
  const Trial& first = chosen.trial();
  what_if_.chosen = add_trial(first);
  if (!is_solution(first) || chosen.family.key.empty()) return;
  const std::vector<std::int64_t>& values = chosen.family.values;
  std::optional<std::int64_t> towards = chosen.towards_run;
  if (!towards && chosen.best > 0) towards = values[chosen.best - 1];
  if (!towards) towards = chosen.family.failing;
  if (!towards) return;
  std::optional<Trial> trial;
  const auto known = std::find(values.begin(), values.end(), *towards);
  if (known != values.end()) {
    trial = chosen.trials[static_cast<std::size_t>(known - values.begin())];
  } else {
    trial = try_out(chosen.family.settings(*towards));
  }
  std::string why = failing_text(trial);
  if (!why.empty()) {
    coarse_ = first;
    return refine_edge(chosen, first, values[chosen.best], *towards, std::move(why));
  }
  what_if_.chosen = add_trial(*trial);
}

// The figure of gaps that the front has: of the first such side of the goal that the run breaks.
void Search::set_front() {
  const Side* gap = nullptr;
  for (const Side& side : what_if_.sides) {
    const GoalSide kind = side.goal.side;
    if (side.is_guard || (kind != GoalSide::Gap && kind != GoalSide::Rate)) continue;
    if (gap == nullptr || (gap->was_kept() && !side.was_kept())) gap = &side;
  }
  what_if_.front_gap = gap != nullptr ? gap->goal.figure : "max_itl_ms";
  const bool is_rate = gap != nullptr && gap->goal.is_least;
  const auto gap_of = [&](const Trial& trial) {
    const double value = figure(what_if_.front_gap).value(trial.summary, {}).as_number();
    if (std::isnan(value)) return 0.0;
    return is_rate ? (value > 0 ? 1 / value : std::numeric_limits<double>::infinity()) : value;
  };
  const auto ttft_of = [](const Trial& trial) { return trial.reachable_ttft_ms; };
  std::vector<const Trial*> points;
  for (const Walked& w : all_) {
    for (const std::optional<Trial>& trial : w.trials) {
      if (trial && trial->counts()) points.push_back(&*trial);
    }
  }
  const std::optional<Trial> chosen =
      what_if_.chosen ? std::optional(what_if_.trials[*what_if_.chosen]) : std::nullopt;
  const Trial& base = what_if_.baseline;
  const auto simpler = [](const Trial* a, const Trial* b) {
    return a->changes.size() < b->changes.size();
  };
  std::stable_sort(points.begin(), points.end(), simpler);
  // The best of a figure that is worth it, among those within a share of the best.
  const auto best_of = [&](const auto& value_of, const auto& is_allowed) -> const Trial* {
    double least = kWorthwhile * value_of(base);
    const Trial* best = nullptr;
    for (const Trial* point : points) {
      if (!is_allowed(*point) || !(value_of(*point) < least)) continue;
      best = point;
      least = kNearer * value_of(*point);
    }
    return best;
  };
  std::vector<const Trial*> front;
  if (chosen) front.push_back(&*chosen);
  const auto add = [&](const Trial* point) {
    if (point == nullptr) return;
    for (const Trial* one : front) {
      if (has_figures_of(*one, *point)) return;
    }
    front.push_back(point);
  };
  if (coarse_) add(&*coarse_);
  add(best_of(gap_of, [](const Trial&) { return true; }));
  // The earliest first tokens: with a limit of gaps, of those that keep it or come no further from
  // it than the run; else of all that count.
  const double allowed = gap == nullptr ? std::numeric_limits<double>::infinity()
                         : is_rate      ? 1 / gap->goal.limit
                                        : gap->goal.limit;
  add(best_of(ttft_of, [&](const Trial& point) {
    return gap_of(point) <= std::max(gap_of(base), allowed);
  }));
  constexpr std::size_t kMostPoints = 3;
  if (front.size() > kMostPoints) front.resize(kMostPoints);
  // No point is worse than another on both.
  for (const Trial* point : front) {
    const bool is_beaten = std::any_of(front.begin(), front.end(), [&](const Trial* other) {
      return other != point && gap_of(*other) <= gap_of(*point) &&
             ttft_of(*other) <= ttft_of(*point) && !(chosen && point == &*chosen) &&
             !(coarse_ && point == &*coarse_);
    });
    if (!is_beaten) what_if_.front.push_back(add_trial(*point));
  }
}

// A row for each single setting, in the order in which they were tried, and for the best few of the
// others.
void Search::keep_rows() {
  constexpr std::size_t kMostPairs = 5;
  std::vector<const Trial*> pairs;
  for (std::size_t w = 0; w < all_.size(); ++w) {
    if (!all_[w].has_trial() || has_figures_of(all_[w].trial(), what_if_.baseline)) continue;
    if (w < num_single_) {
      add_trial(all_[w].trial());
    } else {
      pairs.push_back(&all_[w].trial());
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(), [](const Trial* a, const Trial* b) {
    return std::pair(!a->counts(), a->loss_excess) < std::pair(!b->counts(), b->loss_excess);
  });
  std::vector<const Trial*> kept;
  for (const Trial* pair : pairs) {
    const bool is_alike = std::any_of(kept.begin(), kept.end(), [pair](const Trial* other) {
      return has_figures_of(*other, *pair);
    });
    if (is_alike || kept.size() >= kMostPairs) continue;
    kept.push_back(pair);
    add_trial(*pair);
  }
}

void Search::run(bool wants_blocks) {
  const Scenario& scenario = what_if_.baseline.scenario;
  const Candidates candidates(scenario);
  std::vector<Family> families;
  if (wants_blocks && scenario.kv_cache.backend == KvBackend::Paged) {
    // A share of what is free has no room for activations: what the server chose is what they
    // leave.
    const double share = scenario.cost_model.gpu_memory_utilization;
    const bool is_of_free =
        find_policy(scenario.scheduler.policy)->memory_share == MemoryShare::OfFree;
    CacheSize& cache = what_if_.cache;
    cache.most_share = is_of_free ? share : std::max(share, kMostShare);
    cache.most_blocks = replays_.blocks_of_share(cache.most_share);
    // Where nobody knows the memory, what the device has room for is the reader's to say. A GPU of
    // the catalogue that the weights do not fit has room for none.
    constexpr std::int64_t kTimesOfUnknown = 4;
    const std::int64_t most =
        scenario.hardware.empty() ? kTimesOfUnknown * cache.num_blocks : cache.most_blocks;
    if (most > cache.num_blocks) {
      families.push_back(Candidates::more_blocks(cache.num_blocks, most));
    }
    for (Family& family : candidates.reserves()) families.push_back(std::move(family));
  }
  for (Family& family : candidates.own_settings()) families.push_back(std::move(family));
  const bool has_engine = product_of(scenario.scheduler.policy).flags != nullptr;
  if (what_if_.engine.empty() && !has_engine) {
    const auto gap = std::find_if(what_if_.goals.begin(), what_if_.goals.end(),
                                  [](const Goal& goal) { return goal.side == GoalSide::Gap; });
    const double target_ms = gap != what_if_.goals.end()
                                 ? gap->limit
                                 : std::max(what_if_.baseline.summary.itl.max_ms / 2, 0.01);
    for (Family& family : candidates.other_policies(target_ms)) {
      families.push_back(std::move(family));
    }
  }
  walk(std::move(families));
  num_single_ = all_.size();
  if (!what_if_.goals.empty() && smallest() == nullptr) {
    look_between_best();
  }
  if (!what_if_.goals.empty() && smallest() == nullptr) walk(pairs());
  keep_rows();
  if (!what_if_.goals.empty()) {
    if (const Walked* best = smallest(); best != nullptr) {
      refine(*best);
    } else if (const Walked* near = nearest(); near != nullptr) {
      refine(*near);
    }
  }
  set_front();
}

}  // namespace metronome
