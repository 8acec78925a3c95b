// SPDX-License-Identifier: Apache-2.0
#include "engines/decisions/decision_replay.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>

#include "core/base/error.h"
#include "core/config/config_reader.h"
#include "core/engine/padded_drafts.h"
#include "core/engine/policies/registry.h"
#include "engines/decisions/decision_format.h"

namespace metronome {
namespace {

// A case fails after this many steps in which no request arrived or ended.
constexpr std::int64_t kMaxStepsWithoutEnd = kMaxArrivalStep;
constexpr TokenId kEndOfText{7};

// The list indices of the requests by RequestId. The core numbers requests as they are submitted.
std::vector<std::size_t> submission_order(const DecisionCase& c) {
  std::vector<std::size_t> order(c.requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return c.requests[a].arrival_step < c.requests[b].arrival_step;
  });
  return order;
}

Workload workload_of(const DecisionCase& c, const std::vector<std::size_t>& order) {
  Workload workload;
  for (const std::size_t i : order) {
    const DecisionRequest& request = c.requests[i];
    workload.requests.push_back(request.spec);
    workload.image_begin.push_back(static_cast<std::uint32_t>(workload.images.size()));
    workload.images.insert(workload.images.end(), request.images.begin(), request.images.end());
    if (request.prompt.empty()) continue;
    workload.token_begin.push_back(workload.token_ids.size());
    workload.token_ids.insert(workload.token_ids.end(), request.prompt.begin(),
                              request.prompt.end());
  }
  workload.image_begin.push_back(static_cast<std::uint32_t>(workload.images.size()));
  if (!workload.token_begin.empty()) workload.token_begin.push_back(workload.token_ids.size());
  return workload;
}

Json json_of(const BlockTable& table) {
  Json ids = Json::array();
  for (const BlockId block : table) ids.push_back(index(block));
  return ids;
}

}  // namespace

DecisionReplay::DecisionReplay(const DecisionCase& c)
    : case_(c),
      cursors_(c.requests.size()),
      order_(submission_order(c)),
      workload_(workload_of(c, order_)),
      hasher_(&workload_),
      kv_cache_(c.setup.kv_cache, &hasher_),
      gate_(receive_interval(c.setup.scheduler)) {
  EncoderSetup encoder = c.setup.encoder;
  if (encoder.takes_images()) encoder.items = &workload_;
  const PolicyContext context = {.config = c.setup.scheduler,
                                 .max_num_seqs = c.setup.max_num_seqs,
                                 .max_model_len = c.setup.max_model_len,
                                 .step_shape = c.setup.step_shape,
                                 .kv_cache = kv_cache_};
  scheduler_.emplace(BooksSetup{.kv_cache = kv_cache_, .requests = requests_, .encoder = encoder},
                     context, find_policy(c.setup.scheduler.policy)->make(context));
}

Json DecisionReplay::step() {
  const std::size_t num_before = requests_.size() + num_ended_;
  if (gate_.receives(had_prompts_)) add_arrivals();
  Json log = plan_and_commit();
  while (case_.format->goes_on != nullptr && case_.format->goes_on(*this)) {
    case_.format->join(log, plan_and_commit());
  }
  check_progress(requests_.size() + num_ended_ > num_before);
  ++step_;
  return log;
}

Json DecisionReplay::plan_and_commit() {
  StepPlan& plan = in_flight_.emplace_back();
  scheduler_->plan(plan, num_launched_, step_);
  num_ended_ += plan.refused.size();
  had_prompts_ = plan.num_prefill_tokens > 0;
  Json log = case_.format->log_step(*this, plan);
  is_stuck_ = is_waiting_for_nothing(plan);

  const bool is_empty = plan.empty();
  if (is_empty) {
    in_flight_.pop_back();
  } else {
    ++num_launched_;
  }
  const bool is_full = in_flight_.size() == static_cast<std::size_t>(case_.setup.async_depth);
  std::vector<RequestId> ended;
  Json sampled = Json::object();
  if (is_full || (is_empty && !in_flight_.empty())) ended = commit_oldest(sampled);
  if (case_.format->log_ended != nullptr) {
    case_.format->log_ended(*this, ended, log);
  } else if (!log.contains("idle")) {
    log["finished"] = names_of(in_list_order(ended));
  }
  if (has_drafts()) log["sampled"] = std::move(sampled);
  if (is_stuck_ && !log.contains("stuck")) log["stuck"] = true;
  return log;
}

void DecisionReplay::add_arrivals() {
  while (requests_.size() < order_.size()) {
    const DecisionRequest& next = case_.requests[order_[requests_.size()]];
    if (next.arrival_step > step_) return;
    scheduler_->enqueue(requests_.add(next.spec));
  }
}

