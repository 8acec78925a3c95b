// SPDX-License-Identifier: Apache-2.0
#include "study/tune/tune_store.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/files.h"
#include "core/base/json.h"

namespace metronome {
namespace {

// The numbers of a trial, by name.
template <class Trial, class Visit>
void visit_numbers(Trial& trial, const Visit& visit) {
  visit("num_in_system", trial.num_in_system);
  visit("output_throughput", trial.summary.output_throughput);
  visit("total_token_throughput", trial.summary.total_token_throughput);
  visit("busy_share", trial.summary.busy_share);
  visit("p99_ttft_ms", trial.summary.ttft.p99_ms);
  visit("mean_itl_ms", trial.summary.itl.mean_ms);
  visit("std_itl_ms", trial.summary.itl.std_ms);
  visit("p50_itl_ms", trial.summary.itl.p50_ms);
  visit("p90_itl_ms", trial.summary.itl.p90_ms);
  visit("p95_itl_ms", trial.summary.itl.p95_ms);
  visit("p99_itl_ms", trial.summary.itl.p99_ms);
  visit("max_itl_ms", trial.summary.itl.max_ms);
  visit("mean_tpot_ms", trial.summary.tpot.mean_ms);
  visit("decode_rate_during_prefill", trial.summary.rates.during_prefill);
  visit("slowest_10s_output_throughput", trial.summary.rates.slowest_10s);
  visit("waits_kv_cache", trial.waits.kv_cache);
  visit("waits_max_num_seqs", trial.waits.max_num_seqs);
  visit("waits_steps", trial.waits.steps);
}

template <class Trial, class Visit>
void visit_counts(Trial& trial, const Visit& visit) {
  visit("num_requests", trial.num_requests);
  visit("num_runs", trial.num_runs);
  visit("num_simulated", trial.num_simulated);
  visit("misses_ttft", trial.misses.ttft);
  visit("misses_tpot", trial.misses.tpot);
  visit("misses_itl", trial.misses.itl);
  visit("misses_e2el", trial.misses.e2el);
  visit("misses_not_completed", trial.misses.not_completed);
}

// JSON has no NaN.
Json to_json(double number) { return std::isnan(number) ? Json(nullptr) : Json(number); }
double number_of(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}

Json to_json(const std::vector<double>& numbers) {
  Json list = Json::array();
  for (const double number : numbers) list.push_back(to_json(number));
  return list;
}
std::vector<double> numbers_of(const Json& json) {
  std::vector<double> numbers;
  for (const Json& item : json) numbers.push_back(number_of(item));
  return numbers;
}

Json to_json(const std::string& id, const TuneTrial& trial) {
  Json json = {{"id", id}, {"load", trial.load}, {"num_judged", trial.good.size()}};
  visit_counts(trial, [&json](const char* name, std::size_t count) { json[name] = count; });
  visit_numbers(trial, [&json](const char* name, double number) { json[name] = to_json(number); });
  json["can_be_longer"] = trial.can_be_longer;
  json["run_p99_ttft_ms"] = to_json(trial.run_p99_ttft_ms);
  json["run_p99_itl_ms"] = to_json(trial.run_p99_itl_ms);
  json["run_max_itl_ms"] = to_json(trial.run_max_itl_ms);
  json["run_mean_tpot_ms"] = to_json(trial.run_mean_tpot_ms);
  // The bad requests are few in most trials: the number of good ones before each.
  Json bad = Json::array();
  std::size_t num_good = 0;
  for (const std::uint8_t good : trial.good) {
    if (good != 0) {
      ++num_good;
    } else {
      bad.push_back(std::exchange(num_good, 0));
    }
  }
  json["good_before_bad"] = std::move(bad);
  return json;
}

TuneTrial trial_of(const Json& json) {
  TuneTrial trial;
  trial.load = json.at("load").get<double>();
  visit_counts(trial, [&json](const char* name, std::size_t& count) {
    count = json.at(name).get<std::size_t>();
  });
  visit_numbers(trial,
                [&json](const char* name, double& number) { number = number_of(json.at(name)); });
  trial.can_be_longer = json.at("can_be_longer").get<bool>();
  trial.run_p99_ttft_ms = numbers_of(json.at("run_p99_ttft_ms"));
  trial.run_p99_itl_ms = numbers_of(json.at("run_p99_itl_ms"));
  trial.run_max_itl_ms = numbers_of(json.at("run_max_itl_ms"));
  trial.run_mean_tpot_ms = numbers_of(json.at("run_mean_tpot_ms"));
  trial.good.assign(json.at("num_judged").get<std::size_t>(), 1);
  std::size_t position = 0;
  std::size_t num_bad = 0;
  for (const Json& before : json.at("good_before_bad")) {
    position += before.get<std::size_t>();
    trial.good.at(position++) = 0;
    ++num_bad;
  }
  trial.attainment =
      static_cast<double>(trial.good.size() - num_bad) / static_cast<double>(trial.good.size());
  trial.goodput = trial.attainment * trial.load;
  return trial;
}

}  // namespace

std::string trial_line(const std::string& id, const TuneTrial& trial) {
  return to_json(id, trial).dump();
}

std::optional<TuneTrial> trial_of_line(const std::string& line) {
  try {
    return trial_of(Json::parse(line));
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

TuneStore::TuneStore(const std::string& path) {
  std::ifstream file = open_input(path);
  for (std::string line; next_line(file, line);) {
    try {
      const Json json = Json::parse(line);
      TuneTrial trial = trial_of(json);
      Key key = {json.at("id").get<std::string>(), trial.load, trial.num_requests};
      entries_.insert_or_assign(std::move(key), Entry{std::move(trial), false});
    } catch (const std::exception&) {
      // A line of another version: its trial is run again.
    }
  }
}

std::optional<TuneTrial> TuneStore::find(const std::string& id, double load,
                                         std::size_t num_requests) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find({id, load, num_requests});
  if (found == entries_.end()) return std::nullopt;
  found->second.is_used = true;
  ++num_reused_;
  return found->second.trial;
}

void TuneStore::add(const std::string& id, const TuneTrial& trial) {
  const std::lock_guard lock(mutex_);
  entries_.insert_or_assign(Key{id, trial.load, trial.num_requests}, Entry{trial, true});
}

std::string TuneStore::text(bool all) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [key, entry] : entries_) {
    if (all || entry.is_used) text += trial_line(std::get<0>(key), entry.trial) + "\n";
  }
  return text;
}

}  // namespace metronome
