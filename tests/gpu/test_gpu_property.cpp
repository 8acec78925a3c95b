// Random serving on the GPU: models x policies x caches x limits x sampling x failures x aborts.
// With invariance `full` a request's logits, KV and tokens are those it has when it is served alone
// in a slotted cache, to the bit, whatever shared its steps. A violation prints the seed; setting
// METRONOME_PROPERTY_SEED to it replays that one case.
#include <cstdlib>
#include <memory>
#include <set>
#include <stdexcept>

#include "core/engine/policies/registry.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_lab.h"

namespace metronome::testing {
namespace {

constexpr std::int32_t kMaxModelLen = 96;

struct RandomCase {
  Family family = Family::Llama;
  const PolicyInfo* policy = nullptr;
  LabSettings settings;
  GpuOptions options;
  std::vector<LabPrompt> prompts;
  std::set<int> failing_passes;                // counted from 1
  std::map<std::int64_t, RequestId> abort_at;  // by number of steps
};

template <class Range>
const auto& pick(Rng& rng, const Range& range) {
  return range[static_cast<std::size_t>(draw(rng, 0, static_cast<int>(std::size(range)) - 1))];
}

// The tokens of a step, under the key that each engine has for it.
void set_own_budget(SchedulerConfig& config, std::int32_t budget) {
  config.sarathi.chunk_size = budget;
  config.sglang.chunked_prefill_size = budget;
  config.tensorrt_llm.max_num_tokens = budget;
  config.tensorrt_llm.chunk_unit_size = 3;
  config.fastgen.max_ragged_batch_size = budget;
  config.llama_cpp.n_batch = budget;
}

void draw_scheduler(Rng& rng, RandomCase& random) {
  random.policy = &pick(rng, all_policies());
  // The one with block tables of their own for window layers.
  if (random.family == Family::Gemma3 && chance(rng, 0.35)) random.policy = find_policy("vllm");
  LabSettings& settings = random.settings;
  settings.policy = random.policy->name;
  settings.chunk = draw(rng, 1, 40);
  const std::int32_t budget = draw(rng, 10, 90);
  settings.budget = budget;
  settings.adjust = [budget](SchedulerConfig& config) { set_own_budget(config, budget); };
  settings.max_chunks = draw(rng, 0, 2);
  settings.shape =
      random.policy->requires_separate || chance(rng, 0.5) ? StepShape::Separate : StepShape::Mixed;
  settings.async_depth = draw(rng, 1, 2);
  settings.max_num_seqs = draw(rng, 2, 6);
  settings.max_model_len = kMaxModelLen;
  random.options.uses_graphs = chance(rng, 0.6);
  random.options.max_pass_tokens = chance(rng, 0.3) ? 16 : 512;
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

void draw_sampling(Rng& rng, std::int64_t vocab_size, SamplingParams& sampling) {
  if (chance(rng, 0.5)) {
    sampling.temperature = 1.3;
    sampling.top_p = 0.9;
    sampling.top_k = chance(rng, 0.5) ? draw(rng, 2, 60) : 0;
    sampling.seed = rng();
  }
  if (!chance(rng, 0.5)) return;
  for (int i = 0; i < 4; ++i) {
    sampling.stop_token_ids.push_back(static_cast<TokenId>(rng.uniform_int(0, vocab_size - 1)));
  }
}

// Prompts that begin alike, up to being the same, so that prefixes are found again.
std::vector<LabPrompt> draw_prompts(Rng& rng, std::int64_t vocab_size) {
  const std::vector<TokenId> shared = random_ids(rng(), 48, vocab_size);
  std::vector<LabPrompt> prompts;
  for (int i = draw(rng, 2, 7); i > 0; --i) {
    const std::int32_t num_shared = draw(rng, 0, 48);
    std::vector<TokenId> ids(shared.begin(), shared.begin() + num_shared);
    if (num_shared == 0 || chance(rng, 0.75)) {
      const std::vector<TokenId> own = random_ids(rng(), draw(rng, 1, 24), vocab_size);
      ids.insert(ids.end(), own.begin(), own.end());
    }
    prompts.push_back({ids, draw(rng, 1, 20), draw(rng, 0, 12)});
  }
  std::sort(prompts.begin(), prompts.end(),
            [](const LabPrompt& a, const LabPrompt& b) { return a.arrival_step < b.arrival_step; });
  return prompts;
}

RandomCase draw_case(std::uint64_t seed) {
  Rng rng(seed, "gpu property");
  RandomCase random;
  random.family = pick(rng, kFamilies);
  const std::int64_t vocab_size = small_gpu_model(random.family).vocab_size;
  draw_scheduler(rng, random);
  draw_cache(rng, random);
  draw_sampling(rng, vocab_size, random.settings.sampling);
  random.prompts = draw_prompts(rng, vocab_size);
  if (chance(rng, 0.3)) random.failing_passes = {draw(rng, 1, 30), draw(rng, 1, 30)};
  if (chance(rng, 0.3)) {
    const int last = static_cast<int>(random.prompts.size()) - 1;
    random.abort_at[draw(rng, 1, 25)] = static_cast<RequestId>(draw(rng, 0, last));
  }
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
         (random.options.uses_graphs ? ", graphs" : "") + ", passes of " +
         std::to_string(random.options.max_pass_tokens) +
         (random.failing_passes.empty() ? "" : ", failures") +
         (random.abort_at.empty() ? "" : ", abort");
}

// Each request for itself, one after the other. In one run, since a request's seed follows from its
// number.
LabRun serve_alone(GpuLab& lab, const RandomCase& random) {
  std::vector<LabPrompt> prompts = random.prompts;
  for (LabPrompt& prompt : prompts) prompt.arrival_step = 0;
  return lab.run({.policy = "continuous",
                  .is_slotted = true,
                  .max_num_seqs = 1,
                  .max_model_len = kMaxModelLen,
                  .sampling = random.settings.sampling},
                 prompts, {.uses_graphs = false});
}

// What the cases reached, so that the test notices when they stop reaching it.
using Coverage = std::map<std::string, std::int64_t>;

// Runs one case and compares every request with itself alone.
class CaseRun {
 public:
  CaseRun(GpuLab& lab, const RandomCase& random, Coverage& coverage)
      : random_(random), coverage_(coverage), alone_(serve_alone(lab, random)) {
    LabSettings settings = random.settings;
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
    run_ = lab.run(settings, random.prompts, random.options);
  }

  void check() {
    CHECK(run_.num_free_blocks == run_.num_blocks);
    int num_failed = 0;
    for (const Journal::Step& step : run_.journal.steps) num_failed += step.record.failed ? 1 : 0;
    CHECK(num_failed == num_injected_);
    coverage_["failed steps"] += num_failed;
    if (random_.settings.async_depth == 2) coverage_["failed steps, async"] += num_failed;
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
  // Nobody fails without a cause: a failed step, or llama.cpp giving up all its slots.
  void check_end(std::uint32_t i) {
    const EndReason end = run_.ends[i];
    ++coverage_[std::string(to_string(end))];
    coverage_["prefix hits"] += run_.prefix_hits[i] > 0 ? 1 : 0;
    if (has_completed(i)) {
      if (!has_said_more(i)) CHECK(end == alone_.ends[i]);
    } else if (end == EndReason::NeverFits) {
      CHECK((is_policy("vllm_prefill_first") || is_policy("orca")));
    } else if (end == EndReason::StepFailed) {
      CHECK((num_injected_ > 0 || is_policy("llama_cpp")));
    } else {
      CHECK(end == EndReason::Aborted);
      CHECK(random_.abort_at.begin()->second == RequestId{i});
    }
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

  void check_kv(std::uint32_t i) {
    const auto kv = run_.kv.find(RequestId{i});
    const auto expected = alone_.kv.find(RequestId{i});
    if (kv == run_.kv.end() || expected == alone_.kv.end()) return;
    CHECK(has_same_bits(kv->second, expected->second));
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
    std::unique_ptr<GpuLab>& lab = labs_[random.family];
    if (lab == nullptr) lab = std::make_unique<GpuLab>(random.family);
    CaseRun(*lab, random, coverage_).check();
  }

  // About half of what was seen when this was written.
  void check_coverage(std::uint64_t num_cases) {
    struct Least {
      const char* what;
      std::int64_t per_hundred_cases;
    };
    constexpr Least kLeast[] = {
        {"preemptions", 10},
        {"prefix hits", 20},
        {"stop", 15},
        {"step_failed", 30},
        {"aborted", 5},
        {"window runs", 2},
        {"failed steps", 15},
        {"logits", 1'500},
        {"kv", 40},
        {"length", 120},
        {"failed steps, async", 5},
    };
    const auto cases = static_cast<std::int64_t>(num_cases);
    for (const Least& least : kLeast) {
      INFO(least.what << ": " << coverage_[least.what]);
      CHECK(coverage_[least.what] * 100 >= least.per_hundred_cases * cases);
    }
  }

 private:
  std::map<Family, std::unique_ptr<GpuLab>> labs_;
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

// A server under memory pressure for a long time.
struct Marathon {
  std::string policy;
  std::int32_t async_depth = 1;
  bool is_slotted = false;
  bool caches_prefixes = false;
  bool uses_graphs = true;
};

constexpr std::int32_t kNumDistinct = 40;

ModelConfig marathon_model() {
  ModelConfig model = small_gpu_model(Family::Llama);
  model.n_layers = 1;
  model.n_heads = 2;
  model.n_kv_heads = 1;
  return model;
}

void run_marathon(GpuLab& lab, const std::vector<LabPrompt>& distinct, const LabRun& alone,
                  const Marathon& marathon, std::int32_t num_requests) {
  INFO(marathon.policy << ", async_depth " << marathon.async_depth);
  Rng rng(static_cast<std::uint64_t>(num_requests), "marathon " + marathon.policy);
  std::vector<LabPrompt> prompts;
  std::vector<std::uint32_t> kinds;
  for (std::int32_t i = 0; i < num_requests; ++i) {
    kinds.push_back(static_cast<std::uint32_t>(draw(rng, 0, kNumDistinct - 1)));
    prompts.push_back(distinct[kinds.back()]);
    prompts.back().arrival_step = i / 3;
  }
  LabSettings settings;
  settings.policy = marathon.policy;
  settings.chunk = 16;
  settings.budget = 40;
  settings.adjust = [](SchedulerConfig& config) { set_own_budget(config, 40); };
  settings.is_slotted = marathon.is_slotted;
  settings.async_depth = marathon.async_depth;
  settings.caches_prefixes = marathon.caches_prefixes;
  settings.max_num_seqs = 12;
  settings.max_model_len = 48;
  settings.num_blocks = 40;  // of 160 tokens: some five requests
  int num_injected = 0;
  settings.hook = [&](const ForwardBatch&) {
    if (!chance(rng, 0.004)) return;
    ++num_injected;
    throw std::runtime_error("injected");
  };
  std::set<std::uint32_t> aborted;
  settings.between_steps = [&](Engine& engine) {
    if (!chance(rng, 0.01)) return;
    const auto id = static_cast<std::uint32_t>(
        draw(rng, 0, static_cast<std::int32_t>(engine.requests().size()) - 1));
    if (engine.abort(RequestId{id})) aborted.insert(id);
  };
  const LabRun run =
      lab.run(settings, prompts, {.uses_graphs = marathon.uses_graphs, .keeps_logits = false});
  CHECK(run.num_free_blocks == run.num_blocks);
  CHECK(num_injected > 0);
  std::int32_t num_complete = 0;
  std::int32_t num_wrong = 0;
  for (std::uint32_t i = 0; i < prompts.size(); ++i) {
    const std::vector<TokenId>& expected = alone.tokens[kinds[i]];
    const bool is_complete = run.ends[i] == EndReason::Length;
    num_complete += is_complete ? 1 : 0;
    const bool is_right =
        run.tokens[i].size() <= expected.size() &&
        (!is_complete || run.tokens[i].size() == expected.size()) &&
        std::equal(run.tokens[i].begin(), run.tokens[i].end(), expected.begin()) &&
        (is_complete || run.ends[i] == EndReason::StepFailed || aborted.contains(i));
    num_wrong += is_right ? 0 : 1;
  }
  CHECK(num_wrong == 0);
  CHECK(num_complete * 10 >= num_requests * 7);

  CHECK((run.num_preemptions > 0) == !marathon.is_slotted);
}

}  // namespace

TEST_CASE("random serving on the GPU gives every request what it gets alone", "[gpu][property]") {
  check_random_cases(0, 30);
}

TEST_CASE("more random serving on the GPU gives every request what it gets alone",
          "[gpu][property][slow]") {
  check_random_cases(30, 110);
}

TEST_CASE("ten thousand requests under memory pressure: no block lost, no token wrong",
          "[gpu][property][slow]") {
  GpuLab lab(lab_source(marathon_model()));
  Rng rng(1, "marathon prompts");
  std::vector<LabPrompt> distinct;
  const std::vector<TokenId> shared = lab.ids(100, 20);
  for (std::int32_t i = 0; i < kNumDistinct; ++i) {
    std::vector<TokenId> ids(shared.begin(), shared.begin() + draw(rng, 0, 20));
    const std::vector<TokenId> own = lab.ids(rng(), draw(rng, 1, 16));
    ids.insert(ids.end(), own.begin(), own.end());
    distinct.push_back({ids, draw(rng, 1, 10)});
  }
  const LabRun alone = lab.run({.policy = "continuous", .is_slotted = true, .max_num_seqs = 1},
                               distinct, {.keeps_kv = false});
  for (const Marathon& marathon :
       {Marathon{"vllm", 2, false, true}, Marathon{"sglang", 1, false, true},
        Marathon{"chunked", 2, false, false}, Marathon{"token_budget", 1, true, false, false},
        Marathon{"vllm", 1, false, false}}) {
    run_marathon(lab, distinct, alone, marathon, 2000);
  }
}

}  // namespace metronome::testing
