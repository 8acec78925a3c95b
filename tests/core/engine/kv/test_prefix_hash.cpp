// SPDX-License-Identifier: Apache-2.0
// Chained block hashes: equal exactly where the tokens up to there are equal, whatever the tokens
// come from and in however many calls a chain is made.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/workload/workload.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

constexpr std::uint64_t kX = content_id(ContentKind::Group, 1);
constexpr std::uint64_t kY = content_id(ContentKind::Group, 2);

using Segments = std::vector<PromptSegment>;
using Ids = std::vector<TokenId>;

Ids ids_of(std::initializer_list<int> values) {
  Ids ids;
  for (const int id : values) ids.push_back(TokenId{id});
  return ids;
}

Ids joined(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

Request request_of(std::uint32_t id, std::int64_t num_prompt_tokens,
                   std::int64_t num_output_tokens = 0) {
  Request request;
  request.id = RequestId{id};
  request.num_prompt_tokens = static_cast<std::int32_t>(num_prompt_tokens);
  request.output_tokens = static_cast<std::int32_t>(num_output_tokens);
  return request;
}

Request request_of(std::uint32_t id, std::int64_t num_prompt_tokens, const Ids& output_ids) {
  Request request = request_of(id, num_prompt_tokens, std::ssize(output_ids));
  request.output_token_ids = output_ids;
  return request;
}

HashChain chain_of(const PrefixHasher& hasher, const Request& request, std::int32_t block_size,
                   std::int32_t num_lookahead = 0) {
  HashChain chain;
  const std::int32_t num_covered = std::max(0, request.num_tokens() - num_lookahead);
  hasher.extend(request, block_size, num_covered / block_size, chain, num_lookahead);
  return chain;
}

Workload segment_workload(const std::vector<Segments>& prompts) {
  Workload workload;
  workload.segment_begin.push_back(0);
  for (const Segments& prompt : prompts) {
    workload.segments.insert(workload.segments.end(), prompt.begin(), prompt.end());
    workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
    std::int32_t num_tokens = 0;
    for (const PromptSegment& segment : prompt) num_tokens += segment.num_tokens;
    workload.requests.push_back({0, num_tokens, 1, 0});
  }
  return workload;
}

Workload id_workload(const std::vector<Ids>& prompts) {
  Workload workload;
  workload.token_begin.push_back(0);
  for (const Ids& prompt : prompts) {
    workload.token_ids = joined(std::move(workload.token_ids), prompt);
    workload.token_begin.push_back(workload.token_ids.size());
    workload.requests.push_back({0, static_cast<std::int32_t>(prompt.size()), 1, 0});
  }
  return workload;
}

// The chains of the prompts alone.
std::vector<HashChain> chains_of(const Workload& workload, std::int32_t block_size) {
  const PrefixHasher hasher(&workload);
  std::vector<HashChain> chains;
  for (std::uint32_t i = 0; i < workload.requests.size(); ++i) {
    const Request request = request_of(i, workload.requests[i].num_prompt_tokens);
    chains.push_back(chain_of(hasher, request, block_size));
  }
  return chains;
}

std::vector<HashChain> chains_of(const std::vector<Segments>& prompts, std::int32_t block_size) {
  return chains_of(segment_workload(prompts), block_size);
}

// How many leading blocks agree. Requires that no later one does.
std::size_t num_shared(const HashChain& a, const HashChain& b) {
  const std::size_t num_blocks = std::min(a.size(), b.size());
  std::size_t shared = 0;
  while (shared < num_blocks && a[shared] == b[shared]) ++shared;
  for (std::size_t i = shared; i < num_blocks; ++i) CHECK(a[i] != b[i]);
  return shared;
}

}  // namespace

