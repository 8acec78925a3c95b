// SPDX-License-Identifier: Apache-2.0
#include "fleet/replica.h"

#include "core/base/error.h"
#include "sim/simulation.h"

namespace metronome {
namespace {

EngineSetup with_items(EngineSetup setup, const PromptSource& prompts, bool has_images) {
  if (!has_images) return setup;
  setup.encoder.items = &prompts;
  setup.encoder.forgets_unfilled = setup.kv_cache.forgets_unfilled_blocks;
  return setup;
}

std::vector<EventSink*> parts_for(const ReplicaScope& scope, std::span<EventSink* const> sinks,
                                  EventSink& own, bool& shares_sinks) {
  std::vector<EventSink*> parts;
  for (EventSink* const sink : sinks) {
    EventSink* const part = sink->of_replica(scope);
    if (part != nullptr) parts.push_back(part);
    shares_sinks = shares_sinks || part == sink;
  }
  parts.push_back(&own);
  return parts;
}

}  // namespace

TimeNs Replica::Feed::push(const RequestSpec& spec, TimeNs now) {
  sent_.push_back({hand_over_.time_of(now, spec.num_prompt_tokens), spec});
  return sent_.back().handed_over;
}

std::vector<RequestSpec> Replica::Feed::take_back() {
  std::vector<RequestSpec> specs;
  for (const Sent& sent : sent_) specs.push_back(sent.spec);
  sent_.clear();
  return specs;
}

void Replica::Feed::exchange(Engine& engine, TimeNs now, bool receives) {
  if (!receives) return;
  while (!sent_.empty() && sent_.front().handed_over <= now) {
    const RequestSpec spec = sent_.front().spec;
    sent_.pop_front();
    engine.submit(spec);
  }
}

TimeNs Replica::Feed::next_time(const Engine&) const {
  return sent_.empty() ? kNever : sent_.front().handed_over;
}

void Replica::Watch::on_event(const Event& event, const Request& request) {
  const bool tells = event.kind == EventKind::Ended ||
                     (event.kind == EventKind::FirstToken && tells_first_tokens_);
  if (!tells) return;
  replica_.events_->push_back({.time = event.time,
                               .replica = replica_.id_,
                               .sequence = event.sequence,
                               .request = replica_.number_of(event.request),
                               .has_ended = event.kind == EventKind::Ended,
                               .state = request.state,
                               .num_output_tokens = request.num_output_tokens()});
}

Replica::Replica(ReplicaId id, Simulation& simulation, const PromptSource& prompts, bool has_images,
                 const ReplicaStart& start, std::span<EventSink* const> sinks)
    : id_(id),
      numbers_(std::make_shared<std::vector<std::uint32_t>>()),
      handed_over_(start.may_fail ? std::make_shared<std::vector<TimeNs>>() : nullptr),
      prompts_(prompts, *numbers_),
      feed_(simulation.front_end),
      watch_(*this, start.tells_first_tokens),
      hasher_(&prompts_),
      simulated_(*simulation.cost_model, simulation.acceptance ? &*simulation.acceptance : nullptr,
                 simulation.encoder_cost ? &*simulation.encoder_cost : nullptr,
                 simulation.step_scale),
      executor_(simulated_, simulation.cold_start_ns),
      engine_(with_items(simulation.setup, prompts_, has_images), executor_,
              parts_for({.replica = id,
                         .num_blocks = simulation.setup.kv_cache.num_blocks,
                         .requests = numbers_,
                         .handed_over = handed_over_,
                         .starts_off = start.is_off},
                        sinks, watch_, shares_sinks_),
              &hasher_) {
  engine_.receive_from(feed_);
}

void Replica::send(std::uint32_t number, const RequestSpec& spec, TimeNs now) {
  numbers_->push_back(number);
  const TimeNs handed_over = feed_.push(spec, now);
  if (handed_over_ == nullptr) return;
  handed_over_->push_back(handed_over);
  specs_.push_back(spec);
}

std::vector<Replica::Interrupted> Replica::fail() {
  METRONOME_CHECK(handed_over_ != nullptr, "the replica may fail");
  std::vector<ReplicaEvent> aborted;  // nobody is told: the requests may go on elsewhere
  events_ = &aborted;
  std::vector<Interrupted> interrupted;
  const RequestTable& requests = engine_.requests();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto id = static_cast<RequestId>(i);
    if (!requests.has(id) || requests[id].has_ended()) continue;
    interrupted.push_back({number_of(id), specs_[i]});
    engine_.abort(id);
  }
  const std::vector<RequestSpec> unseen = feed_.take_back();
  for (std::size_t i = 0; i < unseen.size(); ++i) {
    interrupted.push_back({(*numbers_)[requests.size() + i], unseen[i]});
  }
  numbers_->resize(requests.size());
  handed_over_->resize(requests.size());
  specs_.resize(requests.size());
  restart();
  return interrupted;
}

void Replica::restart() {
  std::vector<ReplicaEvent> none;
  advance(kNever, none);
  METRONOME_CHECK(none.empty() && !engine_.has_work(), "a replica that starts has no request");
  engine_.reset_prefix_cache();
}

void Replica::advance(TimeNs until, std::vector<ReplicaEvent>& events) {
  events_ = &events;
  engine_.advance(until);
}

TimeNs Replica::advance_to_change(TimeNs until, std::vector<ReplicaEvent>& events) {
  events_ = &events;
  return engine_.advance_to_change(until);
}

ReplicaReport Replica::report() const {
  const KvCacheManager& cache = engine_.kv_cache();
  return {.num_waiting = static_cast<std::int64_t>(engine_.num_waiting()),
          .num_running = static_cast<std::int64_t>(engine_.num_running()),
          .kv_usage = static_cast<double>(cache.num_used_blocks()) /
                      static_cast<double>(cache.num_blocks())};
}

HashChain Replica::chain_of(const PrefixHasher& hasher, std::uint32_t number,
                            const RequestSpec& spec) const {
  HashChain chain;
  const KvCacheManager& cache = engine_.kv_cache();
  if (!cache.caches_prefixes()) return chain;
  Request request;
  request.id = RequestId{number};
  request.num_prompt_tokens = spec.num_prompt_tokens;
  const std::int32_t lookahead = cache.num_hash_lookahead_tokens();
  const std::int64_t num_units =
      std::max(spec.num_prompt_tokens - lookahead, 0) / cache.hash_unit();
  hasher.extend(request, cache.hash_unit(), num_units, chain, lookahead);
  return chain;
}

}  // namespace metronome
