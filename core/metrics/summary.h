// SPDX-License-Identifier: Apache-2.0
// The metrics of one run. TTFT, TPOT, ITL, E2EL, throughput and goodput follow vLLM's serving
// benchmark (vllm/benchmarks/serve.py). Comments mark Metronome's own metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/types.h"
#include "core/metrics/answer_rates.h"
#include "core/metrics/run_record.h"
#include "core/metrics/slo_config.h"

namespace metronome {

enum class StallCause : std::uint8_t {
  Unknown,     // other: a slow decode step, a failed step, or a step without the request
  Prefill,     // prefill ran in the steps of the gap
  Encoding,    // images of the prefills there were encoded, which took longer than the prefills
  Preemption,  // the waiting request itself was preempted and recomputed
  Unseen,      // unknown: a client observed the run from outside
  Unkept,      // unknown: the run kept no steps
};
// In the order of StallCause.
constexpr std::string_view kStallCauses[] = {"unknown", "prefill", "encoding", "preemption",
                                             "unseen",  "unkept"};

// A gap between two tokens of one request, and its cause.
struct Stall {
  TimeNs gap_ns = 0;
  RequestId request = kNoRequest;  // the request that waited; kNoRequest: no gap
  // Indices into RunRecord::steps: the steps of the tokens before and after the gap.
  std::int32_t step_before = -1;
  std::int32_t step_after = -1;
  TimeNs began_at = 0;  // time of the token before the gap
  StallCause cause = StallCause::Unknown;
  // The chunk that caused the delay (GapAnalysis::worst_chunk); kNoRequest: none.
  RequestId prefill_request = kNoRequest;
  std::int32_t prefill_position = 0;
  std::int32_t prefill_tokens = 0;
  std::int32_t prefill_step = -1;
  std::int64_t num_prefill_tokens = 0;  // of all chunks in steps (step_before, step_after]
  TimeNs encode_ns = 0;                 // of images in these steps
};

// Speculative decoding of a run (Summary::drafts).
struct DraftSummary {
  DraftCounts counts;
  // vLLM's mean acceptance length: 1 + accepted / drafts. NaN without a draft.
  double acceptance_length = std::numeric_limits<double>::quiet_NaN();
  double acceptance_rate = std::numeric_limits<double>::quiet_NaN();  // accepted / draft tokens
  // 1 + draft tokens that requests received / decodes.
  double tokens_per_decode = std::numeric_limits<double>::quiet_NaN();
  // Draft tokens that steps computed and no request received, padding among them.
  std::int64_t num_wasted = 0;
  // The same counts in steps in which prompts waited: requests were queued after planning, or a
  // chunk did not complete its prompt. Drafts took these tokens of the step's budget from them.
  struct BesidePrompts {
    std::int64_t num_steps = 0;
    std::int64_t num_tokens = 0;  // of all kinds
    std::int64_t num_drafted = 0;
    std::int64_t num_wasted = 0;
  } beside_prompts;
  // Every token has the gap before the step that gave it, divided by the tokens that came with it
  // (sglang's bench_serving). Summary::itl has the gap once for all of them, as vLLM's benchmark.
  Distribution itl_per_token;
};

struct SummaryOptions {
  SloConfig slo;
  std::int64_t num_blocks = 0;  // of the KV cache; 0 = unknown, then KV use is NaN
};

// The figures of the requests of one class or of one priority.
struct GroupSummary {
  std::string name;  // of the class; "priority 3"
  std::int64_t num_requests = 0;
  std::int64_t completed = 0;
  Distribution ttft, tpot, e2el;
  double longest_gap_ms = std::numeric_limits<double>::quiet_NaN();
  std::optional<std::int64_t> good;  // as in Summary, also the two below
  std::optional<double> request_goodput;
  std::optional<double> slo_attainment;
};

// The figures of an engine of several: of the requests that it had last; itl also of failed ones.
struct ReplicaSummary {
  GroupSummary requests;  // its name: "replica 3"
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;
  Distribution itl;
  // As in Summary, of this engine alone.
  double prefix_hit_rate = 0;
  double busy_share = 0;
  double mean_kv_use = 0, peak_kv_use = 0;
};

// Latencies and token totals are over completed requests, as in vLLM.
struct Summary {
  // TTFT: first token - arrival. TPOT: (last - first token) / (tokens - 1), for requests with at
  // least two tokens. ITL: every gap between tokens, pooled. E2EL: last token - arrival.
  Distribution ttft, tpot, itl, e2el;
  // First admission - hand-over by the front end (without one: arrival): vLLM's queue interval as
  // in its code. A preemption does not restart it.
  Distribution queue;
  Distribution front_end;  // hand-over - arrival; empty without a front end
  Distribution jitter;     // Metronome's: longest - shortest gap of a request

