// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/replica_records.h"

#include <algorithm>
#include <tuple>

#include "core/metrics/run_record.h"

namespace metronome {
namespace {

// The engine that had a request last, and the request's number there.
struct Owner {
  std::int32_t replica = -1;
  std::uint32_t request = 0;
};

// Whether an engine had a request after another one, from which it was taken away.
bool is_later(const RequestRecord& one, const RequestRecord& other) {
  if (one.ended == kNoTime || other.ended == kNoTime) return one.ended == kNoTime;
  if (one.ended != other.ended) return one.ended > other.ended;
  return other.reason == EndReason::Aborted;
}

std::vector<Owner> last_owners(const std::vector<RunRecord>& parts,
                               const std::vector<ReplicaScope>& scopes, std::size_t num_requests) {
  for (const ReplicaScope& scope : scopes) {
    for (const std::uint32_t number : *scope.requests) {
      num_requests = std::max(num_requests, std::size_t{number} + 1);
    }
  }
  std::vector<Owner> owners(num_requests);
  for (std::size_t r = 0; r < parts.size(); ++r) {
    const std::vector<RequestRecord>& requests = parts[r].requests;
    for (std::uint32_t i = 0; i < requests.size(); ++i) {
      if (requests[i].num_prompt_tokens == 0) continue;  // the engine never saw it
      Owner& owner = owners[(*scopes[r].requests)[i]];
      const Owner own = {static_cast<std::int32_t>(r), i};
      if (owner.replica < 0 ||
          is_later(requests[i],
                   parts[static_cast<std::size_t>(owner.replica)].requests[owner.request])) {
        owner = own;
      }
    }
  }
  return owners;
}

void append_steps(RunRecord& part, const ReplicaScope& scope, RunRecord& record) {
  record.replicas.push_back(
      {record.steps.size(), part.steps.size(), scope.num_blocks, scope.starts_off});
  const auto first_chunk = static_cast<std::int32_t>(record.prefills.size());
  for (StepEntry step : part.steps) {
    step.first_prefill_chunk += first_chunk;
    record.steps.push_back(step);
  }
  for (std::size_t c = 0; c < part.prefills.size(); ++c) {
    PrefillChunk chunk = part.prefills[c];
    chunk.request = RequestId{(*scope.requests)[index(chunk.request)]};
    record.prefills.push_back(chunk);
  }
  for (PreemptionRecord preemption : part.preemptions) {
    preemption.request = RequestId{(*scope.requests)[index(preemption.request)]};
    record.preemptions.push_back(preemption);
  }
  record.drafts.add(part.drafts);
  record.has_encodings = record.has_encodings || part.has_encodings;
  part.steps = {};
  part.prefills = {};
}

void append_request(const RunRecord& part, const Owner& owner, std::size_t number,
                    RunRecord& record) {
  RequestRecord request = part.requests[owner.request];
  // It ended in front of the engines, which had it before.
  if (const RequestRecord& front = record.requests[number]; front.ended != kNoTime) {
    request.ended = front.ended;
    request.reason = front.reason;
  }
  request.first_run = static_cast<std::uint32_t>(record.runs.size());
  record.requests[number] = request;
  const auto first_step = static_cast<std::int32_t>(
      record.replicas[static_cast<std::size_t>(owner.replica)].first_step);
  for (TokenRun run : part.runs_of(owner.request)) {
    run.first_step += first_step;
    record.runs.push_back(run);
  }
  const std::span<const std::uint8_t> counts = part.counts_of(owner.request);
  record.token_counts.insert(record.token_counts.end(), counts.begin(), counts.end());
  if (!part.handed_over.empty()) record.handed_over[number] = part.handed_over[owner.request];
}

// Engines that had a request before its last one computed chunks of its prompt, too.
void add_earlier_work(const RunRecord& part, const ReplicaScope& scope, std::int32_t replica,
                      const std::vector<Owner>& owners, RunRecord& record) {
  for (std::uint32_t i = 0; i < part.requests.size(); ++i) {
    if (part.requests[i].num_prompt_tokens == 0) continue;
    const std::uint32_t number = (*scope.requests)[i];
    if (owners[number].replica == replica && owners[number].request == i) continue;
    record.requests[number].num_prefill_chunks += part.requests[i].num_prefill_chunks;
    record.requests[number].num_preemptions += part.requests[i].num_preemptions;
  }
}

}  // namespace

void join_replicas(std::vector<RunRecord> parts, const std::vector<ReplicaScope>& scopes,
                   RunRecord& record) {
  const std::vector<Owner> owners = last_owners(parts, scopes, record.requests.size());
  for (std::size_t r = 0; r < parts.size(); ++r) append_steps(parts[r], scopes[r], record);
  std::stable_sort(
      record.preemptions.begin(), record.preemptions.end(),
      [](const PreemptionRecord& a, const PreemptionRecord& b) { return a.time < b.time; });
  const auto has = [&parts](const auto& fits) {
    return std::any_of(parts.begin(), parts.end(), fits);
  };
  const bool has_counts = has([](const RunRecord& part) { return !part.token_counts.empty(); });
  record.requests.resize(owners.size());
  if (has([](const RunRecord& part) { return !part.handed_over.empty(); })) {
    record.handed_over.resize(owners.size());
  }
  for (std::size_t number = 0; number < owners.size(); ++number) {
    const Owner& owner = owners[number];
    record.replica_of.push_back(owner.replica);
    if (has_counts) record.first_count.push_back(record.token_counts.size());
    if (owner.replica >= 0) {
      append_request(parts[static_cast<std::size_t>(owner.replica)], owner, number, record);
    } else {
      RequestRecord& request = record.requests[number];
      request.first_run = static_cast<std::uint32_t>(record.runs.size());
      if (!record.handed_over.empty()) record.handed_over[number] = request.ended;
    }
  }
  if (has_counts) record.first_count.push_back(record.token_counts.size());
  for (std::size_t r = 0; r < parts.size(); ++r) {
    add_earlier_work(parts[r], scopes[r], static_cast<std::int32_t>(r), owners, record);
  }
}

}  // namespace metronome
