// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "core/base/error.h"
#include "core/engine/encoder_cache.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

constexpr RequestId kA{0};
constexpr RequestId kB{1};
constexpr RequestId kC{2};

class Prompts final : public PromptSource {
 public:
  std::vector<std::vector<EncoderItem>> items;  // by request
  std::span<const TokenId> prompt_ids(RequestId) const override { return {}; }
  std::span<const EncoderItem> encoder_items(RequestId request) const override {
    return items[index(request)];
  }
};

EncoderItem image(std::uint64_t content, std::int32_t begin, std::int32_t num_tokens) {
  return {
      .content = content, .begin = begin, .num_tokens = num_tokens, .num_embeddings = num_tokens};
}

struct Fixture {
  Prompts prompts;
  EncoderSetup setup{.compute_budget = 10, .cache_size = 10, .limits_chunks = true};
  std::vector<PlannedEncoding> encodings;
  std::vector<std::uint64_t> freed;

  EncoderCache make() {
    setup.items = &prompts;
    EncoderCache cache(setup);
    cache.begin_plan();
    return cache;
  }
  // One step: the request's chunk, cut to what is possible. Without a chunk nothing is taken.
  std::int32_t step(EncoderCache& cache, RequestId request, std::int32_t first,
                    std::int32_t num_tokens, std::int32_t num_lookahead = 0) {
    const std::int32_t fitting = cache.fit(request, first, num_tokens, num_lookahead);
    if (fitting > 0) cache.take(request, encodings);
    cache.check_integrity();
    return fitting;
  }
};

}  // namespace

TEST_CASE("an image is encoded with the chunk that first needs it", "[core][engine][encoder]") {
  Fixture f;
  f.prompts.items = {{image(1, 4, 6)}};
  EncoderCache cache = f.make();
  CHECK(f.step(cache, kA, 0, 4) == 4);
  CHECK(f.encodings.empty());
  CHECK(f.step(cache, kA, 4, 2) == 2);
  CHECK(f.encodings == std::vector<PlannedEncoding>{{kA, 0, 6}});
  CHECK(f.step(cache, kA, 6, 4) == 4);  // the rest of it
  CHECK(f.encodings.size() == 1);
  CHECK(cache.num_free() == 4);
  cache.release_computed(kA, 9);
  CHECK(cache.is_held_by(kA));
  cache.release_computed(kA, 10);
  CHECK_FALSE(cache.is_held_by(kA));
  CHECK(cache.num_free() == 4);  // kept for others
  CHECK(cache.num_held() == 0);
}

TEST_CASE("a chunk ends before an image that has no room", "[core][engine][encoder]") {
  Fixture f;
  f.prompts.items = {{image(1, 2, 6), image(2, 9, 5)}, {image(3, 0, 4), image(4, 8, 8)}};
  EncoderCache cache = f.make();
  CHECK(f.step(cache, kA, 0, 20) == 9);  // 6 + 5 exceed the budget
  CHECK(f.step(cache, kB, 0, 4) == 4);   // 4 embeddings are left
  CHECK(f.step(cache, kB, 4, 12) == 4);
  CHECK(f.step(cache, kB, 8, 8) == 0);  // at its beginning: nothing
  CHECK(f.step(cache, kB, 9, 3) == 0);  // as after a prefix hit inside it
  // In the next step the budget is whole again, but the cache is full.
  cache.begin_plan();
  CHECK(f.step(cache, kB, 8, 8) == 0);
  cache.release_computed(kA, 9);
  CHECK(f.step(cache, kB, 8, 8) == 0);  // 6 of 10 can be had
  cache.release_computed(kB, 4);
  CHECK(f.step(cache, kB, 8, 8) == 8);
  cache.drain_freed(f.freed);
  CHECK(f.freed == std::vector<std::uint64_t>{1, 3});  // oldest first
}

TEST_CASE("requests with the same image share its entry", "[core][engine][encoder]") {
  Fixture f;
  f.prompts.items = {{image(1, 0, 6), image(1, 8, 6)}, {image(1, 3, 6)}, {image(2, 0, 8)}};
  EncoderCache cache = f.make();
  CHECK(f.step(cache, kA, 0, 14) == 14);
  CHECK(f.encodings.size() == 1);
  CHECK(f.step(cache, kB, 0, 9) == 9);
  CHECK(f.encodings.size() == 1);
  cache.release_computed(kA, 6);  // it repeats the image, and holds it once
  cache.release(kB);
  cache.begin_plan();
  CHECK(f.step(cache, kC, 0, 8) == 0);
  cache.release_computed(kA, 14);
  CHECK(cache.num_holders() == 0);
  CHECK(f.step(cache, kC, 0, 8) == 8);
  CHECK(cache.num_entries() == 1);
}

