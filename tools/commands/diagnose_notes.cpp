// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/diagnose_notes.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/scenario/engine_product.h"
#include "engines/flags/server_flags.h"
#include "reports/terminal/text.h"
#include "study/what_if/replays.h"

namespace metronome {

std::string itl_text(const Distribution& itl) {
  if (itl.count == 0) return "no request got a second token";
  return "ITL p50 " + ms_text(itl.p50_ms) + " ms, p99 " + ms_text(itl.p99_ms) + " ms, longest " +
         ms_text(itl.max_ms) + " ms";
}

std::string ttft_text(const Distribution& ttft) {
  if (ttft.count == 0) return "no request got a first token";
  return "TTFT p50 " + ms_text(ttft.p50_ms) + " ms, p99 " + ms_text(ttft.p99_ms) + " ms, longest " +
         ms_text(ttft.max_ms) + " ms";
}

std::string rates_text(const AnswerRates& rates) {
  std::string text;
  if (!std::isnan(rates.during_prefill)) {
    text = "answers during prefill: " + grouped_text(rates.during_prefill, 2) + " tok/s each";
  }
  if (!std::isnan(rates.slowest_10s)) {
    text += (text.empty() ? "" : "; ") + std::string("slowest 10 s: ") +
            grouped_text(rates.slowest_10s, 1) + " tok/s in all";
  }
  return text;
}

std::string verdict(const Diagnosis& diagnosis) {
  const auto row = std::find_if(diagnosis.rows.begin(), diagnosis.rows.end(),
                                [](const GapRow& r) { return r.name == kOverP99; });
  if (row == diagnosis.rows.end() || row->sum.num_gaps == 0) return {};
  const GapParts& parts = row->sum.parts;
  const std::pair<TimeNs, const char*> shares[] = {
      {parts.decode_ns - row->slow_ns, "decode"},
      {row->slow_ns, "decode that became slow without a prompt"},
      {parts.draft_ns, "drafts"},
      {parts.encode_ns, "encoding of images"},
      {parts.prefill_ns, "prefill"},
      {parts.host_ns, "host time"},
      {parts.waiting_ns, "waiting for steps without the request"},
      {parts.preemption_ns, "preemption"}};
  const auto largest = std::max_element(std::begin(shares), std::end(shares));
  const double share =
      100 * static_cast<double>(largest->first) / static_cast<double>(parts.total_ns());
  return "of the time in gaps over the p99, " + fixed_text(share, 1) + " % is " + largest->second;
}

bool keeps_goals(const StoredRun& run, const std::vector<Goal>& goals) {
  const RunInfo& info = run.result.info;
  const RunFacts facts = {.num_gpus = static_cast<double>(info.tensor_parallel_size),
                          .price_per_gpu_hour = info.price_per_gpu_hour};
  return std::all_of(goals.begin(), goals.end(), [&](const Goal& goal) {
    return goal.is_kept_by(goal_figure(goal, run.result.summary, facts));
  });
}

bool sets_pool(const RunInfo& info) {
  const Json* cache = info.config.find("kv_cache");
  const Json* blocks = cache == nullptr ? nullptr : cache->find("num_blocks");
  return blocks != nullptr && blocks->is_number_integer();
}

std::string preemption_note(const Diagnosis& diagnosis, const std::string& policy,
                            bool is_pool_set) {
  const std::vector<DiagnosedStall>& stalls = diagnosis.stalls;
  const auto num_preempted =
      std::count_if(stalls.begin(), stalls.end(),
                    [](const DiagnosedStall& stall) { return stall.parts.preemption_ns > 0; });
  if (num_preempted == 0) return {};
  const ServerFlags* names = product_of(policy).flags;
  const std::string memory =
      names != nullptr ? std::string(is_pool_set ? names->pool : names->memory) : kNumBlocksKey;
  const std::string num_seqs =
      names != nullptr ? std::string(names->num_seqs) : "engine.max_num_seqs";
  return "Preemptions caused " + grouped_text(std::int64_t{num_preempted}) + " of the " +
         grouped_text(static_cast<std::int64_t>(stalls.size())) +
         " longest stalls: the KV cache was full, and a request lost its KV blocks. More KV " +
         std::string(is_pool_set ? "blocks" : "memory") + " (" + memory +
         ") or fewer requests at once (" + num_seqs + ") avoids it.";
}

std::string draft_note(const Summary& summary) {
  if (!summary.drafts || summary.drafts->beside_prompts.num_drafted == 0) return {};
  const DraftSummary::BesidePrompts& beside = summary.drafts->beside_prompts;
  const double share =
      100 * static_cast<double>(beside.num_drafted) / static_cast<double>(beside.num_tokens);
  return "In " + grouped_text(beside.num_steps) + " of " + count_text(summary.num_steps, "step") +
         " prompts waited while drafts took " + count_text(beside.num_drafted, "token") + ", " +
         fixed_text(share, 1) + " % of these steps; " + grouped_text(beside.num_wasted) +
         " of them no request received. Where the token budget is full, fewer drafts leave more of "
         "it to prompts (speculative.num_speculative_tokens, or "
         "num_speculative_tokens_per_batch_size for large batches).";
}

std::string budget_note(const Diagnosis& diagnosis, const LogDialect& engine,
                        const EngineArguments& settings, double limit_ms) {
  if (diagnosis.stalls.empty()) return {};
  const DiagnosedStall& stall = diagnosis.stalls.front();
  if (!stall.worst || to_ms(stall.gap_ns) <= limit_ms || stall.worst->added_ns <= 0) return {};
  const double token_ms = to_ms(stall.worst->added_ns) / stall.worst->num_tokens;
  const double room_ms = limit_ms - to_ms(stall.parts.decode_ns);
  const auto num_tokens = static_cast<std::int64_t>(room_ms / token_ms);
  const std::string where = fmt::format("{} {}", diagnosis.step_word, stall.step);
  if (num_tokens < 1) {
    const ServerFlags* names = product_of(engine.name()).flags;
    METRONOME_CHECK(names != nullptr, "an engine whose log is read has flags");
    return "The decodes of " + where + " alone take longer than " + ms_text(limit_ms) +
           " ms: no token budget can avoid this, but fewer requests at once (" +
           std::string(names->server) + ": " + std::string(names->num_seqs) + ") may.";
  }
  return "In " + where + " a " + (engine.form == LogForm::Iterations ? "context" : "prompt") +
         " token cost " + grouped_text(1000 * token_ms, 1) + " us, so about " +
         grouped_text(num_tokens) + " of them and its decodes fit in " + ms_text(limit_ms) +
         " ms. " + engine.smaller_steps(num_tokens, stall.num_waiting, settings) +
         " This is a linear estimate, not a replay.";
}

}  // namespace metronome
