// SPDX-License-Identifier: Apache-2.0
#include "study/decisions/decisions.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config_reader.h"
#include "core/engine/arrival_gate.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/engine/padded_drafts.h"
#include "core/engine/policies/registry.h"
#include "core/engine/scheduler.h"
#include "core/workload/workload.h"
#include "engines/sglang/policy.h"
#include "engines/vllm/settings.h"
#include "study/decisions/decision_case.h"

namespace metronome {
namespace {

// A case fails after this many steps in which no request arrived or ended.
constexpr std::int64_t kMaxStepsWithoutEnd = kMaxArrivalStep;
constexpr TokenId kEndOfText{7};  // of sglang's cases

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

// Runs one case step by step.
class Replay {
 public:
  explicit Replay(const DecisionCase& c);

  bool has_ended() const { return is_stuck_ || num_ended_ == case_.requests.size(); }
  void check_integrity() const {
    kv_cache_.check_integrity(requests_);
    scheduler_->check_encoder();
  }
  // One step in the format of the engine's log. Requires that the case has not ended. Throws
  // ConfigError if the engine keeps running without ending a request.
  Json step();

 private:
  void add_arrivals();
  std::vector<RequestId> commit_oldest(Json& log);  // the requests that ended
  void add_drafts(const StepPlan& plan, const ScheduledChunk& chunk, StepResult& result);
  bool is_waiting_for_nothing(const StepPlan& plan) const;
  void check_progress(bool has_progressed);

  Json log_of(const StepPlan& plan) const;
  Json vllm_log(const StepPlan& plan) const;
  void add_images(const StepPlan& plan, Json& log) const;
  Json nano_vllm_log(const StepPlan& plan) const;
  Json sarathi_log(const StepPlan& plan) const;
  Json sglang_log(const StepPlan& plan) const;

  bool has_drafts() const { return case_.setup.scheduler.drafts.num_tokens > 0; }
  std::size_t list_index(RequestId id) const { return order_[index(id)]; }
  const std::string& name_of(RequestId id) const { return case_.requests[list_index(id)].id; }
  std::vector<RequestId> in_list_order(std::vector<RequestId> ids) const;
  Json names_of(const std::vector<RequestId>& ids) const;
  Json names_of(const std::vector<Request*>& requests) const;
  Json tokens_of(const StepPlan& plan) const;
  Json admitted_positions(const StepPlan& plan) const;
  Json tables_of(const Request& request) const;

  struct DraftCursor {  // the next entries of DecisionRequest's lists
    std::size_t accepted = 0;
    std::size_t proposed = 0;
  };

  const DecisionCase& case_;
  std::vector<DraftCursor> cursors_;  // by RequestId
  std::vector<std::size_t> order_;    // index in the list, by RequestId
  Workload workload_;
  PrefixHasher hasher_;
  KvCacheManager kv_cache_;
  RequestTable requests_;
  std::optional<Scheduler> scheduler_;
  ArrivalGate gate_;
  bool had_prompts_ = false;        // the last plan
  std::deque<StepPlan> in_flight_;  // oldest first
  CommitReport report_;
  std::int64_t step_ = 0;
  std::int64_t num_launched_ = 0;   // steps with chunks
  std::int64_t last_progress_ = 0;  // step
  std::size_t num_ended_ = 0;
  bool is_stuck_ = false;
};

Replay::Replay(const DecisionCase& c)
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

Json Replay::step() {
  const std::size_t num_before = requests_.size() + num_ended_;
  if (gate_.receives(had_prompts_)) add_arrivals();
  StepPlan& plan = in_flight_.emplace_back();
  scheduler_->plan(plan, num_launched_, step_);
  num_ended_ += plan.refused.size();
  had_prompts_ = plan.num_prefill_tokens > 0;
  Json log = log_of(plan);
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
  if (!log.contains("idle")) log["finished"] = names_of(in_list_order(ended));
  if (has_drafts()) log["sampled"] = std::move(sampled);
  if (is_stuck_ && !log.contains("stuck")) log["stuck"] = true;
  check_progress(requests_.size() + num_ended_ > num_before);
  ++step_;
  return log;
}

void Replay::add_arrivals() {
  while (requests_.size() < order_.size()) {
    const DecisionRequest& next = case_.requests[order_[requests_.size()]];
    if (next.arrival_step > step_) return;
    scheduler_->enqueue(requests_.add(next.spec));
  }
}

// `sampled` gets the number of tokens that the step returns for each request.
std::vector<RequestId> Replay::commit_oldest(Json& sampled) {
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
      const std::size_t token = 100'000 + 1000 * i + static_cast<std::size_t>(k);
      result.sampled_tokens.push_back(is_end ? kEndOfText
                                             : TokenId(static_cast<std::int32_t>(token)));
      result.ends_request.push_back(is_end ? 1 : 0);
    }
    if (!requests_[chunk.request].has_ended()) sampled[name_of(chunk.request)] = num_tokens;
  }
  scheduler_->commit(plan, result, report_);
  in_flight_.pop_front();
  num_ended_ += report_.ended.size();
  return report_.ended;
}

