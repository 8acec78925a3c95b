// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/figures.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace metronome {
namespace {

using Kind = FigureValue::Kind;

FigureValue number(double value) { return {.kind = Kind::Number, .number = value}; }
FigureValue count(std::int64_t value) { return {.kind = Kind::Count, .count = value}; }
FigureValue or_null(const std::optional<double>& value) {
  return value ? number(*value) : FigureValue{.kind = Kind::Null};
}

// A member of Summary.
auto of(double Summary::*member) {
  return [member](const Summary& s, const RunFacts&) { return number(s.*member); };
}
auto of(std::int64_t Summary::*member) {
  return [member](const Summary& s, const RunFacts&) { return count(s.*member); };
}
auto of(std::optional<double> Summary::*member) {
  return [member](const Summary& s, const RunFacts&) { return or_null(s.*member); };
}
// Null for a run that a client observed.
auto of_steps(std::int64_t Summary::*member) {
  return [member](const Summary& s, const RunFacts&) {
    return s.has_steps ? count(s.*member) : FigureValue{.kind = Kind::Null};
  };
}
// Absent without drafts.
template <class Get>
auto of_drafts(Get get) {
  return [get](const Summary& s, const RunFacts&) {
    return s.drafts ? get(*s.drafts) : FigureValue{};
  };
}
template <class Number>
FigureValue list_of(const std::vector<Number>& values, bool are_counts) {
  return {.kind = Kind::List,
          .list = std::vector<double>(values.begin(), values.end()),
          .has_counts = are_counts};
}

// The mean number of GPUs that were there.
double num_present_gpus(const Summary& summary, const RunFacts& facts) {
  return facts.num_gpus * summary.present_share;
}

// NaN without a price.
double cost_per_million(const Summary& summary, const RunFacts& facts, double tokens_per_s) {
  const double price = facts.price_per_gpu_hour.value_or(std::nan(""));
  return price / 3600 * num_present_gpus(summary, facts) / tokens_per_s * 1e6;
}

// In the order of result.json; vLLM's files have the median under two names.
constexpr Statistic kStatistics[] = {
    {"mean", &Distribution::mean_ms, true}, {"median", &Distribution::p50_ms, false},
    {"std", &Distribution::std_ms, false},  {"p50", &Distribution::p50_ms, true},
    {"p90", &Distribution::p90_ms, true},   {"p95", &Distribution::p95_ms, true},
    {"p99", &Distribution::p99_ms, true},   {"min", &Distribution::min_ms, false},
    {"max", &Distribution::max_ms, true}};

constexpr LatencyRow kLatencies[] = {
    {"ttft", "TTFT"}, {"tpot", "TPOT"}, {"itl", "ITL"}, {"e2el", "E2EL"}};
constexpr std::string_view kLatencyColumns[] = {"mean", "p50", "p90", "p99", "max"};

struct DistributionRow {
  std::string_view name;   // "ttft"
  std::string_view title;  // "TTFT"
  std::string_view meaning;
  std::string_view formula;
  int decimals = 1;
  std::string_view longest = {};  // its maximum in words; empty: "max" and the title
  bool is_benchmark = false;
  // nullptr: runs of this kind have none.
  const Distribution* (*get)(const Summary&) = nullptr;
};

enum Trait : unsigned {
  kBenchmark = 1,  // Figure::is_benchmark
  kBand = 2,       // Figure::has_band
  kShownOnly = 4,  // not Figure::is_written
  kHidesZero = 8,  // Figure::hides_zero
};

class Table {
 public:
  Table& add(const char* key, std::string_view meaning, FigureGetter value, ShownFigure shown = {},
             FormulaText formula = {}, unsigned traits = 0) {
    if (!formula.text.empty() && formula.name.empty()) formula.name = key;
    figures_.push_back({.key = key,
                        .meaning = meaning,
                        .shown = std::move(shown),
                        .value = std::move(value),
                        .formula = formula,
                        .is_benchmark = (traits & kBenchmark) != 0,
                        .has_band = (traits & kBand) != 0,
                        .is_written = (traits & kShownOnly) == 0,
                        .hides_zero = (traits & kHidesZero) != 0});
    return *this;
  }
  Table& add(const DistributionRow& row) {
    for (const Statistic& statistic : kStatistics) {
      const auto value = [get = row.get, member = statistic.member](const Summary& s,
                                                                    const RunFacts&) {
        const Distribution* values = get(s);
        return values == nullptr ? FigureValue{} : number(values->*member);
      };
      const std::string name(statistic.name);
      const std::string title(row.title);
      const bool is_longest = statistic.name == "max" && !row.longest.empty();
      figures_.push_back(
          {.key = name + "_" + std::string(row.name) + "_ms",
           .meaning = row.meaning,
           .shown = {.block = title + ", ms",
                     .name = name,
                     .better = Better::Lower,
                     .decimals = row.decimals,
                     .elsewhere = is_longest ? "longest" : title + " " + name,
                     .unit = "ms",
                     .words = is_longest ? std::string(row.longest) : name + " " + title},
           .value = value,
           .formula = FormulaText(row.name, &statistic == kStatistics ? row.formula : ""),
           .is_benchmark = row.is_benchmark,
           .has_band = row.is_benchmark && statistic.has_band,
           .distribution = row.name});
    }
    return *this;
  }
  std::vector<Figure> take() { return std::move(figures_); }

