// SPDX-License-Identifier: Apache-2.0
// The KV store: what is written comes back, tiles lie as the kernels read them, and memory is only
// taken by pages that were written.
#include <cstdint>
#include <new>
#include <vector>

#include "core/base/error.h"
#include "cpu/kv_store.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

// A value that tells every element of the store apart.
float element(std::int64_t layer, std::int64_t token, std::int64_t head, std::int64_t d) {
  return static_cast<float>(((layer * 100 + token) * 10 + head) * 20 + d);
}

std::vector<float> vector_of(std::int64_t layer, std::int64_t token, std::int64_t head,
                             std::int64_t head_dim, float sign) {
  std::vector<float> values;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    values.push_back(sign * element(layer, token, head, d));
  }
  return values;
}

}  // namespace

TEST_CASE("every token of every layer and head comes back", "[kv_store]") {
  for (const std::int32_t block_size : {1, 7, 16, 24}) {
    const KvShape shape = {3, 2, 6, 4, block_size};
    KvStore store(shape);
    const std::int64_t num_tokens = shape.num_blocks * block_size;
    const auto for_all = [&](auto work) {
      for (std::int64_t layer = 0; layer < shape.n_layers; ++layer) {
        for (std::int64_t token = 0; token < num_tokens; ++token) {
          for (std::int64_t head = 0; head < shape.n_kv_heads; ++head) {
            const auto block = static_cast<BlockId>(token / block_size);
            work(layer, token, block, static_cast<std::int32_t>(token % block_size), head);
          }
        }
      }
    };
    for_all([&](auto layer, auto token, BlockId block, std::int32_t offset, auto head) {
      store.write(layer, block, offset, head, vector_of(layer, token, head, 6, 1).data(),
                  vector_of(layer, token, head, 6, -1).data());
    });
    for_all([&](auto layer, auto token, BlockId block, std::int32_t offset, auto head) {
      std::vector<float> key(6);
      std::vector<float> value(6);
      store.read(layer, block, offset, head, key.data(), value.data());
      REQUIRE(key == vector_of(layer, token, head, 6, 1));
      REQUIRE(value == vector_of(layer, token, head, 6, -1));
    });
  }
}

TEST_CASE("keys lie by element, values by slot, in aligned tiles of 16", "[kv_store]") {
  KvStore store({2, 3, 10, 5, 40});
  CHECK(store.tiles_per_block() == 3);
  // Offset 37 is slot 5 of tile 2.
  store.write(1, BlockId{4}, 37, 2, vector_of(1, 0, 0, 10, 1).data(),
              vector_of(1, 0, 0, 10, -1).data());
  const float* const keys = store.key_tile(1, BlockId{4}, 2, 2);
  const float* const values = store.value_tile(1, BlockId{4}, 2, 2);
  for (std::int64_t d = 0; d < 10; ++d) {
    CHECK(keys[d * 16 + 5] == element(1, 0, 0, d));
    CHECK(keys[d * 16 + 6] == 0.0f);
    CHECK(values[5 * 10 + d] == -element(1, 0, 0, d));
  }
  for (std::int32_t tile = 0; tile < 3; ++tile) {
    for (std::int32_t block = 0; block < 5; ++block) {
      const float* const key = store.key_tile(0, BlockId{block}, 1, tile);
      const float* const value = store.value_tile(0, BlockId{block}, 1, tile);
      CHECK(reinterpret_cast<std::uintptr_t>(key) % 64 == 0);
      CHECK(reinterpret_cast<std::uintptr_t>(value) % 64 == 0);
    }
  }
}

TEST_CASE("the size of a store", "[kv_store]") {
  // 2 layers, 3 heads, 5 blocks of 3 tiles of 2 * 16 * 10 floats.
  CHECK(KvStore::num_bytes({2, 3, 10, 5, 40}) == 2u * 3 * 5 * 3 * 320 * 4);
  CHECK_THROWS_AS(KvStore({1 << 20, 1 << 20, 1 << 20, 1 << 20, 16}), std::bad_alloc);
}

TEST_CASE("a store larger than memory takes what is written", "[kv_store]") {
  // 64 GiB: 32 layers, 8 heads of 128, 2^14 blocks of 16.
  KvStore store({32, 8, 128, 1 << 14, 16});
  CHECK(KvStore::num_bytes(store.shape()) == std::size_t{1} << 36);
  const std::vector<float> key(128, 1.5f);
  const std::vector<float> value(128, 2.5f);
  const BlockId last{(1 << 14) - 1};
  store.write(31, last, 15, 7, key.data(), value.data());
  std::vector<float> read_key(128);
  std::vector<float> read_value(128);
  store.read(31, last, 15, 7, read_key.data(), read_value.data());
  CHECK(read_key == key);
  CHECK(read_value == value);
}

TEST_CASE("a token outside the store is an error", "[kv_store]") {
  KvStore store({2, 3, 4, 5, 7});
  std::vector<float> key(4);
  const auto write = [&](std::int64_t layer, std::int32_t block, std::int32_t offset,
                         std::int64_t head) {
    store.write(layer, BlockId{block}, offset, head, key.data(), key.data());
  };
  CHECK_NOTHROW(write(1, 4, 6, 2));
  CHECK_THROWS_AS(write(2, 4, 6, 2), InvariantError);
  CHECK_THROWS_AS(write(1, 5, 6, 2), InvariantError);
  CHECK_THROWS_AS(write(1, -1, 6, 2), InvariantError);
  CHECK_THROWS_AS(write(1, 4, 7, 2), InvariantError);
  CHECK_THROWS_AS(write(1, 4, -1, 2), InvariantError);
  CHECK_THROWS_AS(write(1, 4, 6, 3), InvariantError);
}

}  // namespace TEST_FILE
