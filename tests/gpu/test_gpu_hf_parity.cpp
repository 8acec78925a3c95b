// SPDX-License-Identifier: Apache-2.0
// The GPU's logits against Hugging Face transformers: of the models in tests/fixtures/models_bf16,
// or in the folder METRONOME_FIXTURES_BF16 names. `tools/hf_parity bf16` makes them: its head says
// what a fixture holds.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "models/weights/model_weights.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/gpu/gpu_lab.h"
#include "tests/transformers_values.h"

namespace metronome::testing::TEST_FILE {
namespace {

namespace fs = std::filesystem;

// Both round to bfloat16 on the way, transformers at more places. Of errors that are random alike,
// one may come out somewhat larger than the other.
constexpr double kMaxErrorRatio = 1.5;
// A choice is clear when the margin of the exact logits is this many times the error (rms) that
// transformers makes: with ours at most 1.5 times as large, the difference of two logits is off by
// as much as that once in more than 5000 times, were the errors Gaussian.
constexpr double kClearMargin = 8;
constexpr std::int32_t kChunk = 64;
constexpr std::int32_t kDecodes = 16;  // the last tokens of a prompt, once more one by one

struct Expected {
  std::vector<TokenId> prompt;
  std::vector<float> logits;  // [prompt, vocab_size]
  std::vector<float> exact;   // [prompt, vocab_size]
};

Expected read_expected(const std::string& path) {
  const SafetensorsFile file(path);
  Expected expected;
  expected.prompt = read_tokens(file, "prompt");
  expected.logits = read_values<float>(file, "logits", "F32");
  expected.exact = read_values<float>(file, "exact_logits", "F32");
  return expected;
}

// One request on the GPU, in blocks that descend, so that none lies where its number says.
class GpuSequence {
 public:
  GpuSequence(DeviceModel& model, std::int32_t num_tokens)
      : num_blocks_(ceil_div(num_tokens, kBlockSize)),
        engine_(model, {.kv = {.n_layers = model.config().n_layers,
                               .n_kv_heads = model.config().n_kv_heads,
                               .head_dim = model.config().head_dim,
                               .num_blocks = num_blocks_,
                               .block_size = kBlockSize},
                        .max_num_seqs = num_tokens,  // as many rows of logits has a pass
                        .uses_graphs = false}) {}

