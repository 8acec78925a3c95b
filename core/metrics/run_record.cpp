// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/run_record.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/erase.h"
#include "core/base/error.h"
#include "core/engine/decode_run.h"
#include "core/metrics/replica_records.h"

namespace metronome {
namespace {

// The shortest and longest gap between consecutive steps over any range of steps. It summarises
// steps in blocks, so a query does not visit every token.
class StepGaps {
 public:
  explicit StepGaps(const StepHistory& steps) : gaps_(steps.size()) {
    TimeNs before = 0;
    steps.for_each_output([&](std::size_t s, const StepHistory::Output& output) {
      gaps_[s] = s > 0 ? output.finished_at - before : 0;
      before = output.finished_at;
    });
    blocks_.resize(gaps_.size() / kBlock);
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const std::size_t begin = b * kBlock;
      blocks_[b] = {gaps_[begin], gaps_[begin], static_cast<std::int32_t>(begin)};
      for (std::size_t s = begin + 1; s < begin + kBlock; ++s) {
        blocks_[b].min_ns = std::min(blocks_[b].min_ns, gaps_[s]);
        if (gaps_[s] > blocks_[b].max_ns) {
          blocks_[b].max_ns = gaps_[s];
          blocks_[b].max_step = static_cast<std::int32_t>(s);
        }
      }
    }
  }

  // Folds the gaps that end in steps [begin, end) into the request's extremes.
  void fold(std::int32_t begin, std::int32_t end, RequestRecord& request) const {
    std::size_t s = static_cast<std::size_t>(begin);
    const std::size_t stop = static_cast<std::size_t>(end);
    while (s < stop) {
      if (s % kBlock == 0 && s + kBlock <= stop) {
        const Block& block = blocks_[s / kBlock];
        fold_one(block.min_ns, block.max_ns, block.max_step, request);
        s += kBlock;
      } else {
        fold_one(gaps_[s], gaps_[s], static_cast<std::int32_t>(s), request);
        ++s;
      }
    }
  }

  static void fold_one(TimeNs min_ns, TimeNs max_ns, std::int32_t step, RequestRecord& request) {
    if (request.max_itl_step < 0) {
      request.min_itl_ns = min_ns;
      request.max_itl_ns = max_ns;
      request.max_itl_step = step;
      return;
    }
    request.min_itl_ns = std::min(request.min_itl_ns, min_ns);
    if (max_ns > request.max_itl_ns) {
      request.max_itl_ns = max_ns;
      request.max_itl_step = step;
    }
  }

 private:
  static constexpr std::size_t kBlock = 32;
  struct Block {
    TimeNs min_ns;
    TimeNs max_ns;
    std::int32_t max_step;
  };
  std::vector<TimeNs> gaps_;  // [s] = finished_at of step s minus finished_at of step s - 1
  std::vector<Block> blocks_;
};

// Derives token count, first and last token, and gap extremes from the request's runs.
void derive_request_facts(const RunRecord& record, const StepGaps& gaps, std::size_t i,
                          RequestRecord& request) {
  const std::span<const TokenRun> runs = record.runs_of(i);
  if (runs.empty()) return;
  const auto finished_at = [&](std::int32_t step) {
    return record.steps.finished_at(static_cast<std::size_t>(step));
  };
  request.first_token = finished_at(runs.front().first_step);
  request.last_token = finished_at(runs.back().last_step());
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (r > 0) {
      const TimeNs gap = finished_at(runs[r].first_step) - finished_at(runs[r - 1].last_step());
      StepGaps::fold_one(gap, gap, runs[r].first_step, request);
    }
    gaps.fold(runs[r].first_step + 1, runs[r].last_step() + 1, request);
    request.num_output_tokens += runs[r].num_steps;
  }
  const std::span<const std::uint8_t> counts = record.counts_of(i);
  if (!counts.empty()) request.num_output_tokens = std::accumulate(counts.begin(), counts.end(), 0);
}

