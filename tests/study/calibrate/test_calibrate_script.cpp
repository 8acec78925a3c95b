// SPDX-License-Identifier: Apache-2.0
// The scripts that a calibration measures: for random sizes, held to the limits of an engine and to
// the coverage that they promise.
#include <algorithm>
#include <map>
#include <set>

#include "core/base/types.h"
#include "study/calibrate/calibrate_script.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

StepSizes draw_sizes(Rng& rng) {
  StepSizes sizes;
  sizes.max_tokens = draw(rng, kMinScriptTokens, chance(rng, 0.5) ? 100 : 4000);
  sizes.max_seqs = draw(rng, 1, chance(rng, 0.5) ? 8 : 200);
  sizes.max_context = draw(rng, kMinScriptContext, chance(rng, 0.5) ? 100 : 9000);
  sizes.block_size = 1 << draw(rng, 0, 6);
  const std::int64_t least = min_script_kv(sizes);
  sizes.kv_tokens = least + (chance(rng, 0.3) ? 0 : rng.uniform_int(0, 4 * least));
  return sizes;
}

// Walks a script as an engine would and checks each step. Returns the most KV that was held.
class Walk {
 public:
  Walk(const StepScript& script, const StepSizes& sizes) : script_(script), sizes_(sizes) {
    for (const ScriptedStep& step : script.steps) {
      for (const ScriptedChunk& chunk : step) ++num_chunks_left_[chunk.request];
    }
    cached_.resize(script.requests.size());
    decodes_.resize(script.requests.size());
  }

  std::int64_t most_kv() {
    std::size_t round = 0;
    for (std::size_t s = 0; s < script_.steps.size(); ++s) {
      if (s == script_.round_begins[round + 1]) {
        ++round;
        held_.clear();  // whoever is left would be another round's
        REQUIRE(num_open_ == 0);
      }
      check_step(script_.steps[s], s);
    }
    CHECK(num_open_ == 0);
    CHECK(next_request_ == static_cast<std::int32_t>(script_.requests.size()));
    return most_kv_;
  }

 private:
  void check_step(const ScriptedStep& step, std::size_t s) {
    REQUIRE_FALSE(step.empty());
    CHECK(static_cast<std::int32_t>(step.size()) <= sizes_.max_seqs);
    std::int32_t num_tokens = 0;
    bool has_prefill = false;
    std::set<std::int32_t> seen;
    for (const ScriptedChunk& chunk : step) {
      CHECK(seen.insert(chunk.request).second);
      CHECK_FALSE((chunk.is_decode() && has_prefill));
      has_prefill = has_prefill || !chunk.is_decode();
      num_tokens += chunk.is_decode() ? 1 : chunk.num_tokens;
      compute(chunk, s);
    }
    CHECK(num_tokens <= sizes_.max_tokens);
    std::int64_t kv = 0;
    for (const auto& [request, until] : held_) kv += until >= s ? blocks_of(request) : 0;
    most_kv_ = std::max(most_kv_, kv);
  }

  void compute(const ScriptedChunk& chunk, std::size_t s) {
    const auto i = static_cast<std::size_t>(chunk.request);
    const RequestSpec& spec = script_.requests[i];
    if (held_.count(chunk.request) == 0) {
      REQUIRE(chunk.request == next_request_++);  // in order, never again
      held_[chunk.request] = SIZE_MAX;
      ++num_open_;
    }
    CHECK(spec.num_prompt_tokens + spec.max_output_tokens <= sizes_.max_context);
    if (chunk.is_decode()) {
      CHECK(cached_[i] == spec.num_prompt_tokens);
      ++decodes_[i];
    } else {
      CHECK(decodes_[i] == 0);
      cached_[i] += chunk.num_tokens;
      CHECK(cached_[i] <= spec.num_prompt_tokens);
    }
    if (--num_chunks_left_[chunk.request] > 0) return;
    CHECK(cached_[i] == spec.num_prompt_tokens);
    CHECK(decodes_[i] + 1 == spec.max_output_tokens);
    held_[chunk.request] = s + 1;  // its blocks are free when the step is collected
    --num_open_;
  }

  std::int64_t blocks_of(std::int32_t request) const {
    const RequestSpec& spec = script_.requests[static_cast<std::size_t>(request)];
    const std::int64_t tokens = spec.num_prompt_tokens + spec.max_output_tokens - 1;
    return ceil_div(tokens, sizes_.block_size) * sizes_.block_size;
  }

  const StepScript& script_;
  const StepSizes& sizes_;
  std::map<std::int32_t, std::int32_t> num_chunks_left_;
  std::map<std::int32_t, std::size_t> held_;  // request: its last step in flight
  std::vector<std::int32_t> cached_;
  std::vector<std::int32_t> decodes_;
  std::int32_t next_request_ = 0;
  std::int32_t num_open_ = 0;
  std::int64_t most_kv_ = 0;
};

TEST_CASE("scripts of random sizes are what an engine of these sizes can run", "[calibrate]") {
  const auto seed = GENERATE(range(1U, 60U));
  INFO("seed " << seed);
  Rng rng(seed, "script");
  const StepSizes sizes = draw_sizes(rng);
  INFO("tokens " << sizes.max_tokens << ", seqs " << sizes.max_seqs << ", context "
                 << sizes.max_context << ", block " << sizes.block_size << ", KV "
                 << sizes.kv_tokens);
  const StepScript script = make_step_script(sizes, 2, seed);
  REQUIRE(script.num_rounds() == 2);
  CHECK(Walk(script, sizes).most_kv() <= sizes.kv_tokens);
  const StepScript gaps = make_gap_script(sizes);
  REQUIRE(gaps.num_rounds() == 1);
  CHECK(Walk(gaps, sizes).most_kv() <= sizes.kv_tokens);
}

