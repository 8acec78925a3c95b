// SPDX-License-Identifier: Apache-2.0
#include "tests/random_serving.h"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "engines/fastgen/settings.h"
#include "engines/llama_cpp/settings.h"
#include "engines/sarathi/settings.h"
#include "engines/sglang/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "engines/vllm/settings.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing {
namespace {

constexpr std::int32_t kMaxModelLen = 96;

template <class Range>
const auto& pick(Rng& rng, const Range& range) {
  return range[static_cast<std::size_t>(draw(rng, 0, static_cast<int>(std::size(range)) - 1))];
}

void draw_scheduler(Rng& rng, RandomServing& random) {
  random.policy = &pick(rng, all_policies());
  // The policy with block tables of its own for window layers.
  if (random.family == Family::Gemma3 && chance(rng, 0.5)) random.policy = find_policy("vllm");
  LabSettings& settings = random.settings;
  settings.policy = random.policy->name;
  settings.chunk = draw(rng, 1, 40);
  const std::int32_t budget = draw(rng, 10, 90);
  settings.budget = budget;
  const std::int32_t chunk_unit = draw(rng, 1, 8);
  const int version = draw(rng, 0, static_cast<int>(std::size(kVllmVersions)) - 1);
  settings.adjust = [budget, chunk_unit, version](SchedulerConfig& config) {
    set_own_budget(config, budget, chunk_unit);
    config.edit<VllmConfig>().version = version;
  };
  settings.max_chunks = draw(rng, 0, 2);
  settings.shape =
      random.policy->requires_separate || chance(rng, 0.5) ? StepShape::Separate : StepShape::Mixed;
  settings.async_depth = draw(rng, 1, 2);
  settings.max_num_seqs = draw(rng, 2, 6);
  settings.max_model_len = kMaxModelLen;
}

void draw_cache(Rng& rng, RandomServing& random) {
  constexpr std::int32_t kBlockSizes[] = {1, 3, 4, 8, 16, 24};
  constexpr std::int32_t kPoolTokens[] = {96, 110, 400};
  LabSettings& settings = random.settings;
  const PolicyInfo& policy = *random.policy;
  settings.is_slotted = !policy.requires_paged && chance(rng, 0.2);
  settings.block_size = pick(rng, kBlockSizes);
  settings.num_blocks = pick(rng, kPoolTokens) / settings.block_size + 3;  // at least one request's
  settings.caches_prefixes = policy.prefix_caching == PrefixCaching::Always ||
                             (policy.prefix_caching != PrefixCaching::Never && chance(rng, 0.6));
  const bool has_window_layers = random.family == Family::Gemma3;
  if (has_window_layers && policy.allows_sliding_window && !settings.is_slotted &&
      chance(rng, 0.7)) {
    settings.sliding_window = static_cast<std::int32_t>(kGemmaWindow);
    settings.num_blocks *= 2;
  }
}

void draw_sampling(Rng& rng, std::int32_t vocab_size, SamplingParams& sampling) {
  if (chance(rng, 0.5)) {
    sampling.temperature = 1.3;
    sampling.top_p = 0.9;
    sampling.top_k = chance(rng, 0.5) ? draw(rng, 2, 60) : 0;
    sampling.seed = rng();
  }
  const int num_stop_tokens = chance(rng, 0.5) ? 4 : 0;
  for (int i = 0; i < num_stop_tokens; ++i) {
    sampling.stop_token_ids.push_back(TokenId{draw(rng, 0, vocab_size - 1)});
  }
}

// Prompts that begin alike, up to equal ones: the engine finds prefixes again.
std::vector<LabPrompt> draw_prompts(Rng& rng, std::int64_t vocab_size) {
  const std::vector<TokenId> shared = random_ids(rng(), 48, vocab_size);
  const int num_prompts = draw(rng, 2, 8);
  std::vector<LabPrompt> prompts;
  for (int i = 0; i < num_prompts; ++i) {
    const std::int32_t num_shared = draw(rng, 0, 48);
    std::vector<TokenId> ids(shared.begin(), shared.begin() + num_shared);
    if (num_shared == 0 || chance(rng, 0.75)) {
      const std::int32_t num_own = draw(rng, 1, 24);
      const std::vector<TokenId> own = random_ids(rng(), num_own, vocab_size);
      ids.insert(ids.end(), own.begin(), own.end());
    }
    prompts.push_back({ids, draw(rng, 1, 24), draw(rng, 0, 12)});
  }
  std::sort(prompts.begin(), prompts.end(),
            [](const LabPrompt& a, const LabPrompt& b) { return a.arrival_step < b.arrival_step; });
  return prompts;
}

// One case: a run of all requests, and each of them alone.
class ServingCheck {
 public:
  ServingCheck(const RandomServing& random, const ServingLimits& limits, Coverage& coverage)
      : random_(random), limits_(limits), coverage_(coverage) {}