void copy_counts(const StepRecord& step, StepEntry& entry) {
  entry.num_prefill_tokens = step.num_prefill_tokens;
  entry.num_decode_tokens = step.num_decode_tokens;
  entry.num_running = step.num_running;
  entry.num_waiting = step.num_waiting;
  entry.num_used_blocks = step.num_used_blocks;
  entry.num_preempted = step.num_preempted;
}

}  // namespace

std::int64_t DraftCounts::num_drafted() const {
  return std::accumulate(drafted.begin(), drafted.end(), std::int64_t{0});
}

std::int64_t DraftCounts::num_accepted() const {
  return std::accumulate(accepted.begin(), accepted.end(), std::int64_t{0});
}

void DraftCounts::add(std::int32_t num_drafted, std::int32_t num_accepted) {
  ++num_drafts;
  const auto length = static_cast<std::size_t>(num_drafted);
  if (drafted.size() < length) {
    drafted.resize(length);
    accepted.resize(length);
  }
  for (std::size_t i = 0; i < length; ++i) ++drafted[i];
  for (std::size_t i = 0; i < static_cast<std::size_t>(num_accepted); ++i) ++accepted[i];
}

void DraftCounts::add_step(std::span<const ScheduledChunk> chunks, const StepResult& result) {
  if (result.failed || result.num_accepted.empty()) return;
  const bool has_padding = !result.num_verified.empty();
  std::size_t i = 0;
  for (const ScheduledChunk& chunk : chunks) {
    if (!chunk.samples_token) continue;
    const std::int32_t num_verified = has_padding ? result.num_verified[i] : chunk.num_drafts();
    if (num_verified > 0) add(num_verified, result.num_accepted[i]);
    ++i;
  }
}

void DraftCounts::add(const DraftCounts& others) {
  num_drafts += others.num_drafts;
  const std::size_t length = std::max(drafted.size(), others.drafted.size());
  drafted.resize(length);
  accepted.resize(length);
  for (std::size_t i = 0; i < others.drafted.size(); ++i) {
    drafted[i] += others.drafted[i];
    accepted[i] += others.accepted[i];
  }
}

void derive_token_facts(RunRecord& record) {
  const StepGaps gaps(record.steps);
  // Per step: change of the number of continued requests against the previous step.
  std::vector<std::int32_t> changes(record.steps.size() + 1);
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    RequestRecord& request = record.requests[i];
    request.num_output_tokens = 0;
    request.max_itl_step = -1;
    derive_request_facts(record, gaps, i, request);
    if (!record.has_steps()) request.num_output_tokens = record.client[i].num_tokens;
    for (const TokenRun& run : record.runs_of(i)) {
      ++changes[static_cast<std::size_t>(run.first_step) + 1];
      --changes[static_cast<std::size_t>(run.last_step()) + 1];
    }
  }
  changes.pop_back();
  std::partial_sum(changes.begin(), changes.end(), changes.begin());
  record.steps.set_continued(changes);
}

std::span<const TokenRun> RunRecord::runs_of(std::size_t i) const {
  const std::size_t begin = requests[i].first_run;
  const std::size_t end = i + 1 < requests.size() ? requests[i + 1].first_run : runs.size();
  return std::span<const TokenRun>(runs).subspan(begin, end - begin);
}

std::span<const std::uint8_t> RunRecord::counts_of(std::size_t i) const {
  if (token_counts.empty()) return {};
  const std::size_t end = i + 1 < first_count.size() ? first_count[i + 1] : token_counts.size();
  return std::span(token_counts).subspan(first_count[i], end - first_count[i]);
}

RunRecorder::RunRecorder(std::size_t expected_requests, const FrontEnd& front_end,
                         StepSink* step_sink)
    : front_end_(front_end), step_sink_(step_sink) {
  requests_.reserve(expected_requests);
  open_.reserve(expected_requests);
}

RunRecorder::RunRecorder(const ReplicaScope& scope, const FrontEnd& front_end)
    : front_end_(front_end), handed_over_(scope.handed_over), step_sink_(nullptr) {}