constexpr StepSizes kGpu = {.max_tokens = 8192,
                            .max_seqs = 256,
                            .max_context = 16640,
                            .block_size = 16,
                            .kv_tokens = 400'000};

struct Composition {
  std::int32_t num_decodes = 0;
  std::int32_t num_chunks = 0;
  std::int32_t num_tokens = 0;

  auto operator<=>(const Composition&) const = default;
};

// Of the steps of a round, those that fill the cache with contexts left out: these come first, and
// decodes begin behind them.
std::multiset<Composition> cells_of(const StepScript& script, std::size_t round) {
  const auto at = [&](std::size_t s) {
    Composition result;
    for (const ScriptedChunk& chunk : script.steps[s]) {
      result.num_decodes += chunk.is_decode() ? 1 : 0;
      result.num_chunks += chunk.is_decode() ? 0 : 1;
      result.num_tokens += chunk.is_decode() ? 1 : chunk.num_tokens;
    }
    return result;
  };
  std::multiset<Composition> cells;
  const std::size_t end = script.round_begins[round + 1];
  for (std::size_t s = end; s > script.round_begins[round]; --s) {
    const Composition step = at(s - 1);
    if (step.num_decodes > 0 || step.num_chunks == 1) cells.insert(step);
  }
  return cells;
}

TEST_CASE("every round has steps of every kind, in an order of its own", "[calibrate]") {
  const StepScript script = make_step_script(kGpu, 2, 1);
  std::vector<Composition> order[2];
  for (const std::size_t round : {0U, 1U}) {
    const std::multiset<Composition> cells = cells_of(script, round);
    const auto count = [&](Composition what) { return cells.count(what); };
    for (const std::int32_t batch : {1, 8, 9, 32, 33, 64, 65, 128, 256}) {
      INFO("batch " << batch);
      CHECK(count({batch, 0, batch}) == 3);
    }
    for (const std::int32_t chunk : {1, 64, 65, 128, 129, 512, 513, 2048, 2049, 8192}) {
      INFO("chunk " << chunk);
      CHECK(count({0, 1, chunk}) >= 2);
    }
    // On a tile, and beyond it.
    for (const std::int32_t batch : {1, 8, 32, 128}) {
      INFO("mixed, batch " << batch);
      CHECK(count({batch, 1, 512}) == 1);
      CHECK(count({batch, 1, 520}) == 1);
    }
    CHECK(count({4, 4, 1024}) == 1);
    for (std::size_t s = script.round_begins[round]; s < script.round_begins[round + 1]; ++s) {
      const ScriptedStep& step = script.steps[s];
      if (!step.front().is_decode()) continue;
      order[round].push_back({static_cast<std::int32_t>(step.size()), 0, 0});
    }
  }
  CHECK(order[0].size() == order[1].size());
  CHECK(order[0] != order[1]);
  const StepScript same = make_step_script(kGpu, 2, 1);
  const StepScript other = make_step_script(kGpu, 2, 2);
  const auto sizes_of = [](const StepScript& steps) {
    std::vector<std::size_t> sizes;
    for (const ScriptedStep& step : steps.steps) sizes.push_back(step.size());
    return sizes;
  };
  CHECK(sizes_of(script) == sizes_of(same));
  CHECK(sizes_of(script) != sizes_of(other));
}

TEST_CASE("contexts reach from a few tokens to nearly the longest", "[calibrate]") {
  const StepScript script = make_step_script(kGpu, 1, 3);
  std::vector<std::int32_t> prompts;
  for (const RequestSpec& request : script.requests) {
    if (request.max_output_tokens > 1) prompts.push_back(request.num_prompt_tokens);
  }
  CHECK(prompts.size() > 200);
  CHECK(*std::min_element(prompts.begin(), prompts.end()) < 16);
  CHECK(*std::max_element(prompts.begin(), prompts.end()) > 16000);
  // Batches of the longest contexts and of the shortest differ by more than their size.
  std::map<std::int32_t, std::set<std::int64_t>> contexts;
  std::vector<std::int64_t> cached(script.requests.size());
  std::int64_t longest_prefix = 0;
  for (const ScriptedStep& step : script.steps) {
    std::int64_t sum = 0;
    for (const ScriptedChunk& chunk : step) {
      std::int64_t& own = cached[static_cast<std::size_t>(chunk.request)];
      if (!chunk.is_decode()) longest_prefix = std::max(longest_prefix, own);
      own += chunk.is_decode() ? 1 : chunk.num_tokens;
      sum += own;
    }
    if (step.front().is_decode() && step.back().is_decode()) {
      contexts[static_cast<std::int32_t>(step.size())].insert(sum);
    }
  }
  for (const std::int32_t batch : {1, 8, 64}) {
    INFO("batch " << batch);
    CHECK(*contexts[batch].rbegin() > 20 * *contexts[batch].begin());
  }
  CHECK(longest_prefix > 8192);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
