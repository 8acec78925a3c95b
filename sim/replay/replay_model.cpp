// SPDX-License-Identifier: Apache-2.0
#include "sim/replay/replay_model.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/decode_run.h"

namespace metronome {
namespace {

std::uint64_t chunk_hash(const ScheduledChunk& chunk) {
  const auto position = static_cast<std::uint64_t>(chunk.first_position);
  const auto kind = static_cast<std::uint64_t>(chunk.kind);
  const std::uint64_t samples = chunk.samples_token ? 1 : 0;
  return mix64(mix64(position << 2 | kind << 1 | samples) +
               static_cast<std::uint64_t>(chunk.num_tokens));
}

}  // namespace

// Within a pass the hashes are summed, so order does not matter. Each pass's sum is mixed, so it
// matters which chunks share a pass.
std::uint64_t step_composition(const StepPlan& plan) {
  std::uint64_t hash = 0;
  for (const ForwardPass& pass : plan.passes) {
    std::uint64_t sum = 0;
    const PassChunks chunks = chunks_of(plan, pass);
    const std::size_t num_decodes = chunks.run != nullptr ? chunks.run->all().size() : 0;
    for (std::size_t i = 0; i < num_decodes; ++i) sum += chunk_hash(chunks.run->chunk(i));
    for (const ScheduledChunk& chunk : chunks.chunks) sum += chunk_hash(chunk);
    hash += mix64(sum);
  }
  return hash == 0 ? 1 : hash;
}

ReplayCostModel::ReplayCostModel(std::vector<RecordedStep> steps, std::unique_ptr<CostModel> unseen,
                                 bool has_own_gap)
    : steps_(std::move(steps)), unseen_(std::move(unseen)), has_own_gap_(has_own_gap) {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].composition == 0) continue;
    places_.push_back({steps_[i].composition, static_cast<std::int64_t>(i)});
  }
  std::sort(places_.begin(), places_.end());
}

const RecordedStep* ReplayCostModel::find(const StepPlan& plan) const {
  if (plan.passes.empty()) return nullptr;
  const Place wanted{step_composition(plan), plan.step_index};
  const auto behind = std::lower_bound(places_.begin(), places_.end(), wanted);
  const bool has_behind = behind != places_.end() && behind->composition == wanted.composition;
  const bool has_before =
      behind != places_.begin() && (behind - 1)->composition == wanted.composition;
  if (!has_behind && !has_before) return nullptr;
  const bool takes_behind =
      has_behind && (!has_before || behind->step - wanted.step < wanted.step - (behind - 1)->step);
  return &steps_[static_cast<std::size_t>((takes_behind ? *behind : *(behind - 1)).step)];
}

StepCost ReplayCostModel::step_cost(const StepPlan& plan) {
  StepCost cost = unseen_->step_cost(plan);
  const RecordedStep* step = find(plan);
  if (step == nullptr) {
    cost.is_extrapolated = true;
    return cost;
  }
  const double ratio = cost.total_ns == 0 ? 0
                                          : static_cast<double>(step->device_ns) /
                                                static_cast<double>(cost.total_ns);
  const auto share = [&](TimeNs part) {  // rounds down: the parts are no more than the whole
    return static_cast<TimeNs>(static_cast<double>(part) * ratio);
  };
  cost.total_ns = step->device_ns;
  cost.linear_ns = std::min(share(cost.linear_ns), cost.total_ns);
  cost.attention_ns = std::min(share(cost.attention_ns), cost.total_ns - cost.linear_ns);
  cost.comm_ns = std::min(share(cost.comm_ns), cost.total_ns - cost.linear_ns - cost.attention_ns);
  cost.overhead_ns = cost.total_ns - cost.linear_ns - cost.attention_ns - cost.comm_ns;
  if (step->decode_only_ns != kNoTime) {
    cost.decode_only_ns = std::min(step->decode_only_ns, cost.total_ns);
  } else if (plan.num_prefill_tokens == 0) {
    cost.decode_only_ns = cost.total_ns;
  } else {
    cost.decode_only_ns = std::min(share(cost.decode_only_ns), cost.total_ns);
  }
  const bool is_alone = plan.num_prefill_tokens == 0;
  cost.decode_only_attention_ns =
      is_alone ? cost.attention_ns
               : std::min(share(cost.decode_only_attention_ns), cost.decode_only_ns);
  cost.is_extrapolated = false;
  return cost;
}

TimeNs ReplayCostModel::host_gap_ns(const StepPlan& plan) const {
  const RecordedStep* step = has_own_gap_ ? nullptr : find(plan);
  if (step == nullptr || step->gap_ns == kNoTime) return unseen_->host_gap_ns(plan);
  return step->is_gap_hidden ? std::min(step->gap_ns, unseen_->host_gap_ns(plan)) : step->gap_ns;
}

}  // namespace metronome