EventSink* RunRecorder::of_replica(const ReplicaScope& scope) {
  METRONOME_CHECK(static_cast<std::size_t>(scope.replica) == replicas_.size(),
                  "replicas come in the order of their numbers");
  scopes_.push_back(scope);
  replicas_.push_back(std::make_unique<RunRecorder>(scope, front_end_));
  return replicas_.back().get();
}

void RunRecorder::grow_to(std::size_t num_requests) {
  requests_.resize(num_requests);
  open_.resize(num_requests, OpenRun{kNone, kNeverEmitted, kNone, 0});
}

RequestRecord& RunRecorder::mention(const Request& request) {
  if (index(request.id) >= requests_.size()) grow_to(index(request.id) + 1);
  RequestRecord& record = requests_[index(request.id)];
  if (record.num_prompt_tokens == 0) {
    record.arrival = request.arrival;
    record.num_prompt_tokens = request.num_prompt_tokens;
    record.max_output_tokens = request.max_output_tokens;
    record.priority = request.priority;
    record.class_number = request.class_number;
  }
  return record;
}

void RunRecorder::on_event(const Event& event, const Request& request) {
  RequestRecord& record = mention(request);
  switch (event.kind) {
    case EventKind::Submitted:
    case EventKind::FirstToken:
      break;  // the arrival comes with the request, the token with its step
    case EventKind::Admitted:
      if (record.first_scheduled == kNoTime) record.first_scheduled = event.time;
      record.num_prefix_hit_tokens = request.num_prefix_hit_tokens;
      record.last_scheduled = event.time;
      break;
    case EventKind::Preempted:
      ++record.num_preemptions;
      preemptions_.push_back({event.time, request.id});
      break;
    case EventKind::Ended:
      METRONOME_CHECK(record.ended == kNoTime, "a request ended twice");
      record.ended = event.time;
      record.reason = event.reason;
      break;
  }
}

void RunRecorder::restart_run(OpenRun& open, std::int32_t step) {
  if (open.last_step != kNeverEmitted) {
    closed_runs_.push_back(
        {{open.first_step, open.last_step - open.first_step + 1}, open.last_closed});
    open.last_closed = static_cast<std::int32_t>(closed_runs_.size() - 1);
  }
  open.first_step = step;
  open.last_step = step;
}

void RunRecorder::note_prefill(const ScheduledChunk& chunk, OpenRun& run, StepEntry& entry) {
  ++run.num_prefill_chunks;
  ++entry.num_prefill_chunks;
  prefills_.push_back({chunk.request, chunk.first_position, chunk.num_tokens});
}

// Of a step whose result says how many drafts were accepted.
void RunRecorder::note_drafts(std::span<const ScheduledChunk> chunks, const StepResult& result,
                              StepEntry& entry) {
  drafts_.add_step(chunks, result);
  for (const ScheduledChunk& chunk : chunks) {
    if (!chunk.samples_token) continue;
    entry.num_draft_tokens += chunk.num_drafts();
    if (chunk.num_emitted == 0) continue;
    entry.num_emitted += chunk.num_emitted - 1;
    entry.num_accepted_tokens += chunk.num_emitted - 1;
    receivers_.push_back(chunk.request);
    received_.push_back(chunk.num_emitted);
  }
}

// Every step of the run gave each member a token.
void RunRecorder::follow_run(const CommittedRun& run, std::int32_t step) {
  for (const RequestId id : run.left) {
    OpenRun& open = open_[index(id)];
    open.last_step = std::max(open.last_step, last_run_step_);
  }
  erase_each(members_, run.left, [](std::size_t) {});
  if (run.members == nullptr) return;
  if (last_run_step_ != step - 1) {  // other steps came between
    for (const RequestId id : members_) {
      OpenRun& open = open_[index(id)];
      open.last_step = std::max(open.last_step, last_run_step_);
      if (open.last_step != step - 1) restart_run(open, step);
    }
  }
  last_run_step_ = step;
}