TEST_CASE("without a workload no two requests share a block", "[core][kv][prefix]") {
  const PrefixHasher hasher;
  const HashChain a = chain_of(hasher, request_of(0, 40, 10), 8);
  CHECK(a.size() == 6);
  CHECK(num_shared(a, chain_of(hasher, request_of(1, 40, 10), 8)) == 0);
  CHECK(a == chain_of(hasher, request_of(0, 40, 10), 8));
  CHECK(std::set<BlockHash>(a.begin(), a.end()).size() == 6);

  // A request that comes after the workload's last is as unique.
  const Workload workload = segment_workload({{{kX, 40}}});
  const PrefixHasher of_one(&workload);
  CHECK(chain_of(of_one, request_of(1, 40), 8) == chain_of(hasher, request_of(1, 40), 8));
  const Workload ids = id_workload({ids_of({1, 2, 3, 4})});
  const PrefixHasher of_ids(&ids);
  CHECK(chain_of(of_ids, request_of(1, 40), 8) == chain_of(hasher, request_of(1, 40), 8));
  CHECK(num_shared(chain_of(of_one, request_of(0, 40), 8), a) == 0);
}

TEST_CASE("segments are shared as far as they agree", "[core][kv][prefix]") {
  const auto chains = chains_of(
      {
          {{kX, 20}, {kY, 12}},           // 0
          {{kX, 20}, {kY, 12}, {kX, 8}},  // 1: as 0, and longer
          {{kX, 32}},                     // 2: another token 20, in block 2
          {{kX, 16}, {kY, 16}},           // 3: another token 16
          {{kY, 12}, {kX, 20}},           // 4
          {{kX, 20}, {kY, 4}, {kY, 8}},   // 5: Y begins again at token 24
          {{kX, 20}, {0, 0}, {kY, 12}},   // 6: as 0, with an empty segment
          {{kX, 18}, {kY, 2}, {kY, 12}},  // 7: another token 18
      },
      8);
  CHECK(chains[0].size() == 4);
  CHECK(chains[1].size() == 5);
  CHECK(num_shared(chains[0], chains[1]) == 4);
  CHECK(num_shared(chains[0], chains[2]) == 2);
  CHECK(num_shared(chains[0], chains[3]) == 2);
  CHECK(num_shared(chains[2], chains[3]) == 2);
  CHECK(num_shared(chains[0], chains[4]) == 0);
  CHECK(num_shared(chains[0], chains[5]) == 3);
  CHECK(chains[0] == chains[6]);
  CHECK(num_shared(chains[0], chains[7]) == 2);
}

TEST_CASE("a block is its pieces in order, each with its place and length", "[core][kv][prefix]") {
  // One block each, of the same two contents.
  const auto chains = chains_of(
      {
          {{kX, 4}, {kY, 4}},
          {{kY, 4}, {kX, 4}},
          {{kX, 3}, {kY, 5}},
          {{kX, 4}, {kX, 4}},
          {{kX, 8}},
          {{kX, 2}, {kY, 4}, {kX, 2}},
          {{kX, 2}, {kX, 2}, {kY, 4}},
          {{kY, 8}},
      },
      8);
  std::set<BlockHash> different;
  for (const HashChain& chain : chains) different.insert(chain.at(0));
  CHECK(different.size() == chains.size());
}

TEST_CASE("the first differing token changes its block and all after it", "[core][kv][prefix]") {
  constexpr std::int32_t kBlockSize = 4;
  Ids prompt;
  for (int i = 0; i < 24; ++i) prompt.push_back(TokenId{i % 5});
  std::vector<Ids> prompts{prompt};
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    prompts.push_back(prompt);
    prompts.back()[i] = TokenId{9};
  }
  const auto chains = chains_of(id_workload(prompts), kBlockSize);
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    CAPTURE(i);
    CHECK(num_shared(chains[0], chains[i + 1]) == i / kBlockSize);
  }
}