  void run(const ServeFn& together, const ServeFn& alone) {
    // In one run, one after the other: the seed of a request follows from its number.
    std::vector<LabPrompt> prompts = random_.prompts;
    for (LabPrompt& prompt : prompts) prompt.arrival_step = 0;
    alone_ = alone({.policy = "continuous",
                    .is_slotted = true,
                    .max_num_seqs = 1,
                    .max_model_len = kMaxModelLen,
                    .sampling = random_.settings.sampling},
                   prompts);
    LabSettings settings = random_.settings;
    int num_passes = 0;
    settings.hook = [&](const ForwardBatch&) {
      if (!random_.failing_passes.contains(++num_passes)) return;
      ++num_injected_;
      throw std::runtime_error("injected");
    };
    settings.between_steps = [&](Engine& engine) {
      for (const auto& [step, id] : random_.abort_at) {
        if (engine.num_steps() >= step && index(id) < engine.requests().size()) engine.abort(id);
      }
    };
    run_ = together(settings, random_.prompts);
  }

  void check() {
    CHECK(run_.num_free_blocks == run_.num_blocks);
    check_failures();
    for (std::uint32_t i = 0; i < random_.prompts.size(); ++i) {
      INFO("request " << i << ", " << run_.tokens[i].size() << " tokens, "
                      << to_string(run_.ends[i]) << "; alone " << alone_.tokens[i].size() << ", "
                      << to_string(alone_.ends[i]));
      check_end(i);
      check_tokens(i);
      check_logits(i);
      check_kv(i);
    }
    coverage_["preemptions"] += run_.num_preemptions;
    coverage_["window runs"] += random_.settings.sliding_window > 0 ? 1 : 0;
    ++coverage_[random_.settings.policy];
  }

 private:
  // A failed step ends exactly the requests of its plan that were alive when it came back.
  void check_failures() {
    int num_failed = 0;
    std::set<RequestId> expected;
    for (const Journal::Step& step : run_.journal.steps) {
      if (!step.record.failed) continue;
      ++num_failed;
      for (const ScheduledChunk& chunk : step.chunks) {
        const std::int64_t end_step = run_.journal.end_step.at(chunk.request);
        CHECK(end_step <= step.record.step_index);
        const bool is_aborted = run_.ends[index(chunk.request)] == EndReason::Aborted;
        if (end_step == step.record.step_index && !is_aborted) {
          expected.insert(chunk.request);
        }
      }
    }
    CHECK(num_failed == num_injected_);
    std::set<RequestId> failed;
    for (std::uint32_t i = 0; i < run_.ends.size(); ++i) {
      if (run_.ends[i] == EndReason::StepFailed) failed.insert(RequestId{i});
    }
    // A request that shares blocks or images of a failed step fails with it; llama.cpp gives up all
    // its slots when the cache is full.
    const bool has_images =
        std::any_of(random_.prompts.begin(), random_.prompts.end(),
                    [](const LabPrompt& prompt) { return !prompt.images.empty(); });
    const bool may_be_more =
        (num_injected_ > 0 && (random_.settings.caches_prefixes || has_images)) ||
        is_policy("llama_cpp");
    CHECK(std::includes(failed.begin(), failed.end(), expected.begin(), expected.end()));
    CHECK((may_be_more || failed.size() == expected.size()));
    coverage_["failed steps"] += num_failed;
    if (random_.settings.async_depth == 2) coverage_["failed steps, async"] += num_failed;
  }