void RunRecorder::on_repeats(const StepRecord& last, std::span<const StepTimes> times) {
  StepEntry entry;
  copy_counts(last, entry);
  entry.num_emitted = last.num_decode_tokens;
  entry.first_prefill_chunk = static_cast<std::int32_t>(prefills_.size());
  steps_.push_back(entry, times);
  last_run_step_ += static_cast<std::int32_t>(times.size());
  hand_on_steps();
}

void RunRecorder::hand_on_steps() {
  constexpr std::size_t kStepsAtOnce = 64 * PackedColumn::kBlock;
  if (step_sink_ == nullptr || steps_.size() < num_handed_on_ + kStepsAtOnce) [[likely]]
    return;
  hand_on(steps_.size() / PackedColumn::kBlock * PackedColumn::kBlock);
}

// Steps before `end`.
void RunRecorder::hand_on(std::size_t end) {
  const std::size_t num_prefills = end < steps_.size()
                                       ? static_cast<std::size_t>(steps_.first_prefill_chunk(end))
                                       : prefills_.size();
  std::vector<PrefillChunk> chunks;
  chunks.reserve(num_prefills - num_prefills_handed_on_);
  for (std::size_t i = num_prefills_handed_on_; i < num_prefills; ++i) {
    chunks.push_back(prefills_[i]);
  }
  step_sink_->take(steps_.part(num_handed_on_, end), std::move(chunks));
  num_handed_on_ = end;
  num_prefills_handed_on_ = num_prefills;
}

void RunRecorder::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                          const RequestTable& requests) {
  METRONOME_CHECK(static_cast<std::size_t>(step.step_index) == steps_.size(),
                  "a step's index is its position");
  METRONOME_CHECK(steps_.empty() || step.finished_at >= steps_.finished_at(steps_.size() - 1),
                  "steps are committed in the order they finish");
  if (requests.size() > open_.size()) grow_to(requests.size());
  const auto position = static_cast<std::int32_t>(steps_.size());
  OpenRun* const open = open_.data();
  StepEntry entry;
  entry.first_prefill_chunk = static_cast<std::int32_t>(prefills_.size());
  follow_run(step.run, position);
  std::int32_t num_silent = 0;
  for (const ScheduledChunk& chunk : chunks) {
    OpenRun& run = open[index(chunk.request)];
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    if (is_decode && chunk.num_emitted > 0 && run.last_step == position - 1) [[likely]] {
      run.last_step = position;
      continue;
    }
    if (!is_decode) note_prefill(chunk, run, entry);
    if (chunk.num_emitted == 0) {
      ++num_silent;
    } else if (run.last_step == position - 1) {  // recomputed within one step of its last token
      run.last_step = position;
    } else {
      restart_run(run, position);
    }
  }
  entry.planned_at = step.planned_at;
  entry.started_at = step.started_at;
  entry.finished_at = step.finished_at;
  copy_counts(step, entry);
  members_.insert(members_.end(), step.run.joined.begin(), step.run.joined.end());
  const std::int32_t num_decodes = step.run.members != nullptr ? step.run.members->size() : 0;
  entry.num_emitted = num_decodes + static_cast<std::int32_t>(chunks.size()) - num_silent;
  entry.failed = step.failed;
  if (step.result != nullptr) {
    if (!step.failed && !step.result->num_accepted.empty())
      note_drafts(chunks, *step.result, entry);
    entry.decode_only_ns = step.result->decode_only_ns;
    entry.draft_ns = step.result->draft_ns;
    entry.encode_ns = step.result->encode_ns;
    has_encodings_ = has_encodings_ || step.result->encode_ns > 0;
    entry.extrapolated = step.result->is_extrapolated;
  }
  steps_.push_back(entry);
  hand_on_steps();
}