TEST_CASE("without chunks inside images a chunk holds all of it or none",
          "[core][engine][encoder]") {
  Fixture f;
  f.setup.disable_chunked_mm_input = true;
  f.prompts.items = {{image(1, 4, 6)}};
  EncoderCache cache = f.make();
  CHECK(f.step(cache, kA, 0, 9) == 4);
  CHECK(f.step(cache, kA, 4, 5) == 0);
  CHECK(f.step(cache, kA, 4, 6) == 6);
  CHECK(f.step(cache, kA, 7, 2) == 2);  // a prefix hit may begin inside
  SECTION("a drafter that reads ahead must not see its first token") {
    CHECK(f.step(cache, kA, 0, 9, 1) == 3);
  }
}

TEST_CASE("text around embeddings needs no encoding", "[core][engine][encoder]") {
  Fixture f;
  EncoderItem marked = image(1, 4, 6);
  marked.first_embedding = 2;
  marked.num_embeddings = 3;
  f.prompts.items = {{marked}};
  EncoderCache cache = f.make();
  CHECK(f.step(cache, kA, 0, 6) == 6);
  CHECK(f.encodings.empty());
  SECTION("nor do the tokens behind them") {
    CHECK(f.step(cache, kA, 9, 1) == 1);
    CHECK(f.encodings.empty());
  }
  SECTION("the first embedding does") {
    CHECK(f.step(cache, kA, 6, 1) == 1);
    CHECK(f.encodings == std::vector<PlannedEncoding>{{kA, 0, 3}});
  }
  SECTION("also if only a drafter reads it") {
    CHECK(f.step(cache, kA, 0, 6, 1) == 6);
    CHECK(f.encodings.size() == 1);
  }
}

TEST_CASE("an encoding that is taken out of the plan", "[core][engine][encoder]") {
  Fixture f;
  f.prompts.items = {{image(1, 0, 6)}, {image(1, 0, 6)}};
  SECTION("leaves its entry, as in vLLM") {
    EncoderCache cache = f.make();
    CHECK(f.step(cache, kA, 0, 6) == 6);
    cache.unplan(kA, f.encodings);
    CHECK(f.encodings.empty());
    CHECK(f.step(cache, kB, 0, 6) == 6);
    CHECK(f.encodings.empty());
  }
  SECTION("takes its entry along where embeddings are computed") {
    f.setup.forgets_unfilled = true;
    EncoderCache cache = f.make();
    CHECK(f.step(cache, kA, 0, 6) == 6);
    cache.unplan(kA, f.encodings);
    CHECK(cache.num_entries() == 0);
    CHECK(f.step(cache, kB, 0, 6) == 6);  // with the budget it gave back
    CHECK(f.encodings == std::vector<PlannedEncoding>{{kB, 0, 6}});
  }
  SECTION("stays if another request needs it") {
    f.setup.forgets_unfilled = true;
    EncoderCache cache = f.make();
    CHECK(f.step(cache, kA, 0, 6) == 6);
    CHECK(f.step(cache, kB, 0, 6) == 6);
    cache.unplan(kA, f.encodings);
    CHECK(f.encodings == std::vector<PlannedEncoding>{{kA, 0, 6}});
    cache.unplan(kB, f.encodings);
    CHECK(f.encodings.empty());
    CHECK(cache.num_entries() == 0);
  }
}

TEST_CASE("images of a failed step are forgotten, with their references",
          "[core][engine][encoder]") {
  Fixture f;
  f.prompts.items = {{image(1, 0, 6)}, {image(1, 0, 6)}};
  EncoderCache cache = f.make();
  CHECK(f.step(cache, kA, 0, 3) == 3);
  CHECK(f.step(cache, kB, 0, 3) == 3);
  CHECK(cache.holds_any(kB, f.encodings));
  cache.forget(f.encodings);
  cache.check_integrity();
  CHECK(cache.num_holders() == 0);
  CHECK(cache.num_free() == 10);
  cache.drain_freed(f.freed);
  CHECK(f.freed == std::vector<std::uint64_t>{1});
}

TEST_CASE("policies without limits get what they ask for", "[core][engine][encoder]") {
  Fixture f;
  f.setup.limits_chunks = false;
  f.prompts.items = {{image(1, 0, 8), image(2, 8, 8)}, {image(3, 0, 4)}};
  EncoderCache cache = f.make();
  CHECK(f.step(cache, kA, 0, 16) == 16);
  CHECK(cache.num_free() == -6);
  cache.release(kA);
  CHECK(f.step(cache, kB, 0, 4) == 4);
  CHECK(cache.num_free() >= 0);  // what nobody needs is dropped
}

}  // namespace metronome::TEST_FILE