  // No request fails without a cause.
  void check_end(std::uint32_t i) {
    const EndReason end = run_.ends[i];
    ++coverage_[std::string(to_string(end))];
    coverage_["prefix hits"] += run_.prefix_hits[i] > 0 ? 1 : 0;
    if (has_completed(i)) {
      if (!has_said_more(i) && !is_cut(i)) CHECK(end == alone_.ends[i]);
    } else if (end == EndReason::NeverFits) {
      CHECK((is_policy("vllm_prefill_first") || is_policy("orca")));
    } else if (end == EndReason::StepFailed) {
      CHECK((num_injected_ > 0 || is_policy("llama_cpp")));
    } else {
      CHECK(end == EndReason::Aborted);
      CHECK(was_to_be_aborted(RequestId{i}));
    }
  }

  // A completed request has all its tokens. The policies of Sarathi-Serve give a preempted request
  // its whole output again, behind what it said before.
  void check_tokens(std::uint32_t i) {
    const std::vector<TokenId>& tokens = run_.tokens[i];
    const std::vector<TokenId>& expected = alone_.tokens[i];
    if (has_completed(i) && !is_cut(i)) CHECK(tokens.size() >= expected.size());
    if (has_said_more(i)) CHECK((repeats_output() && alone_.ends[i] == EndReason::Length));
    const auto num_common = static_cast<long>(std::min(tokens.size(), expected.size()));
    CHECK(std::equal(tokens.begin(), tokens.begin() + num_common, expected.begin()));
    coverage_["said more"] += has_said_more(i) ? 1 : 0;
  }

  // A request has the logits of the tokens it was given; with two steps in flight one more may have
  // been computed.
  void check_logits(std::uint32_t i) {
    const auto num_positions =
        static_cast<std::int32_t>(random_.prompts[i].ids.size() + run_.tokens[i].size());
    for (auto it = alone_.logits.lower_bound({RequestId{i}, 0});
         it != alone_.logits.end() && it->first.first == RequestId{i} &&
         it->first.second < num_positions;
         ++it) {
      INFO("position " << it->first.second);
      CHECK(has_same_bits(run_.logits.at(it->first), it->second));
      ++coverage_["logits"];
    }
  }

  void check_kv(std::uint32_t i) {
    if (!has_completed(i) || is_cut(i)) return;
    if (random_.settings.sliding_window > 0 && !limits_.has_window_kv) return;
    const auto kv = run_.kv.find(RequestId{i});
    const auto expected = alone_.kv.find(RequestId{i});
    if (kv == run_.kv.end() || expected == alone_.kv.end()) {
      CHECK(!limits_.keeps_all_kv);
      return;
    }
    if (kv->second.size() != expected->second.size()) {
      // More was computed: with a second step in flight, or by a decode in the step that completes
      // the prompt.
      const bool may_be_ahead = random_.settings.async_depth == 2 || is_policy("single_prefill");
      CHECK((may_be_ahead || has_said_more(i)));
      return;
    }
    CHECK(has_same_bits(kv->second, expected->second));
    ++coverage_["kv"];
  }

  bool was_to_be_aborted(RequestId id) const {
    return std::any_of(random_.abort_at.begin(), random_.abort_at.end(),
                       [&](const auto& entry) { return entry.second == id; });
  }
  bool has_completed(std::uint32_t i) const {
    return run_.ends[i] == EndReason::Length || run_.ends[i] == EndReason::Stop;
  }
  // SGLang gives a request fewer tokens than it asks for where its KV cache or its context ends
  // (python/sglang/srt/managers: scheduler.py, max_req_len; schedule_policy.py).
  bool is_cut(std::uint32_t i) const {
    if (!is_policy("sglang")) return false;
    const std::int64_t page = random_.settings.block_size;
    const std::int64_t capacity = random_.settings.num_blocks * page;
    const auto prompt = static_cast<std::int64_t>(random_.prompts[i].ids.size());
    const std::int64_t longest = std::min<std::int64_t>(random_.settings.max_model_len, capacity);
    const std::int64_t limit =
        std::min(longest - prompt - 2, capacity - ceil_div(prompt, page) * page - page - 1);
    return limit < random_.prompts[i].max_output &&
           static_cast<std::int64_t>(run_.tokens[i].size()) == limit;
  }
  bool has_said_more(std::uint32_t i) const {
    return run_.tokens[i].size() > alone_.tokens[i].size();
  }
  bool repeats_output() const {
    return is_policy("sarathi") || is_policy("vllm_prefill_first") || is_policy("orca") ||
           is_policy("simple_chunking");
  }
  bool is_policy(std::string_view name) const { return random_.policy->name == name; }

