// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/self_test.h"

#include <algorithm>
#include <array>

#include "core/base/rng.h"
#include "gpu/engine/gpu_info.h"
#include "gpu/plan/bit_digest.h"

namespace metronome {
namespace {

struct Cutting {
  std::int32_t num_tokens;
  std::array<std::int32_t, 2> chunk_sizes;
};

// Three prompts. The first is longer than the window of window models; its chunks use products of
// several sizes. The second is just longer than a KV tile, so that single tokens do not take long.
// The third is for the largest products: it fills a pass, or has as many tokens as the SMs compute
// in about a second.
std::vector<Cutting> cuttings(std::int32_t max_pass_tokens) {
  constexpr std::int32_t kTokensPerProcessor = 64;
  const std::int32_t most = std::min(max_pass_tokens - 1, kTokensPerProcessor * num_processors());
  std::vector<Cutting> all = {{600, {257, 64}}, {67, {7, 1}}};
  if (most > all.front().num_tokens) all.push_back({most, {2049, 1024}});
  return all;
}

constexpr std::int32_t kWhole = INT32_MAX;

// Uses the blocks [first, ...) in order, as many as its tokens need.
struct Sequence {
  std::vector<TokenId> token_ids;
  std::int32_t first_block = 0;
};

// Digests of the results of a prompt.
struct Outcome {
  std::vector<std::uint64_t> kv;  // [2 * n_layers]: keys, then values of each layer
  std::uint64_t logits = 0;
};

// Bytes copied to the host at once: small enough to stay in the host's cache for the digest.
constexpr std::size_t kStagingBytes = 1 << 20;

class ChunkingTest {
 public:
  ChunkingTest(DeviceEngine& engine, std::int32_t num_tokens)
      : engine_(engine), staging_(kStagingBytes) {
    const DeviceKvShape& kv = engine.kv().shape();
    const PassLimits& limits = engine.model().limits();
    has_neighbour_ = engine.max_num_seqs() >= 2 && limits.max_tokens >= 2 && kv.num_blocks >= 2;
    const std::int64_t num_blocks = has_neighbour_ ? kv.num_blocks - 1 : kv.num_blocks;
    const std::int64_t room =
        std::min<std::int64_t>(limits.max_model_len, num_blocks * kv.block_size);
    prompt_ = draw_sequence(std::min<std::int64_t>(num_tokens, room), 1, 0);
    neighbour_ = draw_sequence(1, 2, static_cast<std::int32_t>(num_blocks));
  }

  std::size_t num_tokens() const { return prompt_.token_ids.size(); }

  // Fills the cache with NaN first: a kernel may only read what this run has written.
  Outcome run(std::int32_t chunk_size) {
    const auto& memory = engine_.kv().memory();
    check_cuda(cudaMemsetAsync(memory.data(), 0xff, memory.num_bytes(), engine_.stream()),
               "cudaMemsetAsync");
    const auto num_tokens = static_cast<std::int32_t>(prompt_.token_ids.size());
    const std::int32_t room = engine_.model().limits().max_tokens - (has_neighbour_ ? 1 : 0);
    const std::int32_t largest = std::min(chunk_size, room);
    for (std::int32_t begin = 0; begin < num_tokens; begin += largest) {
      run_step(begin, std::min(begin + largest, num_tokens));
    }
    return {kv_digests(), logits_digest()};
  }

 private:
  Sequence draw_sequence(std::int64_t num_tokens, std::uint64_t seed, std::int32_t first_block) {
    Rng rng(seed, "chunking test");
    Sequence sequence;
    sequence.first_block = first_block;
    const std::int64_t last_id = engine_.model().config().vocab_size - 1;
    for (std::int64_t i = 0; i < num_tokens; ++i) {
      sequence.token_ids.push_back(static_cast<TokenId>(rng.uniform_int(0, last_id)));
    }
    return sequence;
  }

  // Runs a chunk of the prompt after a decode of the neighbour, which stays at its first token. If
  // only one request fits, the chunk runs alone.
  void run_step(std::int32_t begin, std::int32_t end) {
    const std::int64_t block_size = engine_.kv().shape().block_size;
    ForwardBatch batch;
    batch.clear();
    std::vector<ScheduledChunk> chunks;
    const auto add = [&](const Sequence& sequence, std::uint32_t id, std::int32_t from,
                         std::int32_t to, ChunkKind kind) {
      std::vector<BlockId> blocks;
      for (std::int32_t i = 0; i < ceil_div(to, block_size); ++i) {
        blocks.push_back(static_cast<BlockId>(sequence.first_block + i));
      }
      batch.append(RequestId{id}, from, to, blocks,
                   engine_.has_window_tables() ? blocks : std::vector<BlockId>(), 1);
      std::copy(sequence.token_ids.begin() + from, sequence.token_ids.begin() + to,
                batch.token_ids.end() - (to - from));
      chunks.push_back({.request = RequestId{id},
                        .first_position = from,
                        .num_tokens = to - from,
                        .kind = kind,
                        .samples_token = true});
    };
    if (has_neighbour_) add(neighbour_, 1, 0, 1, ChunkKind::Decode);
    add(prompt_, 0, begin, end, ChunkKind::Prefill);
    engine_.lay_out(batch, chunks, pass_);
    for (SampleRow& row : pass_.arrays.view<SampleRow>(pass_.arrays.sample_rows)) {
      row.out += engine_.padding_sample();
    }
    engine_.enqueue(pass_);
    check_cuda(cudaStreamSynchronize(engine_.stream()), "a step of the self-test");
  }