  // The logits of every token of the chunk.
  std::vector<float> append(std::span<const TokenId> ids, ChunkKind kind) {
    const auto count = static_cast<std::int32_t>(ids.size());
    const ScheduledChunk chunk = {.request = RequestId{0},
                                  .first_position = length_,
                                  .num_tokens = count,
                                  .kind = kind,
                                  .samples_token = true};
    ForwardBatch batch;
    batch.clear();
    batch.requests = {RequestId{0}};
    batch.query_start.push_back(count);
    for (const TokenId id : ids) {
      batch.logit_tokens.push_back(batch.num_tokens());
      batch.token_ids.push_back(id);
      batch.positions.push_back(length_++);
    }
    batch.context_lens = {length_};
    for (std::int64_t i = 0; i < ceil_div(length_, kBlockSize); ++i) {
      batch.block_tables.push_back(static_cast<BlockId>(num_blocks_ - 1 - i));
    }
    batch.table_start.push_back(static_cast<std::int32_t>(batch.block_tables.size()));
    engine_.lay_out(batch, {&chunk, 1}, pass_);
    for (SampleRow& row : pass_.arrays.view<SampleRow>(pass_.arrays.sample_rows)) {
      row.out = engine_.padding_sample();
    }
    engine_.enqueue(pass_);
    check_cuda(cudaStreamSynchronize(engine_.stream()), "a pass");
    const auto vocab_size = static_cast<std::size_t>(engine_.model().config().vocab_size);
    std::vector<float> logits(ids.size() * vocab_size);
    check_cuda(cudaMemcpy(logits.data(), engine_.model().logits(), logits.size() * sizeof(float),
                          cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return logits;
  }

 private:
  static constexpr std::int64_t kBlockSize = 16;

  std::int64_t num_blocks_;
  DeviceEngine engine_;
  DevicePass pass_;
  std::int32_t length_ = 0;
};

// How far values are from others: the root of the mean square and the largest, both of the others'
// root mean square. NaN is infinitely far.
struct Error {
  double rms = 0;
  double max = 0;
};

double rms_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

Error error_of(std::span<const float> values, std::span<const float> others) {
  REQUIRE(values.size() == others.size());
  double sum = 0;
  double max = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = static_cast<double>(values[i]) - static_cast<double>(others[i]);
    if (std::isnan(difference)) return {INFINITY, INFINITY};
    sum += difference * difference;
    max = std::max(max, std::abs(difference));
  }
  const double scale = rms_of(others);
  return {std::sqrt(sum / static_cast<double>(values.size())) / scale, max / scale};
}

std::ptrdiff_t likeliest(std::span<const float> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

double margin_of(std::span<const float> row) {
  const std::ptrdiff_t best = likeliest(row);
  float second = -INFINITY;
  for (std::ptrdiff_t i = 0; i < std::ssize(row); ++i) {
    if (i != best) second = std::max(second, row[static_cast<std::size_t>(i)]);
  }
  return static_cast<double>(row[static_cast<std::size_t>(best)]) - static_cast<double>(second);
}

// Greedy choices beside those of the exact logits.
struct Choices {
  std::int64_t num_rows = 0;
  std::int64_t num_clear = 0;  // clear, and transformers agrees
  std::int64_t ours = 0;       // of these, the same of ours
  std::int64_t ours_of_all = 0;
  std::int64_t theirs_of_all = 0;
};

Choices compare_choices(const std::vector<float>& ours, const Expected& expected,
                        double clear_margin) {
  Choices choices;
  const std::size_t vocab_size = expected.exact.size() / expected.prompt.size();
  const auto row = [vocab_size](const std::vector<float>& logits, std::size_t i) {
    return std::span(logits).subspan(i * vocab_size, vocab_size);
  };
  for (std::size_t i = 0; i < expected.prompt.size(); ++i) {
    const std::span<const float> exact = row(expected.exact, i);
    const bool is_ours = likeliest(row(ours, i)) == likeliest(exact);
    const bool is_theirs = likeliest(row(expected.logits, i)) == likeliest(exact);
    ++choices.num_rows;
    choices.ours_of_all += is_ours ? 1 : 0;
    choices.theirs_of_all += is_theirs ? 1 : 0;
    if (!is_theirs || margin_of(exact) < clear_margin) continue;
    ++choices.num_clear;
    choices.ours += is_ours ? 1 : 0;
  }
  return choices;
}

// In chunks, which change nothing, up to the last tokens, and those as decodes: their logits.
std::vector<float> run_in_chunks(DeviceModel& model, const std::vector<TokenId>& prompt,
                                 const std::vector<float>& whole) {
  const auto num_tokens = static_cast<std::int32_t>(prompt.size());
  const auto vocab_size = static_cast<std::size_t>(model.config().vocab_size);
  GpuSequence sequence(model, num_tokens);
  const std::span ids(prompt);
  const std::size_t first_decode = prompt.size() - kDecodes;
  for (std::size_t begin = 0; begin < first_decode; begin += kChunk) {
    const std::size_t count = std::min<std::size_t>(kChunk, first_decode - begin);
    const std::vector<float> logits =
        sequence.append(ids.subspan(begin, count), ChunkKind::Prefill);
    // To the bit.
    CHECK(std::memcmp(logits.data(), whole.data() + begin * vocab_size,
                      logits.size() * sizeof(float)) == 0);
  }
  std::vector<float> decoded;
  for (std::size_t i = first_decode; i < prompt.size(); ++i) {
    const std::vector<float> logits = sequence.append(ids.subspan(i, 1), ChunkKind::Decode);
    decoded.insert(decoded.end(), logits.begin(), logits.end());
  }
  return decoded;
}

void check_fixture(const std::string& folder, GemmStore& store) {
  const Expected expected = read_expected(folder + "/expected.safetensors");
  ModelSource source;
  source.config = find_model(folder, {});
  REQUIRE(source.config.unsupported.empty());
  REQUIRE(unsupported_on_gpu(source.config).empty());
  source.weights = open_model_folder(folder, source.config);
  const auto num_tokens = static_cast<std::int32_t>(expected.prompt.size());
  REQUIRE(num_tokens > kDecodes + kChunk);
  DeviceModel model(source,
                    {.max_tokens = num_tokens,
                     .max_rows = num_tokens,
                     .max_items = num_tokens,
                     .max_model_len = num_tokens},
                    store, nullptr);
  const std::vector<float> ours =
      GpuSequence(model, num_tokens).append(expected.prompt, ChunkKind::Prefill);
  const Error our_error = error_of(ours, expected.exact);
  const Error their_error = error_of(expected.logits, expected.exact);
  const Error between = error_of(ours, expected.logits);
  CHECK(their_error.rms > 0);  // the fixture is of bfloat16
  CHECK(our_error.rms <= kMaxErrorRatio * their_error.rms);

  const std::vector<float> decoded = run_in_chunks(model, expected.prompt, ours);
  const auto last = [&decoded](const std::vector<float>& logits) {
    return std::span(logits).last(decoded.size());
  };
  const Error our_decode_error = error_of(decoded, last(expected.exact));
  const Error their_decode_error = error_of(last(expected.logits), last(expected.exact));
  CHECK(our_decode_error.rms <= kMaxErrorRatio * their_decode_error.rms);

  const Choices choices =
      compare_choices(ours, expected, kClearMargin * their_error.rms * rms_of(expected.exact));
  CHECK(choices.num_clear >= choices.num_rows / 8);
  CHECK(choices.ours == choices.num_clear);

  std::cout << "hf_parity_bf16 " << fs::path(folder).filename().string()
            << ": error of the logits (rms, largest) " << our_error.rms << ", " << our_error.max
            << "; transformers' " << their_error.rms << ", " << their_error.max << "; between them "
            << between.rms << ", " << between.max << "; decodes " << our_decode_error.rms
            << ", transformers' " << their_decode_error.rms << "; greedy choices as exact "
            << choices.ours_of_all << " of " << choices.num_rows << ", transformers' "
            << choices.theirs_of_all << "; of the clear " << choices.ours << " of "
            << choices.num_clear << '\n';
}

TEST_CASE("logits are as near to the exact ones as transformers' in bfloat16",
          "[gpu][hf_parity][model]") {
  const char* other = std::getenv("METRONOME_FIXTURES_BF16");
  const std::string root = other != nullptr ? other : source_dir() + "/tests/fixtures/models_bf16";
  std::vector<std::string> folders;
  REQUIRE(fs::is_directory(root));
  for (const fs::directory_entry& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  std::sort(folders.begin(), folders.end());
  REQUIRE(!folders.empty());
  if (other == nullptr) CHECK(folders.size() == 3);
  GemmStore store(gemm_machine_key(kGemmWorkspaceBytes));
  for (const std::string& folder : folders) {
    INFO(folder);
    check_fixture(folder, store);
  }
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
