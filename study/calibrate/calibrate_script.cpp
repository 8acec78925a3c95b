// SPDX-License-Identifier: Apache-2.0
#include "study/calibrate/calibrate_script.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/base/types.h"

namespace metronome {
namespace {

// Sizes of captured graphs and their neighbours on both sides.
constexpr std::int32_t kBatches[] = {1,  2,  3,  4,  5,  8,   9,   12,  16,  17,  24,  32, 33,
                                     48, 64, 65, 96, 97, 128, 129, 192, 193, 256, 384, 512};
constexpr std::int32_t kPromptChunks[] = {
    1,   2,   4,   8,    16,   17,   32,   33,   48,   64,   65,   96,   128,  129,  160,  192,
    193, 224, 256, 257,  320,  321,  384,  385,  448,  512,  513,  520,  576,  640,  641,  768,
    769, 896, 897, 1024, 1025, 1152, 1280, 1281, 1536, 1537, 1792, 2048, 2049, 3072, 4096, 8192};
constexpr std::int32_t kMixedTotals[] = {16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192};
constexpr std::int32_t kMixedBatches[] = {1, 4, 8, 16, 32, 64, 128};
constexpr std::int32_t kPartners[] = {2, 4, 8, 16};  // chunks in a step
constexpr std::int32_t kBeyondTile = 8;
constexpr std::int32_t kMaxOpen = 4;  // begun prompts that later chunks may continue
constexpr std::int32_t kShortestPrompt = 4;

enum class Contexts { Shortest, Longest, Any };

struct Cell {
  std::int32_t num_decodes = 0;
  Contexts contexts = Contexts::Any;
  std::int32_t prefill_tokens = 0;  // sum over all chunks
  std::int32_t num_chunks = 0;
  bool is_behind = false;  // the chunk continues a prompt instead of beginning one
};

// The values below `end`, and `end` - 1.
template <std::size_t kSize>
std::vector<std::int32_t> values_below(const std::int32_t (&values)[kSize], std::int32_t end) {
  std::vector<std::int32_t> below;
  for (const std::int32_t value : values) {
    if (value < end) below.push_back(value);
  }
  if (end > 1 && (below.empty() || below.back() != end - 1)) below.push_back(end - 1);
  return below;
}

void add_mixed_cells(const StepSizes& sizes, std::int32_t total, std::vector<Cell>& cells) {
  const std::int32_t longest = sizes.max_context - 1;
  for (const std::int32_t batch : values_below(kMixedBatches, sizes.max_seqs)) {
    if (batch >= total) break;
    const std::int32_t chunk = std::min(total - batch, longest);
    const std::int32_t beyond = std::min(chunk + kBeyondTile, longest);
    cells.push_back({.num_decodes = batch, .prefill_tokens = chunk, .num_chunks = 1});
    if (batch + beyond > sizes.max_tokens) continue;
    cells.push_back({.num_decodes = batch,
                     .contexts = Contexts::Longest,
                     .prefill_tokens = beyond,
                     .num_chunks = 1,
                     .is_behind = true});
  }
  for (const std::int32_t chunks : values_below(kPartners, std::min(sizes.max_seqs, 16) + 1)) {
    if (chunks < 2 || total < 4 * chunks) continue;
    const auto prefill =
        static_cast<std::int32_t>(std::min<std::int64_t>(total, std::int64_t{chunks} * longest));
    cells.push_back({.prefill_tokens = prefill, .num_chunks = chunks});
    const std::int32_t batch = std::min(chunks, sizes.max_seqs - chunks);
    if (batch < 1) continue;
    cells.push_back(
        {.num_decodes = batch, .prefill_tokens = prefill - batch, .num_chunks = chunks});
  }
}

std::vector<Cell> all_cells(const StepSizes& sizes) {
  std::vector<Cell> cells;
  const std::int32_t most = std::min(sizes.max_seqs, sizes.max_tokens);
  for (const std::int32_t batch : values_below(kBatches, most + 1)) {
    for (const Contexts contexts : {Contexts::Shortest, Contexts::Longest, Contexts::Any}) {
      cells.push_back({.num_decodes = batch, .contexts = contexts});
    }
  }
  const std::int32_t longest = std::min(sizes.max_tokens, sizes.max_context - 1);
  for (const std::int32_t chunk : values_below(kPromptChunks, longest + 1)) {
    cells.push_back({.prefill_tokens = chunk, .num_chunks = 1});
    cells.push_back({.prefill_tokens = chunk, .num_chunks = 1, .is_behind = true});
  }
  for (const std::int32_t total : values_below(kMixedTotals, sizes.max_tokens + 1)) {
    add_mixed_cells(sizes, total, cells);
  }
  return cells;
}

// The most decodes of one request; its context keeps room for them.
std::int32_t max_decodes(const StepSizes& sizes) { return std::min(sizes.max_context / 4, 160); }

std::int64_t in_blocks(std::int64_t num_tokens, const StepSizes& sizes) {
  return ceil_div(num_tokens, sizes.block_size) * sizes.block_size;
}

// KV tokens of requests that are not in the decode batch: begun prompts, and requests that begin
// and end within the two steps in flight.
std::int64_t kv_of_prompts(const StepSizes& sizes) {
  return kMaxOpen * in_blocks(sizes.max_context, sizes) + std::int64_t{2} * sizes.max_tokens +
         std::int64_t{32} * sizes.block_size;
}

class RoundWriter {
 public:
  RoundWriter(const StepSizes& sizes, Rng& rng, StepScript& script)
      : sizes_(sizes), rng_(rng), script_(script), max_decodes_(max_decodes(sizes)) {}

