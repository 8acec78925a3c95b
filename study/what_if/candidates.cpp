// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/candidates.h"

#include <algorithm>
#include <utility>

#include "core/base/math.h"
#include "core/engine/policies/registry.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/settings.h"
#include "study/what_if/replays.h"

namespace metronome {
namespace {

// Powers of two below `from`, down to `least`.
std::vector<std::int64_t> smaller_powers(std::int64_t from, std::int64_t least) {
  std::int64_t power = 1;
  while (power * 2 < from) power *= 2;
  std::vector<std::int64_t> powers;
  for (; power >= least && power < from; power /= 2) powers.push_back(power);
  return powers;
}

constexpr std::int64_t kLeastTokens = 64;
constexpr std::string_view kPagedChunkKey = "scheduler.chunked_prefill_size";

Family falling(const std::string& key, std::int64_t from, std::int64_t least) {
  return {{}, key, smaller_powers(from, least), from};
}

}  // namespace

std::vector<std::string> Family::assignments(std::int64_t value) const {
  std::vector<std::string> all = others;
  if (!key.empty()) all.push_back(assignment(key, value));
  return all;
}

std::vector<Family> Candidates::sizes() const {
  std::vector<Family> families;
  const char* const keys[] = {"max_num_batched_tokens", "prefill_chunk_size", "chunk_size",
                              "chunked_prefill_size",   "max_num_tokens",     "n_batch",
                              "max_ragged_batch_size"};
  for (const char* key : keys) {
    if (!reads(key) || (is_token_budget() && std::string_view(key) == "prefill_chunk_size")) {
      continue;
    }
    families.push_back(falling_tokens(std::string("scheduler.") + key, current(key)));
  }
  return families;
}

std::vector<Family> Candidates::other_settings() const {
  std::vector<Family> families;
  add_chunking(families);
  const std::int64_t budget = token_budget(scenario_.scheduler);
  if (reads("long_prefill_token_threshold")) {
    const std::int64_t now =
        scenario_.scheduler.settings<VllmConfig>().long_prefill_token_threshold;
    families.push_back(
        falling_tokens("scheduler.long_prefill_token_threshold", now > 0 ? now : budget));
  }
  if (is_token_budget()) {
    families.push_back(falling_tokens("scheduler.prefill_chunk_size",
                                      scenario_.scheduler.prefill_chunk_size.value_or(budget)));
  }
  if (reads("max_prefill_chunks_per_step")) {
    const std::int64_t now = scenario_.scheduler.max_prefill_chunks_per_step;
    families.push_back(falling("scheduler.max_prefill_chunks_per_step", now > 0 ? now : 8, 1));
  }
  if (reads("enable_mixed_chunk") &&
      !scenario_.scheduler.settings<SglangConfig>().enable_mixed_chunk) {
    // Decodes in prefill steps, with the run's chunk size and then smaller ones.
    const std::vector<std::string> mixed = {"scheduler.enable_mixed_chunk=true"};
    families.push_back({mixed, "", {0}, std::nullopt});
    families.push_back(
        falling_tokens("scheduler.chunked_prefill_size", current("chunked_prefill_size"), mixed));
  }
  add_sglang(families);
  add_drafts(families);
  families.push_back(falling("engine.max_num_seqs", scenario_.engine.max_num_seqs, 1));
  if (reads("prefill_chunk_size") && !is_token_budget()) {
    families.push_back(falling_tokens("scheduler.prefill_chunk_size", current("prefill_chunk_size"),
                                      {"scheduler.max_prefill_chunks_per_step=1"}));
  }
  return families;
}

std::vector<Family> Candidates::reserves() const {
  std::vector<Family> families;
  if (!reads("schedule_conservativeness")) return families;
  const double now = scenario_.scheduler.settings<SglangConfig>().schedule_conservativeness;
  for (const char* more : {"1.3", "1.7", "2.5"}) {
    if (std::stod(more) <= now) continue;
    families.push_back(
        {{std::string("scheduler.schedule_conservativeness=") + more}, "", {0}, std::nullopt});
  }
  return families;
}

std::vector<Family> Candidates::other_policies() const {
  std::vector<Family> families;
  // The first of equal candidates is chosen, so a policy that an engine has comes first.
  add_policy("vllm", "scheduler.max_num_batched_tokens", {}, families);
  add_policy("token_budget", "scheduler.max_num_batched_tokens", {}, families);
  add_policy("chunked", "scheduler.prefill_chunk_size", {}, families);
  add_policy("sglang", "scheduler.chunked_prefill_size", {"scheduler.enable_mixed_chunk=true"},
             families);
  // Shown, but never chosen: only Metronome has this policy.
  if (scenario_.scheduler.policy != "slo") {
    const std::string target = Json(target_ms_).dump();  // shortest digits
    families.push_back(
        {{"scheduler.policy=slo", "scheduler.itl_target_ms=" + target}, "", {0}, std::nullopt});
  }
  return families;
}

// Fewer drafts, which take less of a step and of its budget; 0: none.
void Candidates::add_drafts(std::vector<Family>& families) const {
  const SpeculativeConfig& drafts = scenario_.speculative;
  if (!drafts.has_drafts() || !drafts.num_speculative_tokens_per_batch_size.empty()) return;
  Family family = falling("speculative.num_speculative_tokens", drafts.num_speculative_tokens, 1);
  family.values.push_back(0);
  // A mean length is that of the run's number of drafts.
  const AcceptanceConfig& acceptance = drafts.acceptance;
  if (acceptance.kind == AcceptanceKind::Length && !acceptance.mean_length_tokens) {
    family.others.push_back(
        assignment("speculative.acceptance.mean_length_tokens", drafts.num_speculative_tokens));
  }
  families.push_back(std::move(family));
}

// Prompts in chunks where they are whole: with the run's size of a step, and then smaller ones.
// SGLang's chunk size is itself the switch, so the sizes have it.
void Candidates::add_chunking(std::vector<Family>& families) const {
  struct Switch {
    const char* key;
    const char* size;
    bool is_on;
  };
  const SchedulerConfig& now = scenario_.scheduler;
  for (const Switch& one : {Switch{"enable_chunked_prefill", "max_num_batched_tokens",
                                   now.settings<VllmConfig>().enable_chunked_prefill},
                            Switch{"enable_chunked_context", "max_num_tokens",
                                   now.settings<TensorRtLlmConfig>().enable_chunked_context}}) {
    if (one.is_on || !reads(one.key)) continue;
    const std::vector<std::string> on = {std::string("scheduler.") + one.key + "=true"};
    families.push_back({on, "", {0}, std::nullopt});
    families.push_back(falling_tokens(std::string("scheduler.") + one.size, current(one.size), on));
  }
}

// Settings that limit how long SGLang prefills before it decodes again.
void Candidates::add_sglang(std::vector<Family>& families) const {
  if (!reads("prefill_decode_interval")) return;
  const SglangConfig& now = scenario_.scheduler.settings<SglangConfig>();
  if (now.prefill_decode_interval == 0 && !now.enable_mixed_chunk) {
    // A decode step behind each batch, with the run's chunk size and then smaller ones.
    const std::vector<std::string> apart = {"scheduler.prefill_decode_interval=1"};
    families.push_back({apart, "", {0}, std::nullopt});
    families.push_back(
        falling_tokens("scheduler.chunked_prefill_size", current("chunked_prefill_size"), apart));
  }
  families.push_back(falling_tokens("scheduler.max_prefill_tokens", now.max_prefill_tokens));
  families.push_back(falling("scheduler.prefill_max_requests",
                             now.prefill_max_requests.value_or(scenario_.engine.max_num_seqs), 1));
}

bool Candidates::reads(std::string_view key) const {
  const auto keys = find_policy(scenario_.scheduler.policy)->keys;
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// The run's value; nullopt if it has no limit.
std::optional<std::int64_t> Candidates::current(std::string_view key) const {
  const Json* found = config_.at("scheduler").find(key);
  if (found != nullptr && found->is_number_integer() && found->get<std::int64_t>() > 0) {
    return found->get<std::int64_t>();
  }
  if (key == "prefill_chunk_size") return 512;
  const std::int64_t budget = token_budget(scenario_.scheduler);
  if (key == "max_num_batched_tokens" && budget > 0) return budget;
  return std::nullopt;
}

// Multiples of the tokens that kernels compute at once. SGLang's chunk is also one of its page.
Family Candidates::falling_tokens(const std::string& key, std::optional<std::int64_t> from,
                                  std::vector<std::string> others) const {
  constexpr std::int64_t kLargest = 16384;
  Family family = falling(key, from.value_or(kLargest + 1), kLeastTokens);
  if (!from) family.failing.reset();
  family.others = std::move(others);
  family.grain = kLeastTokens;
  const std::int64_t page = scenario_.kv_cache.block_size;
  if (key != kPagedChunkKey || scenario_.kv_cache.backend != KvBackend::Paged) return family;
  family.grain = ceil_div(kLeastTokens, page) * page;
  for (std::int64_t& value : family.values) value = std::max(value / page, std::int64_t{1}) * page;
  const auto end = std::unique(family.values.begin(), family.values.end());
  family.values.erase(end, family.values.end());
  return family;
}

void Candidates::add_policy(const std::string& name, const std::string& key,
                            const std::vector<std::string>& others,
                            std::vector<Family>& families) const {
  if (scenario_.scheduler.policy == name) return;
  constexpr std::int64_t kLargest = 8192;
  std::vector<std::string> assignments = {"scheduler.policy=" + name};
  assignments.insert(assignments.end(), others.begin(), others.end());
  families.push_back(falling_tokens(key, kLargest + 1, std::move(assignments)));
  families.back().failing.reset();
}

}  // namespace metronome
