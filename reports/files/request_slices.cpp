// SPDX-License-Identifier: Apache-2.0
#include "reports/files/request_slices.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace metronome {
namespace {

std::size_t at(std::int32_t position) { return static_cast<std::size_t>(position); }

// Appends slices that follow each other without overlap.
class SliceChain {
 public:
  SliceChain(const RunRecord& record, const RequestSlices& all,
             std::span<const PreemptionRecord> preemptions, TimeNs begin)
      : record_(record), all_(all), preemptions_(preemptions), cursor_(begin) {}

  void add(RequestSlice slice) {
    slice.begin = std::max(slice.begin, cursor_);
    slice.end = std::max(slice.end, slice.begin);
    cursor_ = slice.end;
    slices_.push_back(slice);
  }

  void add_chunk(std::int32_t chunk, std::int32_t step, bool has_token) {
    const TimeNs begin = all_.began_at(step);
    // A plan that recomputes the request comes after the preemption.
    if (!add_preemptions(record_.steps.planned_at(at(step)), begin)) add_waiting(step, begin);
    add({SliceKind::Prefill, begin, record_.steps.finished_at(at(step)), step, step,
         has_token ? 1 : 0, chunk, ++num_chunks_});
    last_step_ = step;
  }

  void add_decodes(std::int32_t first, std::int32_t last, std::int32_t num_tokens) {
    const TimeNs begin = all_.began_at(first);
    add_waiting(first, begin);
    add({SliceKind::Decode, begin, record_.steps.finished_at(at(last)), first, last, num_tokens});
    last_step_ = last;
  }

  // Adds the preemptions up to `time`; the last one lasts until `end`. False if there are none.
  bool add_preemptions(TimeNs time, TimeNs end) {
    const std::size_t before = slices_.size();
    while (!preemptions_.empty() && preemptions_.front().time <= time) {
      const TimeNs begin = preemptions_.front().time;
      preemptions_ = preemptions_.subspan(1);
      const bool is_last = preemptions_.empty() || preemptions_.front().time > time;
      add({SliceKind::Preempted, begin, is_last ? end : preemptions_.front().time});
    }
    return slices_.size() > before;
  }

  std::vector<RequestSlice> take() { return std::move(slices_); }

 private:
  void add_waiting(std::int32_t step, TimeNs begin) {
    if (last_step_ < 0 || step <= last_step_ + 1) return;
    add({SliceKind::Waiting, cursor_, begin});
  }

  const RunRecord& record_;
  const RequestSlices& all_;
  std::span<const PreemptionRecord> preemptions_;  // not yet added
  TimeNs cursor_;
  std::int32_t last_step_ = -1;
  std::int32_t num_chunks_ = 0;
  std::vector<RequestSlice> slices_;
};

}  // namespace

std::string_view to_string(SliceKind kind) {
  constexpr std::string_view kNames[] = {"front end", "queue",   "prefill",
                                         "decode",    "waiting", "preempted"};
  return kNames[static_cast<std::size_t>(kind)];
}

RequestSlices::RequestSlices(const RunRecord& record)
    : record_(record), preemptions_(record.preemptions) {
  if (!record.steps.empty()) end_of_run_ = record.steps.back().finished_at;
  for (const RequestRecord& request : record.requests) {
    end_of_run_ = std::max({end_of_run_, request.ended, request.arrival});
  }
  step_of_chunk_.reserve(record.prefills.size());
  for (std::size_t s = 0; s < record.steps.size(); ++s) {
    const auto num_chunks = static_cast<std::size_t>(record.steps.num_prefill_chunks(s));
    step_of_chunk_.insert(step_of_chunk_.end(), num_chunks, static_cast<std::int32_t>(s));
  }
  // Sorts chunks by request, then by time (counting sort).
  first_chunk_.resize(record.requests.size() + 1);
  for (const PrefillChunk& chunk : record.prefills) ++first_chunk_[index(chunk.request) + 1];
  for (std::size_t i = 1; i < first_chunk_.size(); ++i) first_chunk_[i] += first_chunk_[i - 1];
  std::vector<std::uint32_t> next(first_chunk_);
  chunks_.resize(record.prefills.size());
  for (std::size_t c = 0; c < record.prefills.size(); ++c) {
    chunks_[next[index(record.prefills[c].request)]++] = static_cast<std::int32_t>(c);
  }
  std::stable_sort(preemptions_.begin(), preemptions_.end(),
                   [](const auto& a, const auto& b) { return a.request < b.request; });
}

