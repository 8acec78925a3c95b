// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/causes.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/math.h"
#include "core/base/number_text.h"
#include "core/engine/budget_terms.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/first_tokens.h"
#include "core/metrics/gap_analysis.h"
#include "core/scenario/engine_product.h"
#include "engines/flags/server_flags.h"
#include "reports/terminal/text.h"
#include "sim/simulation.h"
#include "study/what_if/fleet_causes.h"

namespace metronome {
namespace {

std::string percent(double share) { return fixed_text(100 * share, 0) + " %"; }

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

// The host's time to launch a pass outside of CUDA graphs, and the reach of graphs.
struct GraphFacts {
  std::int64_t max_tokens = 0;
  std::int64_t max_prompt_tokens = 0;
  double launches_ms = 0;  // of a pass
};

std::optional<GraphFacts> graph_facts(const Scenario& scenario) {
  if (!scenario.names_step_times()) return std::nullopt;
  try {
    const HostSettings host = host_settings(scenario);
    GraphFacts facts;
    for (const Setting& one : host.graphs) {
      (one.key == "cost_model.max_graph_tokens" ? facts.max_tokens : facts.max_prompt_tokens) =
          one.value.get<std::int64_t>();
    }
    for (const Setting& one : host.times) {
      if (one.key != "cost_model.eager_us_per_layer") continue;
      const Simulation simulation = prepare_simulation(scenario);
      facts.launches_ms =
          one.value.get<double>() * static_cast<double>(simulation.model.n_layers) / 1e3;
    }
    return facts;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// Steps of one kind, and those among them of which something is said.
struct StepShare {
  std::int64_t num_all = 0, num_such = 0;
  double time_all = 0, time_such = 0;
  std::int64_t largest = 0;

  void add(bool is_such, TimeNs duration, std::int64_t size) {
    ++num_all;
    time_all += static_cast<double>(duration);
    if (!is_such) return;
    ++num_such;
    time_such += static_cast<double>(duration);
    largest = std::max(largest, size);
  }
  double share() const {
    return ratio(static_cast<double>(num_such), static_cast<double>(num_all));
  }
  double time_share() const { return ratio(time_such, time_all); }
};

// The server of the run's engine; of a policy of our own, one whose names are keys of a scenario.
const ServerFlags& server_of(const Scenario& scenario) {
  static constexpr ServerFlags kNone = {.server = "",
                                        .memory = "kv_cache.num_blocks",
                                        .num_seqs = "engine.max_num_seqs",
                                        .pool = "kv_cache.num_blocks"};
  const ServerFlags* flags = product_of(scenario.scheduler.policy).flags;
  return flags == nullptr ? kNone : *flags;
}

// A sentence behind others; empty stays empty.
std::string behind(std::string_view sentence) {
  return sentence.empty() ? std::string() : " " + std::string(sentence);
}

void find_graphs(const CauseFacts& facts, const std::vector<TimeNs>& times,
                 std::vector<Cause>& causes) {
  const std::optional<GraphFacts> graphs = graph_facts(*facts.scenario);
  if (!graphs) return;
  constexpr double kAsLong = 1.02;  // as the launches
  StepShare beyond;
  StepShare bound;     // of those, as long as the launches
  StepShare launched;  // steps with prompts that are as long as their launches
  std::size_t s = 0;
  for (const StepEntry& step : facts.record->steps) {
    const TimeNs duration = times[s++];
    const bool is_bound =
        graphs->launches_ms > 0 && to_ms(duration) <= kAsLong * graphs->launches_ms;
    if (step.num_prefill_tokens == 0 && step.num_decode_tokens > 0) {
      const bool is_beyond = step.num_decode_tokens > graphs->max_tokens;
      beyond.add(is_beyond, duration, step.num_decode_tokens);
      if (is_beyond) bound.add(is_bound, duration, step.num_decode_tokens);
    } else if (step.num_prefill_tokens > 0) {
      launched.add(is_bound && step.num_tokens() > graphs->max_prompt_tokens, duration,
                   step.num_tokens());
    }
  }
  constexpr double kMany = 0.05;
  if (beyond.time_share() > kMany && graphs->launches_ms > 0) {
    std::string text = percent(beyond.share()) + " of the decode steps (" +
                       percent(beyond.time_share()) +
                       " of their time) ran beyond the captured CUDA graphs: up to " +
                       grouped_text(beyond.largest) + " tokens, and the largest graph has " +
                       grouped_text(graphs->max_tokens) + ".";
    if (facts.is_simulated && bound.num_such > 0) {
      text += " " + percent(bound.share()) + " of these took no longer than the host's launches (" +
              ms_text(std::round(100 * graphs->launches_ms) / 100) +
              " ms): the GPU waited for the host.";
    }
    text += " Larger graphs (" + std::string(server_of(*facts.scenario).graphs) +
            ") or fewer requests (" + std::string(server_of(*facts.scenario).num_seqs) +
            ") avoid it.";
    causes.push_back({"graphs", std::move(text), beyond.share()});
  }
  if (facts.is_simulated && launched.share() > 0.2 && launched.time_share() > kMany) {
    causes.push_back(
        {"launches",
         percent(launched.share()) +
             " of the steps with prompts took no longer than the host's launches of their kernels "
             "(" +
             ms_text(std::round(100 * graphs->launches_ms) / 100) +
             " ms), which no CUDA graph has: the GPU waited for the host. Larger steps, or graphs "
             "for prompts, avoid it.",
         launched.share()});
  }
}

void find_padding(const CauseFacts& facts, std::vector<Cause>& causes) {
  if (facts.scenario->cost_model.batching != Batching::Padded) return;
  // Each sequence costs as much as the longest chunk of its kind.
  double num_tokens = 0;
  double num_padded = 0;
  for (const StepEntry& step : facts.record->steps) {
    std::int64_t longest = 0;
    for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
      const auto place = static_cast<std::size_t>(step.first_prefill_chunk + c);
      longest = std::max<std::int64_t>(longest, facts.record->prefills[place].num_tokens);
    }
    num_tokens += step.num_prefill_tokens;
    num_padded += static_cast<double>(longest * step.num_prefill_chunks);
  }
  const double share = num_padded > 0 ? 1 - num_tokens / num_padded : 0;
  if (share < 0.1) return;
  causes.push_back({"padding",
                    percent(share) +
                        " of the computed prompt tokens are padding to the longest chunk of a step "
                        "(cost_model.batching padded). Chunks of one length, or ragged batches, "
                        "avoid it.",
                    share});
}

void find_drafts(const CauseFacts& facts, std::vector<Cause>& causes) {
  if (!facts.summary->drafts) return;
  const DraftSummary& drafts = *facts.summary->drafts;
  const auto num_drafted = static_cast<double>(drafts.counts.num_drafted());
  const double rejected = 1 - drafts.acceptance_rate;
  double draft_ns = 0;
  double decode_ns = 0;
  double num_requests = 0;
  double num_steps = 0;
  for (const StepEntry& step : facts.record->steps) {
    if (step.num_decode_tokens == 0) continue;
    draft_ns += static_cast<double>(step.draft_ns);
    decode_ns += static_cast<double>(step.decode_only_ns == kNoTime ? step.duration_ns()
                                                                    : step.decode_only_ns);
    num_requests += step.num_decode_tokens - step.num_draft_tokens;
    num_steps += 1;
  }
  const double share = ratio(draft_ns, decode_ns);
  const double longer = decode_ns > draft_ns ? decode_ns / (decode_ns - draft_ns) : 1;
  const bool is_loss = longer > drafts.tokens_per_decode;
  if (num_drafted == 0 || (rejected < 0.4 && !is_loss)) return;
  causes.push_back(
      {"drafts",
       percent(rejected) + " of " + grouped_text(static_cast<std::int64_t>(num_drafted)) +
           " draft tokens were rejected. A decode gave " + fixed_text(drafts.tokens_per_decode, 2) +
           " tokens, and drafts made it " + fixed_text(longer, 2) + " times as long (" +
           percent(share) + " of the time of decodes, at " +
           fixed_text(ratio(num_requests, num_steps), 0) + " requests a step): " +
           (is_loss ? "they cost more than they bring." : "they bring little.") +
           " Fewer drafts (speculative.num_speculative_tokens), or none at large batches "
           "(num_speculative_tokens_per_batch_size), avoid it.",
       rejected});
}

// Prompts in steps of their own while answers stalled.
void find_apart(const CauseFacts& facts, std::vector<Cause>& causes) {
  const BudgetTerms terms = budget_terms(facts.scenario->scheduler);
  if (!terms.prefills_apart) return;
  const GapAnalysis gaps(*facts.record);
  std::int64_t num_apart = 0, row = 0, longest_row = 0, most_waiting = 0;
  TimeNs row_begin = 0, longest_ns = 0;
  std::int32_t s = 0;
  for (const StepEntry& step : facts.record->steps) {
    const std::int32_t num_delayed = gaps.num_delayed(s++);
    if (step.num_prefill_tokens == 0 || step.num_decode_tokens > 0 || num_delayed == 0) {
      row = 0;
      continue;
    }
    if (row++ == 0) row_begin = step.started_at;
    ++num_apart;
    if (step.finished_at - row_begin > longest_ns) {
      longest_ns = step.finished_at - row_begin;
      longest_row = row;
      most_waiting = num_delayed;
    }
  }
  if (num_apart == 0) return;
  causes.push_back(
      {"apart",
       "Prompts are computed in steps of their own: " + count_text(num_apart, "such step") +
           " stopped all answers. The longest row, " + count_text(longest_row, "step") + " in " +
           ms_text(to_ms(longest_ns)) + " ms, delayed " + count_text(most_waiting, "answer") + "." +
           behind(server_of(*facts.scenario).apart_advice),
       ratio(static_cast<double>(num_apart), static_cast<double>(facts.record->steps.size()))});
}

// More requests may run than the KV cache holds; the queue waits for its blocks.
void find_full_cache(const CauseFacts& facts, std::vector<Cause>& causes) {
  const Scenario& scenario = *facts.scenario;
  const RunRecord& record = *facts.record;
  if (facts.num_blocks == 0 || scenario.kv_cache.backend != KvBackend::Paged) return;
  const std::int64_t block = scenario.kv_cache.block_size;
  std::int64_t num = 0, num_tokens = 0;
  for (const RequestRecord& request : record.requests) {
    if (!request.completed()) continue;
    ++num;
    num_tokens += request.num_prompt_tokens + request.num_output_tokens;
  }
  if (num == 0) return;
  const double mean = static_cast<double>(num_tokens) / static_cast<double>(num);
  const auto held = static_cast<std::int64_t>(static_cast<double>(facts.num_blocks * block) /
                                              std::max(mean, 1.0));
  const FirstTokens tokens(record, {scenario.engine.max_num_seqs, facts.num_blocks, block});
  FirstTokenParts sum;
  tokens.beyond(-1, sum);
  const double waits =
      ratio(static_cast<double>(sum[FirstTokenPart::Blocks]), static_cast<double>(sum.total_ns()));
  const std::int64_t preemptions = facts.summary->num_preemptions;
  // Engines also preempt for urgent requests.
  const bool is_full = facts.summary->peak_kv_use > 0.9;
  if (!is_full || (preemptions == 0 && waits < 0.1)) return;
  std::string text = "The KV cache is full: it holds " + grouped_text(facts.num_blocks * block) +
                     " tokens, about " + count_text(held, "request") + " of " +
                     grouped_text(static_cast<std::int64_t>(std::llround(mean))) +
                     " tokens at their end, and " + grouped_text(scenario.engine.max_num_seqs) +
                     " may run.";
  if (waits >= 0.1) text += " Waiting for its blocks is " + percent(waits) + " of all TTFT.";
  if (preemptions > 0) {
    std::int64_t recomputed = 0;
    for (const PrefillChunk& chunk : record.prefills) recomputed += chunk.num_tokens;
    for (const RequestRecord& request : record.requests) {
      if (request.first_scheduled == kNoTime) continue;
      recomputed -= request.num_prompt_tokens - request.num_prefix_hit_tokens;
    }
    text += " " + count_text(preemptions, "preemption") + " threw away KV";
    if (recomputed > 0) text += ", and " + count_text(recomputed, "token") + " were computed again";
    text += ".";
  }
  text += " Fewer requests at once (" + std::string(server_of(scenario).num_seqs) +
          ") or more KV memory (" + std::string(server_of(scenario).memory) + ") avoids it.";
  causes.push_back({"full", std::move(text), waits});
}

// As many requests run as may, and the queue waits for one of them to end.
void find_slots(const CauseFacts& facts, std::vector<Cause>& causes) {
  const Scenario& scenario = *facts.scenario;
  const FirstTokens tokens(*facts.record, {scenario.engine.max_num_seqs, facts.num_blocks,
                                           scenario.kv_cache.block_size});
  FirstTokenParts sum;
  tokens.beyond(-1, sum);
  const double waits =
      ratio(static_cast<double>(sum[FirstTokenPart::Slots]), static_cast<double>(sum.total_ns()));
  if (waits < 0.1) return;
  TimeNs longest = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < tokens.parts().size(); ++i) {
    const TimeNs wait = tokens.parts()[i][FirstTokenPart::Slots];
    if (wait <= longest) continue;
    longest = wait;
    worst = i;
  }
  causes.push_back(
      {"slots",
       fmt::format("{} requests run, as many as may: waiting for one of them to end is {} of all "
                   "TTFT. Request {} waited {} ms so. The KV cache is at most {} full. More "
                   "requests at once ({}) start them earlier, in larger steps.",
                   grouped_text(scenario.engine.max_num_seqs), percent(waits), worst,
                   ms_text(to_ms(longest)), percent(facts.summary->peak_kv_use),
                   server_of(scenario).num_seqs),
       waits});
}

// Short prompts behind long ones.
void find_blocking(const CauseFacts& facts, std::vector<Cause>& causes) {
  const Scenario& scenario = *facts.scenario;
  const RunRecord& record = *facts.record;
  const FirstTokens tokens(
      record, {scenario.engine.max_num_seqs, facts.num_blocks, scenario.kv_cache.block_size});
  std::int64_t num = 0, num_blocked = 0;
  std::size_t worst = 0;
  TimeNs longest = 0;
  double waited = 0, total = 0;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (!tokens.has_first_token(i)) continue;
    ++num;
    const FirstTokenParts& parts = tokens.parts()[i];
    const TimeNs behind = parts[FirstTokenPart::Prompts] + parts[FirstTokenPart::OtherPrompts];
    const TimeNs ttft = record.requests[i].ttft_ns();
    waited += static_cast<double>(behind);
    total += static_cast<double>(ttft);
    constexpr TimeNs kNoticed = kNsPerSecond / 10;
    if (2 * behind < ttft || behind < kNoticed) continue;
    ++num_blocked;
    if (behind <= longest) continue;
    longest = behind;
    worst = i;
  }
  const double share = ratio(waited, total);
  if (num_blocked == 0 || share < 0.1) return;
  const FirstTokenCulprit culprit = tokens.culprit(worst);
  std::string text = fmt::format(
      "Head-of-line blocking of first tokens: {} of {} waited mostly for prompts of others, {} of "
      "all TTFT. Request {}, with {}, waited {} ms for them",
      grouped_text(num_blocked), count_text(num, "request"), percent(share), worst,
      count_text(record.requests[worst].num_prompt_tokens, "prompt token"),
      ms_text(to_ms(longest)));
  if (culprit.request != kNoRequest) {
    const std::size_t other = index(culprit.request);
    text += fmt::format(", of which {} ms for request {}, whose prompt has {}",
                        ms_text(to_ms(culprit.prefill_ns)), other,
                        count_text(record.requests[other].num_prompt_tokens, "token"));
  }
  text += ".";
  const auto length_of = [&record](std::size_t i) { return record.requests[i].num_prompt_tokens; };
  const bool is_shorter =
      culprit.request != kNoRequest && 2 * length_of(worst) <= length_of(index(culprit.request));
  if (is_shorter) text += behind(server_of(scenario).blocking_advice);
  causes.push_back({"blocking", std::move(text), share});
}

// Whether the queue of the run's settings looks at priorities, and which goes first.
struct PriorityRule {
  bool is_used = false;
  bool lower_first = true;
};

PriorityRule priority_rule(const Scenario& scenario) {
  PriorityRule rule;
  const Json is_on = scenario.value("scheduler.enable_priority_scheduling");
  const Json lower_first = scenario.value("scheduler.schedule_low_priority_values_first");
  rule.is_used = (is_on.is_boolean() && is_on.get<bool>()) ||
                 budget_terms(scenario.scheduler).orders_by_priority ||
                 scenario.scheduler.order == QueueOrder::Priority;
  rule.lower_first = !lower_first.is_boolean() || lower_first.get<bool>();
  return rule;
}

// The cause and the remedy of urgent requests' waits.
std::string priority_advice(const Scenario& scenario, const PriorityRule& rule) {
  const ServerFlags& server = server_of(scenario);
  if (rule.is_used) return std::string(server.priority_advice);
  const std::string policy = "scheduler.policy " + scenario.scheduler.policy;
  return "The queue does not look at priorities (" +
         (server.no_priorities.empty() ? policy : std::string(server.no_priorities)) + ").";
}

// The most urgent requests waited while less urgent ones ran or went first.
void find_priorities(const CauseFacts& facts, std::vector<Cause>& causes) {
  const std::vector<RequestRecord>& requests = facts.record->requests;
  const PriorityRule rule = priority_rule(*facts.scenario);
  std::int32_t best = INT32_MAX;
  std::int32_t worst = INT32_MIN;
  for (const RequestRecord& request : requests) {
    if (request.num_prompt_tokens == 0) continue;
    best = std::min(best, request.priority);
    worst = std::max(worst, request.priority);
  }
  if (best >= worst) return;
  if (!rule.lower_first) std::swap(best, worst);
  // When less urgent requests were admitted, and ended.
  std::vector<TimeNs> admitted, ended;
  for (const RequestRecord& request : requests) {
    if (request.priority == best || request.first_scheduled == kNoTime) continue;
    admitted.push_back(request.first_scheduled);
    ended.push_back(request.ended == kNoTime ? INT64_MAX : request.ended);
  }
  std::sort(admitted.begin(), admitted.end());
  std::sort(ended.begin(), ended.end());
  const auto num_before = [](const std::vector<TimeNs>& times, TimeNs time) {
    return std::lower_bound(times.begin(), times.end(), time) - times.begin();
  };
  constexpr TimeNs kShort = kNsPerSecond / 20;  // a few steps
  std::int64_t num = 0, num_late = 0, num_overtaken = 0;
  TimeNs longest = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const RequestRecord& request = requests[i];
    if (request.priority != best || request.first_scheduled == kNoTime) continue;
    ++num;
    const TimeNs queued = facts.record->queue_ns(i);
    if (queued <= kShort) continue;
    const TimeNs from = request.first_scheduled - queued;
    const bool others_ran =
        num_before(admitted, request.first_scheduled) > num_before(ended, from + 1);
    if (!others_ran) continue;
    ++num_late;
    longest = std::max(longest, queued);
    num_overtaken += num_before(admitted, request.first_scheduled) > num_before(admitted, from + 1);
  }
  if (num_late == 0) return;
  const std::string why = priority_advice(*facts.scenario, rule);
  causes.push_back(
      {"priority",
       fmt::format(
           "Priority inversion: {} of {} of priority {}, the most urgent, waited up to {} "
           "ms in the queue while less urgent ones ran{}. {}",
           grouped_text(num_late), count_text(num, "request"), best, ms_text(to_ms(longest)),
           num_overtaken > 0 ? fmt::format("; {} were overtaken", grouped_text(num_overtaken))
                             : std::string(),
           why),
       ratio(static_cast<double>(num_late), static_cast<double>(num))});
}