  // From the clock's start, like vLLM's timer, to the end of the last request.
  TimeNs duration_ns = 0;
  std::int64_t num_requests = 0;  // requests that reached the engine
  std::int64_t completed = 0;
  std::int64_t failed = 0;   // all requests that ended without completing; split below
  std::int64_t refused = 0;  // queue full
  std::int64_t never_fits = 0;
  std::int64_t aborted = 0;
  std::int64_t step_failed = 0;
  std::int64_t errored = 0;     // errors from a server that a client observed
  std::int64_t unfinished = 0;  // neither completed nor failed: the run was cut short
  std::int64_t total_input_tokens = 0;
  std::int64_t total_output_tokens = 0;

  double request_throughput = 0;      // completed / duration, 1/s
  double output_throughput = 0;       // output tokens / duration, 1/s
  double total_token_throughput = 0;  // input and output tokens / duration, 1/s
  // A request is good when it completed and meets every limit that is set. TPOT is 0 for a single
  // token. itl_ms, Metronome's own, applies to every gap. nullopt without limits.
  std::optional<std::int64_t> good;
  std::optional<double> request_goodput;     // good / duration, 1/s
  std::optional<double> slo_attainment;      // good / (completed + failed)
  double max_output_tokens_per_s = 0;        // fullest one-second bucket after the first arrival
  std::int64_t max_concurrent_requests = 0;  // counts half-open intervals [arrival, last token)
  AnswerRates rates;                         // Metronome's; of all requests, completed or not

  // False: a client observed the run. Then all figures up to `peak_waiting` are unknown: counts are
  // 0, other figures NaN.
  bool has_steps = true;
  std::int64_t num_steps = 0;
  std::int64_t num_failed_steps = 0;
  std::int64_t num_extrapolated_steps = 0;  // StepResult::is_extrapolated
  std::int64_t num_preemptions = 0;
  // Prompt tokens found in the prefix cache / prompt tokens, over all requests ever admitted. Each
  // request counts once, however it ended.
  double prefix_hit_rate = 0;
  double mean_batch_tokens = std::numeric_limits<double>::quiet_NaN();  // tokens per step
  double busy_share = 0;  // sum of step durations / duration
  // Time-weighted: each step's count holds until the next plan, and is zero while idle. KV use is a
  // share of num_blocks.
  double mean_kv_use = 0, peak_kv_use = 0;
  double mean_running = 0, mean_waiting = 0;
  std::int64_t peak_running = 0, peak_waiting = 0;

  std::optional<DraftSummary> drafts;  // of runs with drafts

  // See summarize_classes() and summarize_priorities().
  std::vector<GroupSummary> classes, priorities;

  // Of a run of several engines, by their numbers; empty: it had one. Then busy_share is the mean
  // of theirs, running and waiting requests are of all, and peaks are those of one engine.
  std::vector<ReplicaSummary> replicas;
  // The longest busy time of an engine / the mean: 1 is even. NaN if all were idle.
  double replica_imbalance = std::numeric_limits<double>::quiet_NaN();
  std::vector<FleetEvent> fleet_events;  // in time order
  std::int64_t num_retried = 0;          // times that a request began anew at another engine
  // The mean share of the engines that were there: from the start or from FleetChange::Added, until
  // FleetChange::Removed. One that failed is there.
  double present_share = 1;

  Stall longest_stall;  // over completed requests, so its gap is itl.max; the first of equals
};

Summary summarize(const RunRecord& record, const SummaryOptions& options);

// Parts of summarize(). Counts requests that ended for this reason.
void count_ends(EndReason reason, std::int64_t count, Summary& summary);
// Rates by counts and duration; nullopt: no request has a limit.
void set_rates(std::optional<std::int64_t> good, Summary& summary);
// What follows from Summary::replicas, and from the record's replicas and events.
void set_fleet(const RunRecord& record, Summary& summary);

// Nobody knows the steps of this run: their figures are undefined.
void leave_out_steps(Summary& summary);

// Summary::duration_ns.
TimeNs run_duration(const RunRecord& record);

// The sample of Summary::itl: every gap between two tokens of completed requests with index >=
// `first`.
std::vector<WeightedTime> pooled_gaps(const RunRecord& record, std::size_t first = 0);

// The longest gap of request i. Stall::request is kNoRequest when it has fewer than two tokens.
Stall longest_stall_of(const RunRecord& record, std::size_t i);

// Whether the request is good under `slo`, or the limits there of its class (see Summary::good).
bool meets_slo(const RequestRecord& request, const SloConfig& slo);

// By class, in the order of their numbers, then "none" for requests without one; empty if no
// request has one. By priority, the lowest number first; empty if all have the same, or if each
// class has one of its own: the classes say it.
std::vector<GroupSummary> summarize_classes(const RunRecord& record, const SloConfig& slo);
std::vector<GroupSummary> summarize_priorities(const RunRecord& record, const SloConfig& slo);

// By engine, one for each: "replica 0". For runs of several.
std::vector<GroupSummary> summarize_by_replica(const RunRecord& record, const SloConfig& slo);
// See Summary::replicas.
std::vector<ReplicaSummary> summarize_replicas(const RunRecord& record, const SloConfig& slo);

}  // namespace metronome