  void write();

 private:
  struct Member {  // its prompt is computed
    std::int32_t request;
    std::int32_t context;
    std::int32_t num_decodes;
  };

  template <class T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i) {
      std::swap(
          list[i - 1],
          list[static_cast<std::size_t>(rng_.uniform_int(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }
  std::int32_t begin_request() {
    script_.requests.push_back({.num_prompt_tokens = 0, .max_output_tokens = 1});
    return static_cast<std::int32_t>(script_.requests.size()) - 1;
  }
  RequestSpec& spec(std::int32_t request) {
    return script_.requests[static_cast<std::size_t>(request)];
  }
  void add_chunk(std::int32_t request, std::int32_t num_tokens, ScriptedStep& step) {
    spec(request).num_prompt_tokens += num_tokens;
    step.push_back({request, num_tokens});
  }
  std::vector<std::int32_t> draw_lengths();
  void fill();
  void add_decodes(const Cell& cell, ScriptedStep& step);
  void add_prefill(const Cell& cell, ScriptedStep& step);
  std::int32_t find_prompt(std::int32_t num_tokens, const ScriptedStep& step);

  const StepSizes& sizes_;
  Rng& rng_;
  StepScript& script_;
  std::int32_t max_decodes_;
  std::vector<Member> members_;
  std::vector<std::int32_t> open_;
};

// Contexts to decode at. A few are as long as possible. The others are uniform in the logarithm of
// their length, up to the room in the cache.
std::vector<std::int32_t> RoundWriter::draw_lengths() {
  const std::int32_t longest = sizes_.max_context - 1 - max_decodes_;
  const std::int64_t each = in_blocks(max_decodes_ + 1, sizes_);  // beside the prompt
  const std::int64_t room = sizes_.kv_tokens - kv_of_prompts(sizes_) - sizes_.max_seqs * each;
  std::vector<std::int32_t> lengths;
  std::int64_t sum = 0;
  for (std::int32_t i = 0; i < std::min(4, sizes_.max_seqs / 2); ++i) {
    if (sum + longest > room / 2) break;
    lengths.push_back(longest);
    sum += in_blocks(longest, sizes_);
  }
  const auto num_left = sizes_.max_seqs - static_cast<std::int32_t>(lengths.size());
  // The largest of the other lengths, such that their mean leaves room for all of them.
  const double mean = static_cast<double>(room - sum) / num_left - sizes_.block_size;
  double top = longest;
  constexpr double kLeast = kShortestPrompt;
  while (top > 2 * kLeast && (top - kLeast) / std::log(top / kLeast) > mean) top *= 0.9;
  for (std::int32_t i = 0; i < num_left; ++i) {
    const auto length = static_cast<std::int32_t>(kLeast * std::pow(top / kLeast, rng_.uniform()));
    const bool fits =
        sum + in_blocks(length, sizes_) + (num_left - 1 - i) * in_blocks(kShortestPrompt, sizes_) <=
        room;
    lengths.push_back(fits ? length : kShortestPrompt);
    sum += in_blocks(lengths.back(), sizes_);
  }
  shuffle(lengths);
  return lengths;
}

// Computes the prompts of the batch, with a random number of prompts per step.
void RoundWriter::fill() {
  const std::vector<std::int32_t> lengths = draw_lengths();
  std::size_t next = 0;
  std::int32_t request = -1;
  std::int32_t num_left = 0;  // of the current prompt
  while (num_left > 0 || next < lengths.size()) {
    std::int32_t room = sizes_.max_tokens >> rng_.uniform_int(0, 3);
    const auto most = static_cast<std::size_t>(
        std::min(std::int32_t{1} << rng_.uniform_int(0, 4), sizes_.max_seqs));
    ScriptedStep step;
    while (room > 0 && step.size() < most && (num_left > 0 || next < lengths.size())) {
      if (num_left == 0) {
        num_left = lengths[next++];
        request = begin_request();
      }
      const std::int32_t count = std::min(room, num_left);
      add_chunk(request, count, step);
      room -= count;
      num_left -= count;
      if (num_left == 0) members_.push_back({request, spec(request).num_prompt_tokens, 0});
    }
    script_.steps.push_back(std::move(step));
  }
}

void RoundWriter::add_decodes(const Cell& cell, ScriptedStep& step) {
  if (cell.num_decodes == 0) return;
  shuffle(members_);
  if (cell.contexts != Contexts::Any) {
    const bool is_descending = cell.contexts == Contexts::Longest;
    std::stable_sort(members_.begin(), members_.end(), [&](const Member& a, const Member& b) {
      return is_descending ? a.context > b.context : a.context < b.context;
    });
  }
  auto num_left = static_cast<std::size_t>(cell.num_decodes);
  for (Member& member : members_) {
    if (num_left == 0) return;
    if (member.num_decodes == max_decodes_) continue;
    step.push_back({member.request, 0});
    ++member.context;
    ++member.num_decodes;
    ++spec(member.request).max_output_tokens;
    --num_left;
  }
}

// A random begun prompt with room for `num_tokens` more tokens; -1: none has room.
std::int32_t RoundWriter::find_prompt(std::int32_t num_tokens, const ScriptedStep& step) {
  std::vector<std::int32_t> fitting;
  for (const std::int32_t request : open_) {
    const bool is_in_step = std::any_of(step.begin(), step.end(), [&](const ScriptedChunk& chunk) {
      return chunk.request == request;
    });
    if (is_in_step || spec(request).num_prompt_tokens + num_tokens >= sizes_.max_context) continue;
    fitting.push_back(request);
  }
  if (fitting.empty()) return -1;
  return fitting[static_cast<std::size_t>(
      rng_.uniform_int(0, static_cast<std::int64_t>(fitting.size()) - 1))];
}

void RoundWriter::add_prefill(const Cell& cell, ScriptedStep& step) {
  std::int32_t num_left = cell.prefill_tokens;
  for (std::int32_t i = cell.num_chunks; i > 0; --i) {
    // Chunks of unequal length, each with at least one token.
    const std::int32_t count =
        i == 1 ? num_left
               : static_cast<std::int32_t>(rng_.uniform_int(
                     std::max(1, num_left - (i - 1) * (sizes_.max_context - 1)), num_left / i));
    num_left -= count;
    std::int32_t request = cell.is_behind ? find_prompt(count, step) : -1;
    if (request < 0) {
      request = begin_request();
      if (open_.size() == std::size_t{kMaxOpen}) open_.erase(open_.begin());
      open_.push_back(request);
    }
    add_chunk(request, std::min(count, sizes_.max_context - 1), step);
  }
}

void RoundWriter::write() {
  fill();
  std::vector<Cell> cells = all_cells(sizes_);
  shuffle(cells);
  for (const Cell& cell : cells) {
    ScriptedStep step;
    add_decodes(cell, step);
    add_prefill(cell, step);
    if (!step.empty()) script_.steps.push_back(std::move(step));
  }
}

}  // namespace

std::int64_t min_script_kv(const StepSizes& sizes) {
  const std::int64_t each = in_blocks(max_decodes(sizes) + 1, sizes);
  return kv_of_prompts(sizes) + sizes.max_seqs * (each + in_blocks(kShortestPrompt, sizes));
}

StepScript make_step_script(const StepSizes& sizes, std::size_t num_rounds, std::uint64_t seed) {
  METRONOME_CHECK(sizes.max_context >= kMinScriptContext && sizes.max_tokens >= kMinScriptTokens &&
                      sizes.max_seqs >= 1 && sizes.kv_tokens >= min_script_kv(sizes),
                  "a calibration has room for its steps");
  StepScript script;
  Rng rng(seed, "calibration");
  for (std::size_t round = 0; round < num_rounds; ++round) {
    script.round_begins.push_back(script.steps.size());
    RoundWriter(sizes, rng, script).write();
  }
  script.round_begins.push_back(script.steps.size());
  return script;
}

StepScript make_gap_script(const StepSizes& sizes) {
  constexpr std::int32_t kSteps = 24;  // of each batch
  StepScript script;
  script.round_begins = {0};
  const std::int64_t fitting = sizes.kv_tokens / in_blocks(kShortestPrompt + kSteps, sizes);
  const std::int64_t most = std::min<std::int64_t>({sizes.max_seqs, sizes.max_tokens, fitting, 64});
  for (std::int32_t batch = 1; batch <= most; batch *= 2) {
    const auto first = static_cast<std::int32_t>(script.requests.size());
    ScriptedStep decodes;
    for (std::int32_t i = 0; i < batch; ++i) {
      script.requests.push_back(
          {.num_prompt_tokens = kShortestPrompt, .max_output_tokens = 1 + kSteps});
      script.steps.push_back({{first + i, kShortestPrompt}});
      decodes.push_back({first + i, 0});
    }
    script.steps.insert(script.steps.end(), kSteps, decodes);
  }
  script.round_begins.push_back(script.steps.size());
  return script;
}

}  // namespace metronome