// `sampled` gets the number of tokens that the step returns for each request.
std::vector<RequestId> DecisionReplay::commit_oldest(Json& sampled) {
  StepPlan& plan = in_flight_.front();
  StepResult result;
  result.step_index = plan.step_index;
  for (const ScheduledChunk& chunk : plan.chunks) {
    const std::size_t i = list_index(chunk.request);
    if (has_drafts()) add_drafts(plan, chunk, result);
    if (!chunk.samples_token) continue;
    const std::int32_t num_tokens = has_drafts() ? 1 + result.num_accepted.back() : 1;
    for (std::int32_t j = 0; j < num_tokens; ++j) {
      const std::int32_t k = requests_[chunk.request].num_output_tokens() + j;
      const bool is_end = case_.requests[i].output_len == k + 1;
      result.sampled_tokens.push_back(is_end ? kEndOfText : output_token(i, k));
      result.ends_request.push_back(is_end ? 1 : 0);
    }
    if (!requests_[chunk.request].has_ended()) sampled[name_of(chunk.request)] = num_tokens;
  }
  scheduler_->commit(plan, result, report_);
  in_flight_.pop_front();
  num_ended_ += report_.ended.size();
  return report_.ended;
}

// Token number `k` of the output of the request at place `i` of the list.
TokenId DecisionReplay::output_token(std::size_t i, std::int32_t k) const {
  const std::vector<TokenId>& output = case_.requests[i].output;
  if (static_cast<std::size_t>(k) < output.size()) return output[static_cast<std::size_t>(k)];
  const std::size_t token = 100'000 + 1000 * i + static_cast<std::size_t>(k);
  return TokenId(static_cast<std::int32_t>(token));
}

// Adds the drafts that a chunk's verification accepts, and those that are proposed next.
void DecisionReplay::add_drafts(const StepPlan& plan, const ScheduledChunk& chunk,
                                StepResult& result) {
  const DecisionRequest& request = case_.requests[list_index(chunk.request)];
  DraftCursor& cursor = cursors_[index(chunk.request)];
  const auto next = [](const std::vector<std::int64_t>& counts, std::size_t& at) {
    return static_cast<std::int32_t>(counts[at++ % counts.size()]);
  };
  const std::int32_t num_proposed =
      request.proposed.empty() ? 0 : next(request.proposed, cursor.proposed);
  if (!chunk.samples_token) return;
  const std::int32_t num_verified = num_verified_drafts(plan, chunk);
  result.num_accepted.push_back(
      num_verified > 0 ? std::min(next(request.accepted, cursor.accepted), num_verified) : 0);
  // With a step in flight the scheduler assumes the most.
  if (request.proposed.empty() || case_.setup.async_depth > 1) return;
  result.num_proposed.push_back(std::min(num_proposed, requests_[chunk.request].num_draft_tokens));
}

// The newest step, `plan`, did nothing, and neither an arrival nor a result can change anything. A
// result in flight changes nothing if all its requests have ended: an engine may compute a token
// too many for a request that ends by a stop token.
bool DecisionReplay::is_waiting_for_nothing(const StepPlan& plan) const {
  const bool did_nothing = plan.empty() && plan.preempted.empty() && plan.refused.empty();
  const auto has_ended = [this](const ScheduledChunk& chunk) {
    return requests_[chunk.request].has_ended();
  };
  return did_nothing && scheduler_->wake_time() == kNever &&
         std::all_of(in_flight_.begin(), in_flight_.end(),
                     [&](const StepPlan& flying) {
                       return std::all_of(flying.chunks.begin(), flying.chunks.end(), has_ended);
                     }) &&
         requests_.size() == order_.size() && num_ended_ < order_.size();
}

void DecisionReplay::check_progress(bool has_progressed) {
  if (has_progressed) last_progress_ = step_;
  if (step_ - last_progress_ <= kMaxStepsWithoutEnd) return;
  fail_config(
      case_.where, "requests",
      fmt::format(
          "no request of seed {} ends in {} steps; allowed: requests that the engine can finish",
          case_.seed, kMaxStepsWithoutEnd));
}

// The order that the logs use for sets.
std::vector<RequestId> DecisionReplay::in_list_order(std::vector<RequestId> ids) const {
  std::sort(ids.begin(), ids.end(),
            [this](RequestId a, RequestId b) { return list_index(a) < list_index(b); });
  return ids;
}

Json DecisionReplay::names_of(const std::vector<RequestId>& ids) const {
  Json names = Json::array();
  for (const RequestId id : ids) names.push_back(name_of(id));
  return names;
}

Json DecisionReplay::names_of(const std::vector<Request*>& requests) const {
  Json names = Json::array();
  for (const Request* request : requests) names.push_back(name_of(request->id));
  return names;
}

Json DecisionReplay::tokens_of(const StepPlan& plan) const {
  Json tokens = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    tokens[name_of(chunk.request)] = chunk.num_tokens;
  }
  return tokens;
}

Json DecisionReplay::tables_of(const Request& request) const {
  if (request.group_tables.empty()) return json_of(request.block_table);
  Json tables = Json::array();
  for (const LayerGroup& group : kv_cache_.groups()) {
    tables.push_back(json_of(group.kind == LayerGroup::Kind::Full
                                 ? request.block_table
                                 : request.group_tables[group.table]));
  }
  return tables;
}

}  // namespace metronome