// Adds the drafts that a chunk's verification accepts, and those that are proposed next.
void Replay::add_drafts(const StepPlan& plan, const ScheduledChunk& chunk, StepResult& result) {
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
// result in flight changes nothing if all its requests have ended: sglang computes a token too many
// for a request that ends by a stop token.
bool Replay::is_waiting_for_nothing(const StepPlan& plan) const {
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

void Replay::check_progress(bool has_progressed) {
  if (has_progressed) last_progress_ = step_;
  if (step_ - last_progress_ <= kMaxStepsWithoutEnd) return;
  fail_config(case_.where, "requests",
              "no request of seed " + std::to_string(case_.seed) + " ends in " +
                  std::to_string(kMaxStepsWithoutEnd) +
                  " steps; allowed: requests that the engine can finish");
}

// The order that the logs use for sets.
std::vector<RequestId> Replay::in_list_order(std::vector<RequestId> ids) const {
  std::sort(ids.begin(), ids.end(),
            [this](RequestId a, RequestId b) { return list_index(a) < list_index(b); });
  return ids;
}

Json Replay::names_of(const std::vector<RequestId>& ids) const {
  Json names = Json::array();
  for (const RequestId id : ids) names.push_back(name_of(id));
  return names;
}

Json Replay::names_of(const std::vector<Request*>& requests) const {
  Json names = Json::array();
  for (const Request* request : requests) names.push_back(name_of(request->id));
  return names;
}

Json Replay::tokens_of(const StepPlan& plan) const {
  Json tokens = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    tokens[name_of(chunk.request)] = chunk.num_tokens;
  }
  return tokens;
}

Json Replay::tables_of(const Request& request) const {
  if (request.group_tables.empty()) return json_of(request.block_table);
  const std::size_t num_before = kv_cache_.num_groups_before_full();
  Json tables = Json::array();
  for (std::size_t g = 0; g < request.group_tables.size(); ++g) {
    if (g == num_before) tables.push_back(json_of(request.block_table));
    tables.push_back(json_of(request.group_tables[g]));
  }
  if (num_before == request.group_tables.size()) tables.push_back(json_of(request.block_table));
  return tables;
}

// Positions of the admitted requests' first tokens. vLLM lists new requests before those resumed
// after preemption.
Json Replay::admitted_positions(const StepPlan& plan) const {
  Json positions = Json::object();
  for (const bool comes_back : {false, true}) {
    for (const ScheduledChunk& chunk : plan.chunks) {
      const bool is_admitted = std::find(plan.admitted.begin(), plan.admitted.end(),
                                         chunk.request) != plan.admitted.end();
      if (!is_admitted || (requests_[chunk.request].num_preemptions > 0) != comes_back) continue;
      positions[name_of(chunk.request)] = chunk.first_position;
    }
  }
  return positions;
}

Json Replay::log_of(const StepPlan& plan) const {
  switch (case_.engine) {
    case DecisionEngine::Vllm: return vllm_log(plan);
    case DecisionEngine::NanoVllm: return nano_vllm_log(plan);
    case DecisionEngine::Sarathi: return sarathi_log(plan);
    case DecisionEngine::Sglang: return sglang_log(plan);
  }
  return {};
}

Json Replay::vllm_log(const StepPlan& plan) const {
  Json log;
  log["scheduled"] = tokens_of(plan);
  log["preempted"] = names_of(in_list_order(plan.preempted));
  log["running"] = names_of(scheduler_->running());
  log["waiting"] = names_of(scheduler_->waiting().in_order());
  log["free_blocks"] = kv_cache_.num_free_blocks();
  if (!plan.admitted.empty()) log["admitted_computed"] = admitted_positions(plan);
  Json tables = Json::object();
  for (const Request* request : scheduler_->running()) {
    tables[name_of(request->id)] = tables_of(*request);
  }
  log["block_tables"] = std::move(tables);
  if (case_.setup.encoder.takes_images()) add_images(plan, log);
  if (!has_drafts()) return log;
  Json drafts = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (chunk.num_drafts() > 0) drafts[name_of(chunk.request)] = chunk.num_drafts();
  }
  log["drafts"] = std::move(drafts);
  return log;
}