TEST_CASE("the order of token ids counts", "[core][kv][prefix]") {
  const auto chains =
      chains_of(id_workload({ids_of({1, 2, 3, 4, 5, 6, 7, 8}), ids_of({1, 2, 4, 3, 5, 6, 7, 8}),
                             ids_of({5, 6, 7, 8, 1, 2, 3, 4}), ids_of({1, 1, 1, 1, 1, 1, 1, 1})}),
                4);
  CHECK(num_shared(chains[0], chains[1]) == 0);
  CHECK(num_shared(chains[0], chains[2]) == 0);
  CHECK(chains[0][0] != chains[2][1]);  // the same ids after others
  CHECK(chains[3][0] != chains[3][1]);
}

TEST_CASE("a follow-up prompt finds the first request's output", "[core][kv][prefix]") {
  const Ids first = ids_of({1, 2, 3, 4, 5, 6});
  const Ids output = ids_of({7, 8, 9, 10, 11});
  const Ids follow_up = joined(joined(first, output), ids_of({12, 13, 14, 15, 16}));
  const Workload workload = id_workload({first, follow_up});
  const PrefixHasher hasher(&workload);
  const HashChain before = chain_of(hasher, request_of(0, 6, output), 4);
  const HashChain after = chain_of(hasher, request_of(1, 16), 4);
  CHECK(before.size() == 2);
  CHECK(after.size() == 4);
  CHECK(num_shared(before, after) == 2);
  // Not when only the output's length is known.
  CHECK(num_shared(chain_of(hasher, request_of(0, 6, 5), 4), after) == 1);
}

TEST_CASE("output without token ids is the request's own", "[core][kv][prefix]") {
  const Workload workload = segment_workload({{{kX, 10}}, {{kX, 10}}});
  const PrefixHasher hasher(&workload);
  const HashChain a = chain_of(hasher, request_of(0, 10, 14), 4);
  const HashChain b = chain_of(hasher, request_of(1, 10, 14), 4);
  CHECK(a.size() == 6);
  CHECK(num_shared(a, b) == 2);
  CHECK(a == chain_of(hasher, request_of(0, 10, 14), 4));  // after a preemption
  // With ids the two generate the same.
  const Ids output = ids_of({1, 2, 3, 4, 5, 6});
  CHECK(chain_of(hasher, request_of(0, 10, output), 4) ==
        chain_of(hasher, request_of(1, 10, output), 4));
  // A unique prompt goes on differently than a longer one would.
  CHECK(num_shared(chain_of(PrefixHasher(), request_of(3, 8, 8), 4),
                   chain_of(PrefixHasher(), request_of(3, 16), 4)) == 2);
}

TEST_CASE("a chain covers only tokens that are there", "[core][kv][prefix]") {
  const PrefixHasher hasher;
  HashChain chain;
  hasher.extend(request_of(0, 10, 5), 4, 0, chain);
  CHECK(chain.empty());
  hasher.extend(request_of(0, 10, 5), 4, 3, chain);
  const HashChain longer = chain;
  hasher.extend(request_of(0, 10, 5), 4, 2, chain);  // nothing to add
  CHECK(chain == longer);
  CHECK_THROWS_AS(hasher.extend(request_of(0, 10, 5), 4, 4, chain), InvariantError);

  // A workload that describes less than the prompt.
  const Workload segments = segment_workload({{{kX, 10}}});
  CHECK_THROWS_AS(chain_of(PrefixHasher(&segments), request_of(0, 12), 4), InvariantError);
  const Workload ids = id_workload({ids_of({1, 2, 3})});
  CHECK_THROWS_AS(chain_of(PrefixHasher(&ids), request_of(0, 4), 4), InvariantError);
}

