// Random serving on real arithmetic: models x policies x caches x limits x sampling x failures.
// Whatever shared its steps, a request's logits, KV and tokens are those it has when it is served
// alone in a slotted cache, to the bit. A violation prints the seed; setting
// METRONOME_PROPERTY_SEED to it replays that one case.
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>

#include "core/engine/policies/registry.h"
#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"
#include "tests/draws.h"

namespace metronome::testing {
namespace {

constexpr std::int32_t kMaxModelLen = 96;

struct RandomCase {
  Family family = Family::Llama;
  const PolicyInfo* policy = nullptr;
  LabSettings settings;
  std::vector<LabPrompt> prompts;
  std::set<int> failing_passes;  // counted from 1
};

template <class Range>
const auto& pick(Rng& rng, const Range& range) {
  return range[static_cast<std::size_t>(draw(rng, 0, static_cast<int>(std::size(range)) - 1))];
}

// The tokens of a step, under the key that each engine has for it.
void set_own_budget(SchedulerConfig& config, std::int32_t budget, std::int32_t chunk_unit) {
  config.sarathi.chunk_size = budget;
  config.sglang.chunked_prefill_size = budget;
  config.tensorrt_llm.max_num_tokens = budget;
  config.tensorrt_llm.chunk_unit_size = chunk_unit;
  config.fastgen.max_ragged_batch_size = budget;
  config.llama_cpp.n_batch = budget;
}

void draw_scheduler(Rng& rng, RandomCase& random) {
  random.policy = &pick(rng, all_policies());
  // The one with block tables of their own for window layers.
  if (random.family == Family::Gemma3 && chance(rng, 0.2)) random.policy = find_policy("vllm");
  LabSettings& settings = random.settings;
  settings.policy = random.policy->name;
  settings.chunk = draw(rng, 1, 40);
  const std::int32_t budget = draw(rng, 10, 90);
  settings.budget = budget;
  const std::int32_t chunk_unit = draw(rng, 1, 8);
  settings.adjust = [budget, chunk_unit](SchedulerConfig& config) {
    set_own_budget(config, budget, chunk_unit);
  };
  settings.max_chunks = draw(rng, 0, 2);
  settings.shape =
      random.policy->requires_separate || chance(rng, 0.5) ? StepShape::Separate : StepShape::Mixed;
  settings.async_depth = draw(rng, 1, 2);
  settings.max_num_seqs = draw(rng, 2, 6);
  settings.max_model_len = kMaxModelLen;
}

void draw_cache(Rng& rng, RandomCase& random) {
  constexpr std::int32_t kBlockSizes[] = {1, 3, 4, 8, 16, 24};
  constexpr std::int32_t kPoolTokens[] = {90, 110, 400};
  LabSettings& settings = random.settings;
  const PolicyInfo& policy = *random.policy;
  settings.is_slotted = !policy.requires_paged && chance(rng, 0.2);
  settings.block_size = pick(rng, kBlockSizes);
  settings.num_blocks = pick(rng, kPoolTokens) / settings.block_size + 3;  // at least one request's
  settings.caches_prefixes = policy.prefix_caching == PrefixCaching::Always ||
                             (policy.prefix_caching == PrefixCaching::Optional && chance(rng, 0.6));
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

// Prompts that begin alike, up to being the same, so that prefixes are found again.
std::vector<LabPrompt> draw_prompts(Rng& rng, std::int64_t vocab_size) {
  const std::vector<TokenId> shared = random_ids(rng(), 48, vocab_size);
  const int num_prompts = draw(rng, 2, 8);
  std::vector<LabPrompt> prompts;
  for (int i = 0; i < num_prompts; ++i) {
    const std::int32_t num_shared = draw(rng, 0, 48);
    std::vector<TokenId> ids(shared.begin(), shared.begin() + num_shared);
    if (num_shared == 0 || chance(rng, 0.75)) {
      const std::vector<TokenId> own = random_ids(rng(), draw(rng, 1, 24), vocab_size);
      ids.insert(ids.end(), own.begin(), own.end());
    }
    prompts.push_back({ids, draw(rng, 1, 24), draw(rng, 0, 12)});
  }
  std::sort(prompts.begin(), prompts.end(),
            [](const LabPrompt& a, const LabPrompt& b) { return a.arrival_step < b.arrival_step; });
  return prompts;
}

RandomCase draw_case(std::uint64_t seed) {
  Rng rng(seed, "cpu property");
  RandomCase random;
  random.family = pick(rng, kFamilies);
  const std::int64_t vocab_size = small_model(random.family).vocab_size;
  draw_scheduler(rng, random);
  draw_cache(rng, random);
  draw_sampling(rng, static_cast<std::int32_t>(vocab_size), random.settings.sampling);
  random.prompts = draw_prompts(rng, vocab_size);
  if (chance(rng, 0.3)) random.failing_passes = {draw(rng, 1, 30), draw(rng, 1, 30)};
  return random;
}

std::string describe(const RandomCase& random) {
  const LabSettings& settings = random.settings;
  const std::string cache = settings.is_slotted
                                ? "slotted"
                                : std::to_string(settings.num_blocks) + " blocks of " +
                                      std::to_string(settings.block_size);
  return name_of(random.family) + ", " + settings.policy + ", " + cache +
         (settings.shape == StepShape::Separate ? ", separate" : ", mixed") + ", async_depth " +
         std::to_string(settings.async_depth) + (settings.caches_prefixes ? ", prefixes" : "") +
         (settings.sliding_window > 0 ? ", window tables" : "") +
         (random.failing_passes.empty() ? "" : ", failures");
}

// Each request for itself, one after the other. In one run, since a request's seed follows from its
// number.
LabRun serve_alone(Lab& lab, const RandomCase& random) {
  std::vector<LabPrompt> prompts = random.prompts;
  for (LabPrompt& prompt : prompts) prompt.arrival_step = 0;
  return lab.run({.policy = "continuous",
                  .is_slotted = true,
                  .max_num_seqs = 1,
                  .max_model_len = kMaxModelLen,
                  .sampling = random.settings.sampling},
                 prompts);
}

// What the cases reached, so that the test notices when they stop reaching it.
using Coverage = std::map<std::string, std::int64_t>;

// Runs one case and compares every request with itself alone.
class CaseRun {
 public:
  CaseRun(Lab& lab, const RandomCase& random, Coverage& coverage)
      : random_(random), coverage_(coverage), alone_(serve_alone(lab, random)) {
    LabSettings settings = random.settings;
    int num_passes = 0;
    settings.hook = [&](const ForwardBatch&) {
      if (!random_.failing_passes.contains(++num_passes)) return;
      ++num_injected_;
      throw std::runtime_error("injected");
    };
    run_ = lab.run(settings, random.prompts);
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
  // A failed step ends exactly those in its plan that were alive when it came back.
  void check_failures() {
    int num_failed = 0;
    std::set<RequestId> expected;
    for (const Journal::Step& step : run_.journal.steps) {
      if (!step.record.failed) continue;
      ++num_failed;
      for (const ScheduledChunk& chunk : step.chunks) {
        const std::int64_t end_step = run_.journal.end_step.at(chunk.request);
        CHECK(end_step <= step.record.step_index);
        if (end_step == step.record.step_index) expected.insert(chunk.request);
      }
    }
    CHECK(num_failed == num_injected_);
    std::set<RequestId> failed;
    for (std::uint32_t i = 0; i < run_.ends.size(); ++i) {
      if (run_.ends[i] == EndReason::StepFailed) failed.insert(RequestId{i});
    }
    // Who shares blocks that a failed step should have filled fails with it; llama.cpp gives up all
    // its slots when the cache is full.
    const bool may_be_more =
        (num_injected_ > 0 && random_.settings.caches_prefixes) || gives_up_without_cells();
    CHECK(std::includes(failed.begin(), failed.end(), expected.begin(), expected.end()));
    CHECK((may_be_more || failed.size() == expected.size()));
    coverage_["failed steps"] += num_failed;
    if (random_.settings.async_depth == 2) coverage_["failed steps, async"] += num_failed;
  }

  void check_end(std::uint32_t i) {
    const EndReason end = run_.ends[i];
    ++coverage_[std::string(to_string(end))];
    if (end == EndReason::NeverFits) CHECK(refuses_long_prompts());
    if (has_completed(i) && !has_said_more(i)) CHECK(end == alone_.ends[i]);
    CHECK((has_completed(i) || end == EndReason::StepFailed || end == EndReason::NeverFits));
    coverage_["prefix hits"] += run_.prefix_hits[i] > 0 ? 1 : 0;
  }

  // Who completed has them all. Sarathi's kin give a preempted request its whole output again,
  // behind what it said before.
  void check_tokens(std::uint32_t i) {
    const std::vector<TokenId>& tokens = run_.tokens[i];
    const std::vector<TokenId>& expected = alone_.tokens[i];
    if (has_completed(i)) CHECK(tokens.size() >= expected.size());
    if (has_said_more(i)) CHECK((repeats_output() && alone_.ends[i] == EndReason::Length));
    const auto num_common = static_cast<long>(std::min(tokens.size(), expected.size()));
    CHECK(std::equal(tokens.begin(), tokens.begin() + num_common, expected.begin()));
    coverage_["said more"] += has_said_more(i) ? 1 : 0;
  }

  // Those of the tokens it was given; with two steps in flight one more may have been computed.
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

  // Window layers forget what is behind their window; what both hold of the others is the same.
  void check_kv(std::uint32_t i) {
    if (!has_completed(i) || random_.settings.sliding_window > 0) return;
    const std::vector<float>& kv = run_.kv.at(RequestId{i});
    const std::vector<float>& expected = alone_.kv.at(RequestId{i});
    if (kv.size() != expected.size()) return;  // one token more was computed
    CHECK(has_same_bits(kv, expected));
    ++coverage_["kv"];
  }

  bool has_completed(std::uint32_t i) const {
    return run_.ends[i] == EndReason::Length || run_.ends[i] == EndReason::Stop;
  }
  bool has_said_more(std::uint32_t i) const {
    return run_.tokens[i].size() > alone_.tokens[i].size();
  }
  bool repeats_output() const {
    return is_policy("sarathi") || is_policy("vllm_prefill_first") || is_policy("orca") ||
           is_policy("simple_chunking");
  }
  bool refuses_long_prompts() const { return is_policy("vllm_prefill_first") || is_policy("orca"); }
  bool gives_up_without_cells() const { return is_policy("llama_cpp"); }
  bool is_policy(std::string_view name) const { return random_.policy->name == name; }

  const RandomCase& random_;
  Coverage& coverage_;
  const LabRun alone_;
  LabRun run_;
  int num_injected_ = 0;
};

class Labs {
 public:
  void check(std::uint64_t seed) {
    const RandomCase random = draw_case(seed);
    INFO("METRONOME_PROPERTY_SEED=" << seed << ": " << describe(random));
    std::unique_ptr<Lab>& lab = labs_[random.family];
    if (lab == nullptr) lab = std::make_unique<Lab>(random.family);
    CaseRun(*lab, random, coverage_).check();
  }

  // About half of what was seen when this was written.
  void check_coverage(std::uint64_t num_cases) {
    struct Least {
      const char* what;
      std::int64_t per_hundred_cases;
    };
    constexpr Least kLeast[] = {
        {"preemptions", 20}, {"said more", 3},     {"prefix hits", 23}, {"stop", 25},
        {"step_failed", 40}, {"failed steps", 20}, {"window runs", 2},  {"logits", 2'400},
        {"kv", 180},         {"length", 180},      {"never_fits", 3},   {"failed steps, async", 10},
    };
    const auto cases = static_cast<std::int64_t>(num_cases);
    for (const Least& least : kLeast) {
      INFO(least.what << ": " << coverage_[least.what]);
      CHECK(coverage_[least.what] * 100 >= least.per_hundred_cases * cases);
    }
    for (const PolicyInfo& policy : all_policies()) {
      const std::string name(policy.name);
      INFO(name << ": " << coverage_[name]);
      CHECK(coverage_[name] * 100 >= 3 * cases);
    }
  }

 private:
  std::map<Family, std::unique_ptr<Lab>> labs_;
  Coverage coverage_;
};

void check_random_cases(std::uint64_t begin, std::uint64_t end) {
  Labs labs;
  if (const char* replay = std::getenv("METRONOME_PROPERTY_SEED")) {
    labs.check(std::strtoull(replay, nullptr, 10));
    return;
  }
  for (std::uint64_t seed = begin; seed < end; ++seed) labs.check(seed);
  labs.check_coverage(end - begin);
}

}  // namespace

TEST_CASE("random serving gives every request what it gets alone", "[cpu][property]") {
  check_random_cases(0, 300);
}

TEST_CASE("much more random serving gives every request what it gets alone",
          "[cpu][property][slow]") {
  check_random_cases(300, 6'300);
}

TEST_CASE("prompts of 32 to 512 tokens complete together in order", "[cpu][property]") {
  for (const Family family : kFamilies) {
    INFO(name_of(family));
    ModelConfig model = small_model(family);
    model.max_position_embeddings = 1024;
    Lab lab(model, 1, 3);
    std::vector<LabPrompt> prompts;
    for (std::int32_t i = 0; i < 4; ++i) {
      const std::vector<TokenId> ids = lab.ids(60 + static_cast<std::uint64_t>(i), 32 << i);
      prompts.push_back({ids, 16 << i});
    }
    const LabSettings settings = {
        .policy = "chunked", .chunk = 64, .block_size = 16, .max_model_len = 1024};
    const LabRun together = lab.run(settings, prompts);
    std::vector<RequestId> ended;
    for (const Event& event : together.journal.events) {
      if (event.kind == EventKind::Ended) ended.push_back(event.request);
    }
    CHECK(ended == std::vector<RequestId>{RequestId{0}, RequestId{1}, RequestId{2}, RequestId{3}});
    for (std::uint32_t i = 0; i < 4; ++i) {
      CHECK(together.ends[i] == EndReason::Length);
      CHECK(together.tokens[i].size() == std::size_t{16} << i);
      CHECK(is_same(together, i, lab.run(settings, {prompts[i]}), 0));
    }
  }
}

TEST_CASE("the model's end-of-text token ends a request in its prefill", "[cpu][property]") {
  for (const Family family : kFamilies) {
    INFO(name_of(family));
    ModelConfig model = small_model(family);
    Lab unaware(model, 1, 3);
    const std::vector<LabPrompt> prompts = {
        {unaware.ids(74, 9), 10}, {unaware.ids(75, 14), 10}, {unaware.ids(76, 23), 10}};
    const LabRun expected = unaware.run({}, prompts);
    const TokenId first = expected.tokens[1][0];
    const TokenId other_end{0};
    for (const std::size_t other : {0u, 2u}) {
      const std::vector<TokenId>& tokens = expected.tokens[other];
      const TokenId ends[] = {first, other_end};
      REQUIRE(std::find_first_of(tokens.begin(), tokens.end(), std::begin(ends), std::end(ends)) ==
              tokens.end());
    }
    model.eos_token_ids = {value(other_end), value(first)};
    Lab lab(model, 1, 3);
    for (const bool is_slotted : {false, true}) {
      INFO((is_slotted ? "slotted" : "paged"));
      LabSettings settings = {.is_slotted = is_slotted};
      CHECK(lab.run(settings, prompts).tokens == expected.tokens);  // ignore_eos
      settings.sampling.ignore_eos = false;
      const LabRun alone = lab.run(settings, {prompts[1]});
      CHECK(alone.ends[0] == EndReason::Stop);
      CHECK(alone.tokens[0] == std::vector<TokenId>{first});
      CHECK(alone.journal.steps.size() == 1);
      const LabRun together = lab.run(settings, prompts);
      CHECK(together.ends ==
            std::vector<EndReason>{EndReason::Length, EndReason::Stop, EndReason::Length});
      CHECK(together.tokens[1] == std::vector<TokenId>{first});
      CHECK(together.journal.end_step.at(RequestId{1}) == 0);
      CHECK(together.num_free_blocks == together.num_blocks);
      for (const std::uint32_t other : {0u, 2u}) CHECK(is_same(together, expected, other));
    }
  }
}

TEST_CASE("requests with the same prompt sample with seeds of their own", "[cpu][property]") {
  for_all_caches("continuous", [](Lab& lab, LabSettings settings) {
    const std::vector<LabPrompt> prompts(2, {lab.ids(73, 20), 25});
    const LabRun greedy = lab.run(settings, prompts);
    CHECK(greedy.tokens[0] == greedy.tokens[1]);
    settings.sampling.temperature = 1.5;
    const LabRun sampled = lab.run(settings, prompts);
    CHECK(sampled.tokens[0] != sampled.tokens[1]);
    CHECK(has_same_bits(sampled.logits.at({RequestId{0}, 20}),
                        sampled.logits.at({RequestId{1}, 20})));
    CHECK(lab.run(settings, prompts).tokens == sampled.tokens);
  });
}

}  // namespace metronome::testing
