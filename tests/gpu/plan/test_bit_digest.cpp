// SPDX-License-Identifier: Apache-2.0
// The digest that the GPU's self-test keeps of a prompt's KV: no difference may be lost in it.
#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "core/base/rng.h"
#include "gpu/plan/bit_digest.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

std::vector<std::byte> random_bytes(std::size_t size) {
  Rng rng(1, "bit digest");
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng());
  return bytes;
}

std::uint64_t digest_of(const std::vector<std::byte>& bytes) {
  BitDigest digest;
  digest.add(bytes);
  return digest.value();
}

}  // namespace

TEST_CASE("a digest changes with every bit", "[digest]") {
  for (const std::size_t size : {1u, 7u, 8u, 63u, 64u, 65u, 300u}) {
    CAPTURE(size);
    std::vector<std::byte> bytes = random_bytes(size);
    CHECK(digest_of(bytes) == digest_of(bytes));
    std::set<std::uint64_t> digests = {digest_of(bytes)};
    for (std::size_t bit = 0; bit < 8 * size; ++bit) {
      const std::byte mask{static_cast<std::uint8_t>(1 << bit % 8)};
      bytes[bit / 8] ^= mask;
      digests.insert(digest_of(bytes));
      bytes[bit / 8] ^= mask;
    }
    CHECK(digests.size() == 8 * size + 1);
  }
}

TEST_CASE("a digest changes with the order of words and with the length", "[digest]") {
  const std::vector<std::byte> bytes = random_bytes(1024);
  std::set<std::uint64_t> digests = {digest_of(bytes)};
  std::size_t num_orders = 1;
  for (std::size_t a = 0; a < 128; ++a) {
    for (std::size_t b = a + 1; b < 128; ++b) {
      std::vector<std::byte> swapped = bytes;
      std::swap_ranges(swapped.begin() + 8 * static_cast<std::ptrdiff_t>(a),
                       swapped.begin() + 8 * static_cast<std::ptrdiff_t>(a) + 8,
                       swapped.begin() + 8 * static_cast<std::ptrdiff_t>(b));
      digests.insert(digest_of(swapped));
      ++num_orders;
    }
  }
  CHECK(digests.size() == num_orders);
  std::set<std::uint64_t> of_zeros;
  for (std::size_t size = 0; size < 200; ++size) {
    of_zeros.insert(digest_of(std::vector<std::byte>(size)));
  }
  CHECK(of_zeros.size() == 200);
}

TEST_CASE("a digest of pieces changes with each of them", "[digest]") {
  const std::vector<std::byte> bytes = random_bytes(200);
  const std::span<const std::byte> all(bytes);
  BitDigest a;
  a.add(all.first(80));
  a.add(all.subspan(80));
  BitDigest b;
  b.add(all.subspan(80));
  b.add(all.first(80));
  CHECK(a.value() != b.value());
  const std::uint64_t before = a.value();
  a.add({});
  CHECK(a.value() != before);
}

}  // namespace TEST_FILE