// From a program written apart, with integers of any size.
TEST_CASE("hashes are the same everywhere", "[core][kv][prefix]") {
  const auto hashes = [](std::initializer_list<std::uint64_t> values) {
    HashChain chain;
    for (const std::uint64_t hash : values) chain.push_back(BlockHash{hash});
    return chain;
  };
  CHECK(chain_of(PrefixHasher(), request_of(7, 10, 6), 4) ==
        hashes({0xacb60ab11e4bf5de, 0x501a27f4ef8e6d75, 0xee5f9ded9f438879, 0x8b1c3c4b5583b713}));
  const Segments prompt = {{content_id(ContentKind::Group, 3), 6},
                           {content_id(ContentKind::Request, 0), 6}};
  CHECK(chains_of({prompt}, 4)[0] ==
        hashes({0x6413ad2d54c4c96b, 0x1715fe7c7d06e4fa, 0x3b8ed9303e82efb6}));
  const Workload ids = id_workload({ids_of({11, 12, 13, 14, 15, 0, 2147483647})});
  CHECK(chain_of(PrefixHasher(&ids), request_of(0, 7, ids_of({16})), 4) ==
        hashes({0x368a5e8a9794402d, 0xbe8882c445225db4}));
  // The one content whose first block would have no hash.
  CHECK(chains_of({{{0x7951b2dd10d34ef6, 4}}}, 4)[0] == hashes({1}));
}