// Collects each request's runs. Closed runs are in order of closing, linked backwards per request.
void RunRecorder::gather_runs(RunRecord& record) {
  std::size_t num_runs = closed_runs_.size();
  for (const OpenRun& open : open_) num_runs += open.last_step != kNeverEmitted ? 1 : 0;
  record.runs.resize(num_runs);
  std::size_t end = num_runs;
  for (std::size_t i = open_.size(); i-- > 0;) {
    const OpenRun& open = open_[i];
    if (open.last_step != kNeverEmitted) {
      record.runs[--end] = {open.first_step, open.last_step - open.first_step + 1};
    }
    for (std::int32_t c = open.last_closed; c != kNone;) {
      const ClosedRun& closed = closed_runs_[static_cast<std::size_t>(c)];
      record.runs[--end] = closed.run;
      c = closed.previous;
    }
    record.requests[i].first_run = static_cast<std::uint32_t>(end);
    record.requests[i].num_prefill_chunks = open.num_prefill_chunks;
  }
  METRONOME_CHECK(end == 0, "every run belongs to one request");
}

// Sorts the tokens by request, which keeps the order of time.
void RunRecorder::gather_counts(RunRecord& record) const {
  record.drafts = drafts_;
  record.has_encodings = has_encodings_;
  if (receivers_.empty()) return;
  record.first_count.resize(record.requests.size() + 1);
  for (const RequestId id : receivers_) ++record.first_count[index(id) + 1];
  std::partial_sum(record.first_count.begin(), record.first_count.end(),
                   record.first_count.begin());
  std::vector<std::size_t> next = record.first_count;
  record.token_counts.resize(received_.size());
  for (std::size_t k = 0; k < received_.size(); ++k) {
    record.token_counts[next[index(receivers_[k])]++] = received_[k];
  }
}

std::size_t RunRecorder::num_bytes() const {
  std::size_t num_bytes = 0;
  for (const std::unique_ptr<RunRecorder>& replica : replicas_) num_bytes += replica->num_bytes();
  return num_bytes + steps_.num_bytes() + prefills_.size() * sizeof(PrefillChunk) +
         requests_.size() * (sizeof(RequestRecord) + sizeof(OpenRun)) +
         closed_runs_.size() * sizeof(ClosedRun) + preemptions_.size() * sizeof(PreemptionRecord) +
         receivers_.size() * (sizeof(RequestId) + sizeof(std::uint8_t));
}

RunRecord RunRecorder::finish() {
  RunRecord record = take();
  if (!replicas_.empty()) {
    std::vector<RunRecord> parts;
    for (const std::unique_ptr<RunRecorder>& replica : replicas_) parts.push_back(replica->take());
    replicas_.clear();
    join_replicas(std::move(parts), std::exchange(scopes_, {}), record);
  }
  derive_token_facts(record);
  return record;
}

RunRecord RunRecorder::take() {
  if (step_sink_ != nullptr) hand_on(steps_.size());
  num_handed_on_ = num_prefills_handed_on_ = 0;
  RunRecord record;
  for (const RequestId id : std::exchange(members_, {})) {
    OpenRun& open = open_[index(id)];
    open.last_step = std::max(open.last_step, last_run_step_);
  }
  record.steps = std::exchange(steps_, {});
  record.prefills = std::exchange(prefills_, {});
  record.requests = std::exchange(requests_, {});
  record.preemptions = std::exchange(preemptions_, {});
  gather_runs(record);
  gather_counts(record);
  drafts_ = {};
  has_encodings_ = false;
  receivers_ = {};
  received_ = {};
  record.fleet_events = std::exchange(fleet_events_, {});
  if (handed_over_ != nullptr) {
    const auto num_seen = static_cast<std::ptrdiff_t>(record.requests.size());
    record.handed_over.assign(handed_over_->begin(), handed_over_->begin() + num_seen);
  } else if (!front_end_.is_off()) {
    HandOver hand_over(front_end_);
    for (const RequestRecord& request : record.requests) {
      record.handed_over.push_back(hand_over.time_of(request.arrival, request.num_prompt_tokens));
    }
  }
  open_ = {};
  last_run_step_ = kNeverEmitted;
  closed_runs_ = {};
  return record;
}

}  // namespace metronome