 private:
  std::vector<Figure> figures_;
};

// A throughput.
ShownFigure per_second(const char* block, const char* name, int decimals, const char* of_what) {
  return {.block = block,
          .name = name,
          .better = Better::Higher,
          .decimals = decimals,
          .unit = "/s",
          .words = of_what};
}

void add_rates(Table& table) {
  constexpr const char* kBlock = "throughput";
  table
      .add(
          "duration", "seconds from the start of the clock to the end of the last request",
          [](const Summary& s, const RunFacts&) { return number(to_seconds(s.duration_ns)); },
          {.block = kBlock,
           .name = "seconds",
           .better = Better::Lower,
           .decimals = 1,
           .unit = "s",
           .words = "duration"},
          "seconds from the clock's start to the end of the last request", kBenchmark | kBand)
      .add("completed", "requests that got every token", of(&Summary::completed),
           {"requests", "completed"}, {}, kBenchmark)
      .add("failed", "requests that ended without completing", of(&Summary::failed),
           {"requests", "failed"},
           "requests that ended without completing: refused + never_fits + aborted + "
           "step_failed",
           kBenchmark)
      .add("total_input_tokens", "prompt tokens of completed requests",
           of(&Summary::total_input_tokens), {}, {}, kBenchmark)
      .add("total_output_tokens", "output tokens of completed requests",
           of(&Summary::total_output_tokens), {}, {}, kBenchmark)
      .add("request_throughput", "completed requests per second", of(&Summary::request_throughput),
           per_second(kBlock, "req/s", 3, "requests"), {}, kBenchmark | kBand)
      .add("request_goodput",
           "completed requests within every limit of `slo`, per second; null without",
           of(&Summary::request_goodput), per_second(kBlock, "goodput/s", 3, "good requests"),
           "completed requests within every limit of slo / duration; tpot counts as "
           "0 for a single token, itl limits the longest ITL of a request",
           kBenchmark | kBand)
      .add("output_throughput", "output tokens per second", of(&Summary::output_throughput),
           per_second(kBlock, "out tok/s", 1, "output tokens"), {}, kBenchmark | kBand)
      .add("total_token_throughput", "prompt and output tokens per second",
           of(&Summary::total_token_throughput),
           per_second(kBlock, "total tok/s", 1, "input and output tokens"), {}, kBenchmark | kBand)
      .add("max_output_tokens_per_s", "most tokens in one second, counted from the first arrival",
           of(&Summary::max_output_tokens_per_s), {},
           "most tokens in one second, counted from the first arrival", kBenchmark)
      .add("max_concurrent_requests", "most requests between arrival and last token",
           of(&Summary::max_concurrent_requests), {},
           "most requests between arrival and last token, half-open", kBenchmark)
      .add(
          "rtfx", "vLLM's figure for audio; 0",
          [](const Summary&, const RunFacts&) { return number(0); }, {}, {}, kBenchmark);
}

void add_latencies(Table& table) {
  table
      .add({.name = "ttft",
            .title = "TTFT",
            .meaning = "TTFT of completed requests",
            .formula = "first token - arrival, of completed requests",
            .is_benchmark = true,
            .get = [](const Summary& s) { return &s.ttft; }})
      .add({.name = "tpot",
            .title = "TPOT",
            .meaning = "TPOT of completed requests with two tokens or more",
            .formula = "(last token - first token) / (output tokens - 1), of completed requests "
                       "with more than one; AIPerf and guidellm call this inter-token latency",
            .decimals = 2,
            .is_benchmark = true,
            .get = [](const Summary& s) { return &s.tpot; }})
      .add({.name = "itl",
            .title = "ITL",
            .meaning = "inter-token latency (ITL): the time between consecutive tokens of "
                       "completed requests",
            .formula = "inter-token latency: the time between two consecutive tokens of a "
                       "request, pooled over completed requests; AIPerf calls this inter-chunk "
                       "latency",
            .decimals = 2,
            .longest = "longest gap",
            .is_benchmark = true,
            .get = [](const Summary& s) { return &s.itl; }})
      .add({.name = "e2el",
            .title = "E2EL",
            .meaning = "E2EL of completed requests",
            .formula = "last token - arrival, of completed requests",
            .is_benchmark = true,
            .get = [](const Summary& s) { return &s.e2el; }});
}

// How requests ended, and whether they met the limits.
void add_ends(Table& table) {
  constexpr const char* kBlock = "requests";
  table
      .add("refused", "of `failed`: the queue was full", of(&Summary::refused), {kBlock, "refused"})
      .add("never_fits", "of `failed`: longer than `max_model_len` or than the whole KV cache",
           of(&Summary::never_fits), {kBlock, "never fit"})
      .add(
          "other_failed", "of `failed`: the others",
          [](const Summary& s, const RunFacts&) {
            return count(s.failed - s.refused - s.never_fits);
          },
          {kBlock, "failed"}, {}, kShownOnly)
      .add("aborted", "of `failed`: the client left", of(&Summary::aborted))
      .add("step_failed", "of `failed`: the step that computed it failed",
           of(&Summary::step_failed))
      .add(
          "errored",
          "of `failed`, of `bench-serve`: the server answered with an error or stopped; of a "
          "fleet: their replica failed",
          [](const Summary& s, const RunFacts&) {
            return s.has_steps && s.errored == 0 ? FigureValue{} : count(s.errored);
          },
          {},
          "of failed: the server answered with an error or stopped answering, or the replica of a "
          "fleet failed")
      .add(
          "retried", "of a fleet: requests that began anew, as their replica failed",
          [](const Summary& s, const RunFacts&) {
            return s.fleet_events.empty() ? FigureValue{} : count(s.num_retried);
          },
          {kBlock, "retried"})
      .add("mean_replicas", "of a fleet: replicas that were there, the mean over the run",
           [](const Summary& s, const RunFacts&) {
             if (s.fleet_events.empty()) return FigureValue{};
             return number(s.present_share * static_cast<double>(s.replicas.size()));
           },
           {"device", "replicas", Better::Neither, 2})
      .add("unfinished",
           "requests that neither completed nor failed, because the run was cut short",
           of(&Summary::unfinished))
      .add("unsent",
           "requests that were never sent, because an earlier one of their session "
           "failed",
           [](const Summary& s, const RunFacts& facts) {
             const std::int64_t num_unsent = facts.num_prompts - s.num_requests;
             return num_unsent > 0 ? count(num_unsent) : FigureValue{};
           })
      .add("slo_attainment",
           "share of completed and failed requests within every limit; null without",
           of(&Summary::slo_attainment),
           {"throughput", "in SLO %", Better::Higher, 2, 100, {}, "%", "requests within the SLO"},
           "good requests / (completed + failed)", kBand);
}

void add_costs(Table& table) {
  constexpr const char* kBlock = "cost";
  table
      .add(
          "output_tokens_per_s_per_user",
          "output tokens per second that one user sees: 1000 / mean TPOT",
          [](const Summary& s, const RunFacts&) { return number(1e3 / s.tpot.mean_ms); },
          {kBlock, "tok/s/user", Better::Higher, 1, 1, {}, {}, "output tokens/s per user"},
          "1000 / mean_tpot_ms; InferenceMAX calls it interactivity")
      .add(
          "output_tokens_per_s_per_gpu", "output tokens per second and GPU",
          [](const Summary& s, const RunFacts& facts) {
            return number(s.output_throughput / num_present_gpus(s, facts));
          },
          {kBlock, "tok/s/GPU", Better::Higher, 1, 1, {}, {}, "output tokens/s per GPU"},
          "output_throughput / tensor_parallel_size")
      .add(
          "gpu_hours", "hours of the run, times its GPUs",
          [](const Summary& s, const RunFacts& facts) {
            return number(to_seconds(s.duration_ns) / 3600 * num_present_gpus(s, facts));
          },
          {kBlock, "GPU-hours", Better::Neither, 4}, "duration / 3600 * tensor_parallel_size")
      .add("price_per_gpu_hour", "the scenario's price; null without",
           [](const Summary&, const RunFacts& facts) { return or_null(facts.price_per_gpu_hour); })
      .add(
          "cost_per_million_output_tokens",
          "price of the GPU-hours, over output tokens; null without",
          [](const Summary& s, const RunFacts& facts) {
            return number(cost_per_million(s, facts, s.output_throughput));
          },
          {kBlock, "per M out", Better::Lower, 4, 1, {}, {}, "cost of a million output tokens"},
          "price_per_gpu_hour * gpu_hours / total_output_tokens * 1e6; "
          "cost_per_million_tokens counts prompt tokens too")
      .add("cost_per_million_tokens", "the same, over prompt and output tokens",
           [](const Summary& s, const RunFacts& facts) {
             return number(cost_per_million(s, facts, s.total_token_throughput));
           },
           {kBlock, "per M tok", Better::Lower, 4});
}

void add_waits(Table& table) {
  constexpr const char* kAnswers = "answers, tok/s";
  table
      .add({.name = "queue",
            .title = "queue",
            .meaning = "from arrival to first admission, of completed requests",
            .formula = "first admission - arrival, of completed requests; behind a front end, "
                       "first admission - hand-over",
            .get = [](const Summary& s) { return &s.queue; }})
      .add({.name = "front_end",
            .title = "front end",
            .meaning = "from arrival to hand-over by the front end, of completed requests",
            .formula = "",
            .get = [](const Summary& s) { return s.front_end.count > 0 ? &s.front_end : nullptr; }})
      .add({.name = "itl_jitter",
            .title = "jitter",
            .meaning = "longest minus shortest ITL of a request",
            .formula = "longest - shortest ITL of a request, of completed requests with two "
                       "tokens or more",
            .decimals = kByLargest,
            .get = [](const Summary& s) { return &s.jitter; }})
      .add("longest_stall_ms", "the longest inter-token latency (ITL) of a request",
           [](const Summary& s, const RunFacts&) {
             return s.longest_stall.request == kNoRequest
                        ? FigureValue{.kind = Kind::Null}
                        : FigureValue{.kind = Kind::Duration, .count = s.longest_stall.gap_ns};
           },
           {"cadence, ms", "longest gap", Better::Lower, kByLargest, 1, "longest", "ms"})
      .add(
          "decode_rate_during_prefill",
          "tokens per second of a running answer while some prompt is computed",
          [](const Summary& s, const RunFacts&) { return number(s.rates.during_prefill); },
          {kAnswers,
           "during prefill",
           Better::Higher,
           2,
           1,
           "in prefill tok/s",
           {},
           "rate of an answer during prefill"},
          "tokens of requests in decode / seconds that these requests were in decode, both while "
          "some prompt is computed: from the plan of its first chunk to the end of its last one")
      .add(
          "slowest_10s_output_throughput",
          "the fewest output tokens per second in ten seconds in which some answer is written all "
          "the time",
          [](const Summary& s, const RunFacts&) { return number(s.rates.slowest_10s); },
          {kAnswers, "slowest 10 s", Better::Higher, 1, 1, {}, {}, "slowest 10 s of all answers"},
          "fewest output tokens of all requests in ten seconds, half-open, in which some request "
          "is in decode all the time, / 10");
}

void add_engine(Table& table) {
  constexpr const char* kDevice = "device";
  constexpr const char* kQueue = "queue";
  table
      .add("num_kv_blocks", "blocks of the KV cache",
           [](const Summary& s, const RunFacts& facts) {
             return s.has_steps ? count(facts.num_blocks) : FigureValue{.kind = Kind::Null};
           })
      .add("mean_kv_use", "mean share of the KV blocks in use, weighted by time",
           of(&Summary::mean_kv_use), {kDevice, "KV mean %", Better::Neither, 1, 100},
           {"kv_use", "used blocks / blocks after planning, weighted by time over duration"})
      .add("peak_kv_use", "the largest share in use", of(&Summary::peak_kv_use),
           {kDevice, "KV peak %", Better::Neither, 1, 100})
      .add("num_preemptions", "how often requests lost their KV blocks",
           of_steps(&Summary::num_preemptions), {kQueue, "preemptions", Better::Lower})
      .add("prefix_hit_rate", "share of the admitted prompt tokens that were found in the cache",
           of(&Summary::prefix_hit_rate), {kDevice, "prefix hit %", Better::Higher, 1, 100}, {},
           kHidesZero)
      .add("mean_running", "mean number of running requests, weighted by time",
           of(&Summary::mean_running), {kQueue, "run mean", Better::Neither, 1})
      .add("peak_running", "most running requests", of_steps(&Summary::peak_running))
      .add("mean_waiting",
           "mean number of requests that wait once a step is planned, weighted by time",
           of(&Summary::mean_waiting), {kQueue, "wait mean", Better::Lower, 1})
      .add("peak_waiting", "most waiting requests", of_steps(&Summary::peak_waiting),
           {kQueue, "wait peak", Better::Lower})
      .add("num_steps", "steps of the engine", of_steps(&Summary::num_steps), {kDevice, "steps"})
      .add("num_failed_steps", "steps that failed", of_steps(&Summary::num_failed_steps))
      .add("mean_batch_tokens", "mean number of tokens of a step", of(&Summary::mean_batch_tokens),
           {kDevice, "tokens/step", Better::Neither, 1})
      .add("replica_imbalance", "of a fleet: the longest busy time of a replica / the mean",
           [](const Summary& s, const RunFacts&) {
             return s.replicas.empty() ? FigureValue{} : number(s.replica_imbalance);
           },
           {kDevice, "imbalance", Better::Lower, 2})
      .add("busy_share", "share of the duration in which the device worked",
           of(&Summary::busy_share), {kDevice, "busy %", Better::Neither, 1, 100},
           "sum of step durations / duration");
}

// The first six are keys of `vllm bench serve` for a server with drafts.
void add_draft_counts(Table& table) {
  constexpr const char* kBlock = "drafts";
  table
      .add("spec_decode_acceptance_rate", "accepted draft tokens, percent",
           of_drafts([](const DraftSummary& d) { return number(100 * d.acceptance_rate); }),
           {kBlock, "accepted %", Better::Higher, 1},
           {"spec_decode_*",
            "as vLLM counts: a draft is what one decode verified; acceptance length "
            "is 1 + accepted / drafts, acceptance rate is percent of draft tokens"})
      .add("spec_decode_acceptance_length", "1 + accepted tokens / drafts",
           of_drafts([](const DraftSummary& d) { return number(d.acceptance_length); }),
           {kBlock, "length", Better::Higher, 2, 1, {}, {}, "acceptance length"})
      .add("spec_decode_num_drafts", "decodes that verified draft tokens",
           of_drafts([](const DraftSummary& d) { return count(d.counts.num_drafts); }))
      .add("spec_decode_draft_tokens", "their draft tokens",
           of_drafts([](const DraftSummary& d) { return count(d.counts.num_drafted()); }))
      .add("spec_decode_accepted_tokens", "of these, those that the model accepted",
           of_drafts([](const DraftSummary& d) { return count(d.counts.num_accepted()); }))
      .add("spec_decode_per_position_acceptance_rates",
           "share of drafts whose first 1, 2, ... tokens were accepted",
           of_drafts([](const DraftSummary& d) {
             std::vector<double> shares;
             for (const std::int64_t accepted : d.counts.accepted) {
               shares.push_back(static_cast<double>(accepted) /
                                static_cast<double>(d.counts.num_drafts));
             }
             return list_of(shares, false);
           }))
      .add("spec_decode_drafted_per_position", "drafts of at least 1, 2, ... tokens",
           of_drafts([](const DraftSummary& d) { return list_of(d.counts.drafted, true); }))
      .add("spec_decode_accepted_per_position", "drafts whose first 1, 2, ... tokens were accepted",
           of_drafts([](const DraftSummary& d) { return list_of(d.counts.accepted, true); }));
}

void add_draft_costs(Table& table) {
  constexpr const char* kBlock = "drafts";
  table
      .add("wasted_draft_tokens", "draft tokens that were computed and that no request received",
           of_drafts([](const DraftSummary& d) { return count(d.num_wasted); }),
           {kBlock, "wasted", Better::Lower},
           "draft tokens that were computed and that no request received, padding "
           "among them")
      .add("draft_tokens_beside_prompts",
           "draft tokens of steps that left requests in the queue, or a prompt uncomputed",
           of_drafts([](const DraftSummary& d) { return count(d.beside_prompts.num_drafted); }), {},
           {"*_beside_prompts",
            "of steps that left requests in the queue, or a prompt uncomputed: tokens "
            "of the budget that prompts did not get"})
      .add("wasted_draft_tokens_beside_prompts", "of these, those that no request received",
           of_drafts([](const DraftSummary& d) { return count(d.beside_prompts.num_wasted); }))
      .add("tokens_per_decode", "1 + draft tokens that requests received / decodes",
           of_drafts([](const DraftSummary& d) { return number(d.tokens_per_decode); }),
           {kBlock, "tok/decode", Better::Higher, 2},
           "1 + draft tokens that requests received / decodes")
      .add({.name = "itl_per_token",
            .title = "ITL/tok",
            .meaning = "ITL in which the tokens of a step share its gap",
            .formula = "every token has the gap before its step, divided by the tokens that came "
                       "with it (sglang's bench_serving); itl has each gap once, as vLLM",
            .decimals = 2,
            .get = [](const Summary& s) { return s.drafts ? &s.drafts->itl_per_token : nullptr; }})
      .add("steps_outside_calibration", "steps outside the measured range of a measured cost model",
           [](const Summary& s, const RunFacts& facts) {
             return facts.is_calibrated ? count(s.num_extrapolated_steps) : FigureValue{};
           });
}

std::vector<Figure> make_figures() {
  Table table;
  add_rates(table);
  add_latencies(table);
  add_ends(table);
  add_costs(table);
  add_waits(table);
  add_engine(table);
  add_draft_counts(table);
  add_draft_costs(table);
  return table.take();
}

}  // namespace

std::span<const Figure> all_figures() {
  static const std::vector<Figure> all = make_figures();
  return all;
}

const Figure& figure(std::string_view key) {
  const auto all = all_figures();
  const auto found =
      std::find_if(all.begin(), all.end(), [key](const Figure& one) { return one.key == key; });
  METRONOME_CHECK(found != all.end(), "there is no figure " + std::string(key));
  return *found;
}

std::span<const Statistic> statistics() { return kStatistics; }
std::span<const LatencyRow> latency_rows() { return kLatencies; }
std::span<const std::string_view> latency_columns() { return kLatencyColumns; }

}  // namespace metronome
