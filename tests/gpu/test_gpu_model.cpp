// SPDX-License-Identifier: Apache-2.0
// The whole model on the GPU against the reference on the CPU: the same weights, bfloat16 in
// between here, float there.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "cpu/transformer.h"
#include "tests/catch.h"
#include "tests/gpu/gpu_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

// bfloat16 has 8 bits: every value that is stored in between is off by up to 2^-9 of itself. The
// residual stream of these models is rounded 4 to 6 times, and every sublayer that is added to it
// has passed through 4 to 6 roundings of its own, so the last hidden state is off by about
// sqrt(30) * 2^-9 / sqrt(3) = 2^-7.4 of its length, in a random direction, and logits by as much
// of their own spread. The largest logit of a row is two to three spreads off zero, the largest
// error of ten thousand four times the usual: 2^-6.6 of that logit. Attention adds to it, which
// turns an error of a score into as large an error of its weight. Seen here were 0.021 for logits
// and 0.017 for keys and values.
constexpr double kMaxLogitError = 3 * 0x1p-6;  // of the largest logit of the row
constexpr double kMaxKvError = 3 * 0x1p-6;     // of the largest element of all keys and values

// The CPU's results for a text, in one pass.
class Reference {
 public:
  Reference(const ModelSource& source)
      : pool_(1), transformer_(source.config, *source.weights, pool_) {}

  void compute(const std::vector<TokenId>& ids) {
    const auto num_tokens = static_cast<std::int32_t>(ids.size());
    const ModelConfig& model = transformer_.model();
    kv_ = std::make_unique<KvStore>(KvShape{.n_layers = model.n_layers,
                                            .n_kv_heads = model.n_kv_heads,
                                            .head_dim = model.head_dim,
                                            .num_blocks = 1,
                                            .block_size = num_tokens});
    ForwardBatch batch;
    batch.clear();
    batch.requests = {RequestId{0}};
    batch.query_start.push_back(num_tokens);
    batch.context_lens = {num_tokens};
    batch.table_start.push_back(1);
    batch.block_tables = {BlockId{0}};
    batch.token_ids = ids;
    for (std::int32_t p = 0; p < num_tokens; ++p) {
      batch.positions.push_back(p);
      batch.logit_tokens.push_back(p);
    }
    transformer_.forward(batch, *kv_, logits_);
  }

  // Of the token at `position`: those of the tokens before it.
  std::span<const float> logits(std::int32_t position) const {
    const auto vocab_size = static_cast<std::size_t>(transformer_.model().vocab_size);
    return {logits_.data() + static_cast<std::size_t>(position - 1) * vocab_size, vocab_size};
  }

  // As GpuLab::kv_of() has them.
  std::vector<float> kv(const GpuLab& lab, std::int32_t context_len) const {
    const ModelConfig& model = transformer_.model();
    std::vector<float> all;
    std::vector<float> key(static_cast<std::size_t>(model.head_dim));
    std::vector<float> value(key.size());
    for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
      for (std::int32_t p = lab.first_kept(layer, context_len); p < context_len; ++p) {
        for (std::int64_t head = 0; head < model.n_kv_heads; ++head) {
          kv_->read(layer, BlockId{0}, p, head, key.data(), value.data());
          all.insert(all.end(), key.begin(), key.end());
          all.insert(all.end(), value.begin(), value.end());
        }
      }
    }
    return all;
  }

 private:
  ThreadPool pool_;
  Transformer transformer_;
  std::unique_ptr<KvStore> kv_;
  std::vector<float> logits_;
};

// NaN differs from everything.
double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