// The images that the step encodes, by request, and those that it drops before.
void Replay::add_images(const StepPlan& plan, Json& log) const {
  Json encoded = Json::object();
  for (const PlannedEncoding& encoding : plan.encodings) {
    const std::string& name = name_of(encoding.request);
    if (!encoded.contains(name)) encoded[name] = Json::array();
    encoded[name].push_back(encoding.item);
  }
  log["encoded"] = std::move(encoded);
  Json freed = Json::array();
  for (const std::uint64_t content : plan.freed_contents) {
    freed.push_back(case_.image_names[content]);
  }
  log["freed"] = std::move(freed);
}

Json Replay::nano_vllm_log(const StepPlan& plan) const {
  if (plan.empty()) return {{"scheduled", Json::object()}, {"idle", true}};
  // In that engine a request with an incomplete prompt remains at the head of the queue.
  std::vector<Request*> running;
  std::vector<Request*> waiting;
  for (Request* request : scheduler_->running()) {
    (request->state == RequestState::Prefill ? waiting : running).push_back(request);
  }
  for (Request* request : scheduler_->waiting().in_order()) waiting.push_back(request);

  Json tables = Json::object();
  Json cached = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    tables[name_of(chunk.request)] = tables_of(requests_[chunk.request]);
    cached[name_of(chunk.request)] = chunk.first_position;
  }
  Json log;
  log["is_prefill"] = plan.chunks.front().kind == ChunkKind::Prefill;
  log["scheduled"] = tokens_of(plan);
  log["block_tables"] = std::move(tables);
  log["running"] = names_of(running);
  log["waiting"] = names_of(waiting);
  log["cached"] = std::move(cached);
  log["free_blocks"] = kv_cache_.num_free_blocks();
  return log;
}

Json Replay::sarathi_log(const StepPlan& plan) const {
  Json log;
  log["preempted"] = names_of(plan.preempted);
  log["ignored"] = names_of(plan.refused);
  Json scheduled = Json::array();
  for (const ChunkKind kind : {ChunkKind::Prefill, ChunkKind::Decode}) {
    const char* letter = kind == ChunkKind::Prefill ? "p" : "d";
    for (const ScheduledChunk& chunk : plan.chunks) {
      if (chunk.kind != kind) continue;
      scheduled.push_back(Json::array({name_of(chunk.request), chunk.num_tokens, letter}));
    }
  }
  log["scheduled"] = std::move(scheduled);
  log["free_blocks"] = kv_cache_.num_free_blocks();
  log["running"] = names_of(scheduler_->running());
  log["waiting"] = names_of(scheduler_->waiting().in_order());
  return log;
}

// `stuck` stands before the ratio.
Json Replay::sglang_log(const StepPlan& plan) const {
  const auto* decisions = dynamic_cast<const SglangDecisions*>(&scheduler_->policy());
  METRONOME_CHECK(decisions != nullptr, "this engine's policy is sglang");
  const SglangState state = decisions->state();
  Json log;
  log["batch"] = plan.empty()                   ? "idle"
                 : plan.num_prefill_tokens == 0 ? "decode"
                 : plan.num_decode_tokens > 0   ? "mixed"
                                                : "prefill";
  log["scheduled"] = tokens_of(plan);
  Json admitted = Json::object();
  for (const ScheduledChunk& chunk : plan.chunks) {
    if (std::find(plan.admitted.begin(), plan.admitted.end(), chunk.request) ==
        plan.admitted.end()) {
      continue;
    }
    admitted[name_of(chunk.request)] = chunk.first_position;
  }
  if (!admitted.empty()) log["admitted_computed"] = std::move(admitted);
  log["chunked"] = state.chunked == kNoRequest ? Json() : Json(name_of(state.chunked));
  log["preempted"] = names_of(in_list_order(plan.preempted));
  log["running"] = names_of(state.running_batch);
  log["waiting"] = names_of(scheduler_->waiting().in_order());
  const std::int64_t page_size = kv_cache_.block_size();
  log["free_tokens"] = kv_cache_.num_free_blocks() * page_size;
  log["evictable_tokens"] = kv_cache_.num_evictable_blocks() * page_size;
  if (state.num_evicted_tokens > 0) log["evicted_tokens"] = state.num_evicted_tokens;
  if (is_waiting_for_nothing(plan)) log["stuck"] = true;
  log["new_token_ratio"] = state.new_token_ratio;
  log["batch_is_full"] = state.batch_is_full;
  if (!plan.refused.empty()) log["aborted"] = names_of(plan.refused);
  return log;
}