  // Digests full blocks whole. Of the last block, digests the prompt's tokens of every head.
  std::vector<std::uint64_t> kv_digests() {
    const DeviceKvShape& shape = engine_.kv().shape();
    const auto num_tokens = static_cast<std::int64_t>(prompt_.token_ids.size());
    const std::int64_t head_elements = shape.block_size * shape.head_dim;
    const std::int64_t full_elements =
        num_tokens / shape.block_size * shape.n_kv_heads * head_elements;
    const std::int64_t rest_elements = num_tokens % shape.block_size * shape.head_dim;
    std::vector<std::uint64_t> digests;
    for (std::int64_t layer = 0; layer < shape.n_layers; ++layer) {
      for (const __nv_bfloat16* pool : {engine_.kv().keys(layer), engine_.kv().values(layer)}) {
        BitDigest digest;
        add_to(digest, pool, full_elements);
        for (std::int64_t head = 0; head < shape.n_kv_heads; ++head) {
          add_to(digest, pool + full_elements + head * head_elements, rest_elements);
        }
        digests.push_back(digest.value());
      }
    }
    return digests;
  }

  // Logits of the last token.
  std::uint64_t logits_digest() {
    const std::int64_t vocab_size = engine_.model().config().vocab_size;
    BitDigest digest;
    add_to(digest, engine_.model().logits() + (has_neighbour_ ? vocab_size : 0), vocab_size);
    return digest.value();
  }

  template <class T>
  void add_to(BitDigest& digest, const T* from, std::int64_t count) {
    const auto* bytes = reinterpret_cast<const std::byte*>(from);
    const std::size_t num_bytes = static_cast<std::size_t>(count) * sizeof(T);
    for (std::size_t begin = 0; begin < num_bytes; begin += staging_.size()) {
      const std::size_t size = std::min(staging_.size(), num_bytes - begin);
      check_cuda(cudaMemcpyAsync(staging_.data(), bytes + begin, size, cudaMemcpyDeviceToHost,
                                 engine_.stream()),
                 "cudaMemcpyAsync");
      check_cuda(cudaStreamSynchronize(engine_.stream()), "the results of the self-test");
      digest.add({staging_.data(), size});
    }
  }

  DeviceEngine& engine_;
  Sequence prompt_;
  Sequence neighbour_;
  bool has_neighbour_ = false;
  DevicePass pass_;
  PinnedBytes staging_;
};

// The parts of `cut` that differ, in the order of computation.
std::vector<std::string> differences(const Outcome& cut, const Outcome& whole) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < whole.kv.size(); ++i) {
    if (cut.kv[i] == whole.kv[i]) continue;
    parts.push_back((i % 2 == 0 ? "keys of layer " : "values of layer ") + std::to_string(i / 2));
  }
  if (cut.logits != whole.logits) parts.push_back("logits");
  return parts;
}

}  // namespace

std::vector<std::string> chunking_faults(DeviceEngine& engine, const std::function<void()>& poll) {
  std::vector<std::string> faults;
  for (const Cutting& cutting : cuttings(engine.model().limits().max_tokens)) {
    ChunkingTest test(engine, cutting.num_tokens);
    const Outcome whole = test.run(kWhole);
    for (const std::int32_t chunk_size : cutting.chunk_sizes) {
      if (static_cast<std::size_t>(chunk_size) >= test.num_tokens()) continue;  // nothing to cut
      if (poll) poll();
      const std::vector<std::string> parts = differences(test.run(chunk_size), whole);
      if (parts.empty()) continue;
      std::string fault = parts.front();
      if (parts.size() > 1) fault += " and " + std::to_string(parts.size() - 1) + " more parts";
      faults.push_back(fault + " differ for " + std::to_string(test.num_tokens()) +
                       " tokens in chunks of " + std::to_string(chunk_size));
    }
  }
  return faults;
}

}  // namespace metronome