TimeNs RequestSlices::began_at(std::int32_t step) const {
  const TimeNs started_at = record_.steps[at(step)].started_at;
  return step == 0 ? started_at : std::max(started_at, record_.steps.finished_at(at(step - 1)));
}

TimeNs RequestSlices::end_of(std::size_t i) const {
  const RequestRecord& request = record_.requests[i];
  TimeNs end = request.ended == kNoTime ? end_of_run_ : request.ended;
  if (first_chunk_[i] < first_chunk_[i + 1]) {
    const std::int32_t step = step_of_chunk_[at(chunks_[first_chunk_[i + 1] - 1])];
    end = std::max(end, record_.steps.finished_at(at(step)));
  }
  const std::span<const TokenRun> runs = record_.runs_of(i);
  if (runs.empty()) return end;
  return std::max(end, record_.steps.finished_at(at(runs.back().last_step())));
}

std::vector<RequestSlice> RequestSlices::of(std::size_t i) const {
  const RequestRecord& request = record_.requests[i];
  const auto is_before = [](const PreemptionRecord& a, RequestId b) { return a.request < b; };
  const auto id = static_cast<RequestId>(i);
  const auto first = std::lower_bound(preemptions_.begin(), preemptions_.end(), id, is_before);
  auto last = first;
  while (last != preemptions_.end() && last->request == id) ++last;

  SliceChain chain(record_, *this, {first, last}, request.arrival);
  const bool is_scheduled = request.first_scheduled != kNoTime;
  const TimeNs handed_over = request.arrival + record_.front_end_ns(i);
  if (handed_over > request.arrival) {
    chain.add({SliceKind::FrontEnd, request.arrival, handed_over});
  }
  chain.add({SliceKind::Queue, handed_over, is_scheduled ? request.first_scheduled : end_of(i)});
  std::uint32_t c = first_chunk_[i];
  const std::uint32_t end_chunk = first_chunk_[i + 1];
  const auto chunk_step = [&](std::uint32_t position) {
    return position < end_chunk ? step_of_chunk_[at(chunks_[position])] : INT32_MAX;
  };
  std::span<const std::uint8_t> counts = record_.counts_of(i);
  const auto read_tokens = [&counts](std::int32_t num_steps) {
    if (counts.empty()) return num_steps;
    const auto taken = counts.first(static_cast<std::size_t>(num_steps));
    counts = counts.subspan(taken.size());
    return std::accumulate(taken.begin(), taken.end(), 0);
  };
  for (const TokenRun& run : record_.runs_of(i)) {
    for (std::int32_t s = run.first_step; s <= run.last_step();) {
      while (chunk_step(c) < s) chain.add_chunk(chunks_[c], chunk_step(c), false), ++c;
      if (chunk_step(c) == s) {
        chain.add_chunk(chunks_[c++], s++, true);
        read_tokens(1);
        continue;
      }
      const std::int32_t until = std::min(run.last_step(), chunk_step(c) - 1);
      chain.add_decodes(s, until, read_tokens(until - s + 1));
      s = until + 1;
    }
  }
  for (; c < end_chunk; ++c) chain.add_chunk(chunks_[c], chunk_step(c), false);
  chain.add_preemptions(kNever, end_of(i));
  return chain.take();
}

}  // namespace metronome