  const RandomServing& random_;
  const ServingLimits limits_;
  Coverage& coverage_;
  LabRun alone_;
  LabRun run_;
  int num_injected_ = 0;
};

}  // namespace

void set_own_budget(SchedulerConfig& config, std::int32_t budget, std::int32_t chunk_unit) {
  config.edit<SarathiConfig>().chunk_size = budget;
  config.edit<SglangConfig>().chunked_prefill_size = budget;
  config.edit<TensorRtLlmConfig>().max_num_tokens = budget;
  config.edit<TensorRtLlmConfig>().chunk_unit_size = chunk_unit;
  config.edit<FastGenConfig>().max_ragged_batch_size = budget;
  config.edit<LlamaCppConfig>().n_batch = budget;
}

RandomServing draw_serving(Rng& rng, Family family, std::int64_t vocab_size) {
  RandomServing random;
  random.family = family;
  draw_scheduler(rng, random);
  draw_cache(rng, random);
  // SGLang takes whole pages only; a chunk that is smaller than a page never fits.
  LabSettings& settings = random.settings;
  settings.adjust = [drawn = settings.adjust, page = settings.block_size](SchedulerConfig& config) {
    drawn(config);
    SglangConfig& sglang = config.edit<SglangConfig>();
    sglang.chunked_prefill_size = ceil_div(sglang.chunked_prefill_size, page) * page;
  };
  draw_sampling(rng, static_cast<std::int32_t>(vocab_size), random.settings.sampling);
  random.prompts = draw_prompts(rng, vocab_size);
  if (chance(rng, 0.3)) random.failing_passes = {draw(rng, 1, 30), draw(rng, 1, 30)};
  if (chance(rng, 0.3)) {
    const int last = static_cast<int>(random.prompts.size()) - 1;
    random.abort_at[draw(rng, 1, 25)] = static_cast<RequestId>(draw(rng, 0, last));
  }
  return random;
}

std::string describe(const RandomServing& random) {
  const LabSettings& settings = random.settings;
  const std::string cache = settings.is_slotted
                                ? "slotted"
                                : std::to_string(settings.num_blocks) + " blocks of " +
                                      std::to_string(settings.block_size);
  return name_of(random.family) + ", " + settings.policy + ", " + cache +
         (settings.shape == StepShape::Separate ? ", separate" : ", mixed") + ", async_depth " +
         std::to_string(settings.async_depth) + (settings.caches_prefixes ? ", prefixes" : "") +
         (settings.sliding_window > 0 ? ", window tables" : "") +
         (random.failing_passes.empty() ? "" : ", failures") +
         (random.abort_at.empty() ? "" : ", abort");
}

void check_serving(const RandomServing& random, const ServingLimits& limits,
                   const ServeFn& together, const ServeFn& alone, Coverage& coverage) {
  ServingCheck check(random, limits, coverage);
  check.run(together, alone);
  check.check();
}

void check_random_servings(std::uint64_t begin, std::uint64_t end, const Coverage& least,
                           const std::function<void(std::uint64_t seed, Coverage&)>& check) {
  Coverage coverage;
  if (const char* replay = std::getenv("METRONOME_PROPERTY_SEED")) {
    check(std::strtoull(replay, nullptr, 10), coverage);
    return;
  }
  for (std::uint64_t seed = begin; seed < end; ++seed) check(seed, coverage);
  const auto num_cases = static_cast<std::int64_t>(end - begin);
  for (const auto& [what, per_hundred_cases] : least) {
    INFO(what << ": " << coverage[what]);
    CHECK(coverage[what] * 100 >= per_hundred_cases * num_cases);
  }
}

}  // namespace metronome::testing