double largest_magnitude(std::span<const float> values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

struct Errors {
  double logits = 0;  // the largest, each relative to the largest logit of its row
  double kv = 0;
  std::int64_t num_rows = 0;
  std::int64_t num_clear = 0;   // greedy choices with more margin than twice the bound
  std::int64_t num_agreed = 0;  // of all rows
};

class Comparison {
 public:
  Comparison(GpuLab& lab) : lab_(lab), reference_(lab.source()) {}

  void check(const LabSettings& settings, const std::vector<LabPrompt>& prompts,
             const GpuOptions& options = {}) {
    const LabRun run = lab_.run(settings, prompts, options);
    for (std::uint32_t i = 0; i < prompts.size(); ++i) {
      INFO("prompt of " << prompts[i].ids.size());
      REQUIRE(run.ends[i] == EndReason::Length);
      std::vector<TokenId> text = prompts[i].ids;
      text.insert(text.end(), run.tokens[i].begin(), run.tokens[i].end());
      text.pop_back();  // nothing was computed of the last
      reference_.compute(text);
      const auto logits = logits_of(run, i);
      REQUIRE(logits.size() == run.tokens[i].size());
      for (const auto& [position, row] : logits) {
        check_row(*row, reference_.logits(position));
      }
      check_kv(run.kv.at(RequestId{i}), static_cast<std::int32_t>(text.size()));
    }
  }

  const Errors& errors() const { return errors_; }

 private:
  void check_row(std::span<const float> actual, std::span<const float> expected) {
    const double scale = largest_magnitude(expected);
    const double error = largest_difference(actual, expected) / scale;
    CHECK(error <= kMaxLogitError);
    errors_.logits = std::max(errors_.logits, error);
    ++errors_.num_rows;
    std::vector<float> sorted(expected.begin(), expected.end());
    std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
    const bool is_same_choice =
        std::max_element(actual.begin(), actual.end()) - actual.begin() ==
        std::max_element(expected.begin(), expected.end()) - expected.begin();
    errors_.num_agreed += is_same_choice ? 1 : 0;
    if (double{sorted[0]} - double{sorted[1]} <= 2 * kMaxLogitError * scale) return;
    ++errors_.num_clear;
    CHECK(is_same_choice);
  }

  void check_kv(const std::vector<float>& actual, std::int32_t context_len) {
    const std::vector<float> expected = reference_.kv(lab_, context_len);
    REQUIRE(actual.size() == expected.size());
    const double error = largest_difference(actual, expected) / largest_magnitude(expected);
    CHECK(error <= kMaxKvError);
    errors_.kv = std::max(errors_.kv, error);
  }

  GpuLab& lab_;
  Reference reference_;
  Errors errors_;
};

std::vector<LabPrompt> prompts_of(const GpuLab& lab, const std::vector<std::int32_t>& lengths,
                                  std::int32_t max_output) {
  std::vector<LabPrompt> prompts;
  for (const std::int32_t length : lengths) {
    prompts.push_back({lab.ids(static_cast<std::uint64_t>(length), length), max_output});
  }
  return prompts;
}

void report(const std::string& name, const Errors& errors) {
  if (std::getenv("METRONOME_PRINT_ERRORS") == nullptr) return;
  std::cerr << name << ": logits " << errors.logits << ", kv " << errors.kv << "; of "
            << errors.num_rows << " rows " << errors.num_clear << " clear, " << errors.num_agreed
            << " agreed\n";
}

void check_model(const ModelConfig& model) {
  GpuLab lab(lab_source(model));
  Comparison comparison(lab);
  comparison.check({.block_size = 16, .max_model_len = 400},
                   prompts_of(lab, {1, 2, 17, 63, 64, 65, 130}, 6));
  comparison.check({.chunk = 64, .block_size = 100, .max_model_len = 400},
                   prompts_of(lab, {300, 20}, 4), {.invariance = Invariance::Chunk});
  comparison.check({.block_size = 1, .max_model_len = 400}, prompts_of(lab, {33, 5}, 4),
                   {.invariance = Invariance::None, .uses_graphs = false});
  comparison.check({.is_slotted = true, .max_model_len = 300}, prompts_of(lab, {3, 140}, 8),
                   {.invariance = Invariance::Chunk});
  report(model.name, comparison.errors());
  CHECK(comparison.errors().num_clear >= 30);
  // Whose arithmetic rounds in the same places: the same bounds.
  Comparison fused(lab);
  fused.check({.block_size = 16, .max_num_seqs = 16, .max_model_len = 400},
              prompts_of(lab, {1, 2, 17, 63, 64, 65, 130, 5, 6}, 6),
              {.invariance = Invariance::Chunk, .fuses_decodes = true});
  fused.check({.is_slotted = true, .max_model_len = 300}, prompts_of(lab, {3, 140}, 8),
              {.invariance = Invariance::None, .uses_graphs = false, .fuses_decodes = true});
  report(model.name + ", fused", fused.errors());
  CHECK(fused.errors().num_clear >= 30);
  Comparison wgmma(lab);
  wgmma.check({.chunk = 64, .block_size = 16, .max_model_len = 400},
              prompts_of(lab, {1, 17, 64, 130, 300, 6}, 6),
              {.invariance = Invariance::Chunk, .multiplies_by_wgmma = true});
  wgmma.check({.block_size = 16, .max_model_len = 400}, prompts_of(lab, {33, 140}, 4),
              {.invariance = Invariance::Full, .multiplies_by_wgmma = true});
  report(model.name + ", products by wgmma", wgmma.errors());
  CHECK(wgmma.errors().num_clear >= 15);
}

}  // namespace

TEST_CASE("logits and KV are those of the reference on the CPU: Llama", "[gpu][model]") {
  check_model(small_gpu_model(Family::Llama));
}
TEST_CASE("logits and KV are those of the reference on the CPU: Qwen 3", "[gpu][model]") {
  check_model(small_gpu_model(Family::Qwen3));
}
TEST_CASE("logits and KV are those of the reference on the CPU: Gemma 3", "[gpu][model]") {
  check_model(small_gpu_model(Family::Gemma3));
}

}  // namespace metronome::testing::TEST_FILE