namespace {

// A token's identity: content and offset, or a kind of its own and the id.
using Token = std::pair<std::uint64_t, std::int64_t>;

struct RandomRequest {
  Request request;
  std::vector<Token> tokens;
};

// Everything from so few values that prefixes are often shared.
Segments draw_segments(Rng& rng) {
  Segments segments;
  const std::int64_t num_segments = rng.uniform_int(1, 6);
  for (std::int64_t i = 0; i < num_segments; ++i) {
    segments.push_back({content_id(ContentKind::TreeNode, rng() % 2),
                        static_cast<std::int32_t>(rng.uniform_int(1, 3) * rng.uniform_int(1, 5))});
  }
  return segments;
}

Ids draw_ids(Rng& rng, std::int64_t count) {
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(TokenId(rng.uniform() < 0.1 ? 1 : 0));
  return ids;
}

Workload draw_workload(Rng& rng, std::int64_t kind, std::size_t num_requests) {
  std::vector<Segments> segments;
  std::vector<Ids> ids;
  for (std::size_t i = 0; i < num_requests; ++i) {
    segments.push_back(draw_segments(rng));
    ids.push_back(draw_ids(rng, rng.uniform_int(1, 30)));
  }
  return kind == 0 ? segment_workload(segments) : kind == 1 ? id_workload(ids) : Workload();
}

// The prompt of request i of the workload and some output, with ids for part of it.
RandomRequest draw_request(Rng& rng, const Workload& workload, std::size_t i) {
  constexpr std::uint64_t kTokenId = 0;
  RandomRequest random;
  std::vector<Token>& tokens = random.tokens;
  if (i + 1 < workload.segment_begin.size()) {
    for (std::size_t s = workload.segment_begin[i]; s < workload.segment_begin[i + 1]; ++s) {
      const PromptSegment& segment = workload.segments[s];
      for (std::int64_t k = 0; k < segment.num_tokens; ++k) tokens.push_back({segment.content, k});
    }
  } else if (i + 1 < workload.token_begin.size()) {
    for (std::size_t t = workload.token_begin[i]; t < workload.token_begin[i + 1]; ++t) {
      tokens.push_back({kTokenId, value(workload.token_ids[t])});
    }
  } else {
    const std::int64_t num_tokens = rng.uniform_int(1, 30);
    for (std::int64_t k = 0; k < num_tokens; ++k) tokens.push_back({1'000 + i, k});
  }
  const auto num_prompt_tokens = std::ssize(tokens);
  random.request = request_of(static_cast<std::uint32_t>(i), num_prompt_tokens,
                              draw_ids(rng, rng.uniform_int(0, 10)));
  for (const TokenId id : random.request.output_token_ids) tokens.push_back({kTokenId, value(id)});
  if (rng.uniform() < 0.5) {
    const std::int64_t num_tokens = rng.uniform_int(1, 10);
    for (std::int64_t k = 0; k < num_tokens; ++k) tokens.push_back({2'000 + i, std::ssize(tokens)});
  }
  random.request.output_tokens = static_cast<std::int32_t>(std::ssize(tokens) - num_prompt_tokens);
  return random;
}

HashChain extend_in_pieces(Rng& rng, const PrefixHasher& hasher, const Request& request,
                           std::int32_t block_size, std::int32_t num_lookahead) {
  HashChain chain;
  const std::int64_t num_blocks = (request.num_tokens() - num_lookahead) / block_size;
  while (std::ssize(chain) < num_blocks) {
    hasher.extend(request, block_size, rng.uniform_int(std::ssize(chain), num_blocks), chain,
                  num_lookahead);
  }
  return chain;
}

}  // namespace

TEST_CASE("hashes are equal exactly where prefixes are", "[core][kv][prefix][property]") {
  std::int64_t num_repeated = 0;
  for (std::uint64_t seed = 0; seed < 1'500; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "prefix_hash");
    const auto block_size = static_cast<std::int32_t>(rng.uniform_int(1, 9));
    const auto num_lookahead = static_cast<std::int32_t>(rng.uniform_int(0, 2));
    const Workload workload = draw_workload(rng, rng.uniform_int(0, 2), 8);
    const PrefixHasher hasher(&workload);
    std::map<std::vector<Token>, BlockHash> hash_of;
    std::map<BlockHash, std::vector<Token>> prefix_of;
    for (std::size_t i = 0; i < 10; ++i) {
      const RandomRequest random = draw_request(rng, workload, i);
      const HashChain chain = chain_of(hasher, random.request, block_size, num_lookahead);
      REQUIRE(chain == extend_in_pieces(rng, hasher, random.request, block_size, num_lookahead));
      for (std::size_t k = 0; k < chain.size(); ++k) {
        const auto end = static_cast<std::ptrdiff_t>(k + 1) * block_size + num_lookahead;
        const std::vector<Token> prefix(random.tokens.begin(), random.tokens.begin() + end);
        const bool is_new = hash_of.emplace(prefix, chain[k]).second;
        if (!is_new) ++num_repeated;
        REQUIRE(chain[k] != kNoHash);
        REQUIRE(hash_of.at(prefix) == chain[k]);
        REQUIRE(prefix_of.emplace(chain[k], prefix).first->second == prefix);
      }
    }
  }
  CHECK(num_repeated > 5'000);
}

TEST_CASE("different prefixes do not collide", "[core][kv][prefix]") {
  constexpr std::int32_t kBlockSize = 16;
  constexpr std::int32_t kNumTokens = 64 * kBlockSize;
  std::vector<Segments> segments;
  std::vector<Ids> ids;
  Rng rng(1, "collisions");
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    // Small numbers, so that only the mixing keeps the hashes apart.
    const auto cut = static_cast<std::int32_t>(i % 15) + 1;
    segments.push_back({{content_id(ContentKind::TraceBlock, i), cut},
                        {content_id(ContentKind::Group, i), kNumTokens - cut}});
    Ids prompt = {TokenId(static_cast<std::int32_t>(i))};
    while (std::ssize(prompt) < kNumTokens) {
      prompt.push_back(TokenId(static_cast<std::int32_t>(rng() % 2)));
    }
    ids.push_back(prompt);
  }
  std::vector<BlockHash> hashes;
  for (const Workload& workload : {segment_workload(segments), id_workload(ids)}) {
    for (const HashChain& chain : chains_of(workload, kBlockSize)) {
      hashes.insert(hashes.end(), chain.begin(), chain.end());
    }
  }
  REQUIRE(hashes.size() == 256'000);
  std::sort(hashes.begin(), hashes.end());
  CHECK(std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end());
}

}  // namespace metronome::TEST_FILE