// More arrives than is served.
void find_growing_queue(const CauseFacts& facts, std::vector<Cause>& causes) {
  const RunRecord& record = *facts.record;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (record.requests[i].first_token != kNoTime) order.push_back(i);
  }
  constexpr std::size_t kEnoughRequests = 30;
  if (order.size() < kEnoughRequests) return;
  std::stable_sort(order.begin(), order.end(), [&record](std::size_t a, std::size_t b) {
    return record.requests[a].arrival < record.requests[b].arrival;
  });
  const TimeNs first = record.requests[order.front()].arrival;
  const TimeNs last = record.requests[order.back()].arrival;
  if (last - first < kNsPerSecond) return;  // all at once
  // The mean wait in the queue of each quarter of the arrivals.
  constexpr std::size_t kParts = 4;
  double means[kParts] = {};
  for (std::size_t p = 0; p < kParts; ++p) {
    const std::size_t begin = p * order.size() / kParts;
    const std::size_t end = (p + 1) * order.size() / kParts;
    for (std::size_t k = begin; k < end; ++k) {
      means[p] += static_cast<double>(record.queue_ns(order[k])) / static_cast<double>(end - begin);
    }
  }
  const bool grows = means[1] > 1.2 * means[0] && means[2] > 1.2 * means[1] &&
                     means[3] > 1.1 * means[2] && means[3] > kNsPerSecond / 2;
  // While requests still come.
  std::int64_t num_completed = 0, num_waiting = 0;
  for (const RequestRecord& request : record.requests) {
    if (request.num_prompt_tokens == 0) continue;
    num_completed += request.ended != kNoTime && request.ended <= last ? 1 : 0;
    const bool waits = request.first_scheduled == kNoTime || request.first_scheduled > last;
    num_waiting += waits && request.arrival <= last ? 1 : 0;
  }
  if (!grows || num_waiting < 5) return;
  const double span_s = to_seconds(last - first);
  const double arriving = static_cast<double>(order.size()) / span_s;
  const double served = static_cast<double>(num_completed) / span_s;
  if (served > 0.98 * arriving) return;
  causes.push_back(
      {"queue",
       "The queue grows until requests stop coming: " + rate_text(arriving) +
           " requests/s arrive and " + rate_text(served) + " are completed; at " +
           fixed_text(to_seconds(last), 1) + " s, " + grouped_text(num_waiting) +
           " wait. The wait rose from " + ms_text(to_ms(static_cast<TimeNs>(means[0]))) + " to " +
           ms_text(to_ms(static_cast<TimeNs>(means[3]))) +
           " ms on average, and goes on rising with more requests: the load is above the capacity. "
           "Settings change that only if they raise the throughput; else it takes fewer requests "
           "or "
           "more GPUs (`metronome tune` finds the capacity).",
       ratio(arriving - served, arriving)});
}

}  // namespace

std::vector<Cause> find_causes(const CauseFacts& facts) {
  std::vector<Cause> causes;
  if (!facts.record->has_steps() || facts.record->steps.empty()) return causes;
  if (!facts.record->replicas.empty()) return find_fleet_causes(facts);
  const std::vector<TimeNs> times = device_times(*facts.record);
  find_graphs(facts, times, causes);
  find_padding(facts, causes);
  find_drafts(facts, causes);
  find_apart(facts, causes);
  find_full_cache(facts, causes);
  find_slots(facts, causes);
  find_blocking(facts, causes);
  find_priorities(facts, causes);
  find_growing_queue(facts, causes);
  return causes;
}

void append_causes(const std::vector<Cause>& causes, JsonText& json) {
  json.begin_array();
  for (const Cause& cause : causes) {
    json.begin_object();
    json.field("cause", std::string(cause.name));
    json.field("share", cause.share);
    json.field("text", cause.text);
    json.end_object();
  }
  json.end_array();
}

}  // namespace metronome