DecisionEngine engine_named(std::string_view name) {
  const auto found = std::find(std::begin(kDecisionEngines), std::end(kDecisionEngines), name);
  if (found == std::end(kDecisionEngines)) {
    fail_config(
        {}, "engine",
        "unknown engine '" + std::string(name) + "'; allowed: " + join_names(kDecisionEngines));
  }
  return static_cast<DecisionEngine>(found - std::begin(kDecisionEngines));
}

DecisionSource source_of(std::string_view engine, const std::string& path,
                         std::string_view version) {
  DecisionSource source{.engine = engine_named(engine), .path = path};
  if (version.empty()) return source;
  if (source.engine != DecisionEngine::Vllm) {
    fail_config({}, "version", "only vllm has versions; allowed: none");
  }
  const auto found = std::find(std::begin(kVllmVersions), std::end(kVllmVersions), version);
  if (found == std::end(kVllmVersions)) {
    fail_config(
        {}, "version",
        "unknown version '" + std::string(version) + "'; allowed: " + join_names(kVllmVersions));
  }
  source.vllm_version = static_cast<int>(found - std::begin(kVllmVersions));
  return source;
}

// Whether the values are equal and their members have the same order, which identifies an engine's
// order.
bool is_same(const Json& a, const Json& b) {
  if (!a.is_structured() || a != b) return a == b;
  for (std::size_t i = 0; i < a.items().size(); ++i) {
    const auto& [key, value] = a.items()[i];
    if (b.items()[i].key != key || !is_same(value, b.items()[i].value)) return false;
  }
  return std::equal(a.begin(), a.end(), b.begin(), is_same);
}

// The first field that differs, without its position. If the run ended as stuck in this step, the
// record may lack fields.
std::optional<DecisionDifference> first_difference(const Json& recorded, const Json& got) {
  for (const auto& [field, expected] : recorded.items()) {
    const Json* found = got.find(field);
    if (found == nullptr) return {{.field = field, .expected = expected.dump(), .got = ""}};
    if (!is_same(*found, expected)) {
      return {{.field = field, .expected = expected.dump(), .got = found->dump()}};
    }
  }
  if (recorded.contains("stuck")) return std::nullopt;
  for (const auto& [field, value] : got.items()) {
    if (!recorded.contains(field)) {
      return {{.field = field, .expected = "", .got = value.dump()}};
    }
  }
  return std::nullopt;
}

std::optional<DecisionDifference> check_case(const DecisionCase& c) {
  std::optional<DecisionDifference> difference;
  Replay replay(c);
  std::size_t step = 0;
  for (; !replay.has_ended(); ++step) {
    const Json got = replay.step();
    // If one log is longer, only the length differs. That is reported at the end.
    if (step >= c.steps_json.size() || got.dump() == c.steps_json[step]) continue;
    difference = first_difference(Json::parse(c.steps_json[step]), got);
    if (difference) break;
  }
  replay.check_integrity();
  if (!difference && step != c.steps_json.size()) {
    difference = {.field = "number of steps",
                  .expected = std::to_string(c.steps_json.size()),
                  .got = std::to_string(step)};
    step = std::min(step, c.steps_json.size());
  }
  if (difference) {
    difference->line = static_cast<std::size_t>(c.where.line);
    difference->seed = c.seed;
    difference->step = step;
  }
  return difference;
}

std::string with_own_steps(const DecisionCase& c) {
  std::string text = "{\"seed\":" + std::to_string(c.seed);
  if (!c.kind.empty()) text += ",\"kind\":" + Json(c.kind).dump();
  text += ",\"config\":" + c.config_json + ",\"requests\":" + c.requests_json + ",\"steps\":[";
  Replay replay(c);
  for (bool is_first = true; !replay.has_ended(); is_first = false) {
    if (!is_first) text += ',';
    text += replay.step().dump();
  }
  replay.check_integrity();
  return text + "]}\n";
}

}  // namespace

std::span<const std::string_view> decision_engines() { return kDecisionEngines; }

void write_decisions(std::string_view engine, const std::string& path, std::ostream& out,
                     std::string_view version) {
  for_each_decision_case(source_of(engine, path, version),
                         [&out](const DecisionCase& c) { out << with_own_steps(c); });
}

DecisionCheck check_decisions(std::string_view engine, const std::string& path,
                              std::string_view version) {
  DecisionCheck check;
  for_each_decision_case(source_of(engine, path, version), [&check](const DecisionCase& c) {
    if (!c.has_steps) {
      fail_config(c.where, "steps", "required key is missing; allowed: the steps to check");
    }
    ++check.num_cases;
    if (auto difference = check_case(c)) check.differences.push_back(std::move(*difference));
  });
  return check;
}

}  // namespace metronome
