// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/bit_digest.h"

#include <bit>
#include <cstring>

#include "core/base/rng.h"

namespace metronome {

// A lane's update is a bijection of the word, and of the lane: one different word always changes
// the lane. The shift moves high bits to where the product spreads them. Without it, a difference
// in the highest bit would stay one bit, and a bit of the next word might undo it.
void BitDigest::add(std::span<const std::byte> piece) {
  constexpr std::uint64_t kFactor = 0x6a09e667f3bcc909ull;
  std::array<std::uint64_t, kNumLanes> lanes = lanes_;
  std::array<std::uint64_t, kNumLanes> words;
  const auto absorb = [&] {
    for (std::size_t i = 0; i < kNumLanes; ++i) {
      const std::uint64_t word = lanes[i] ^ words[i];
      lanes[i] = std::rotl((word ^ word >> 29) * kFactor, 32);
    }
  };
  std::span<const std::byte> rest = piece;
  for (; rest.size() >= sizeof words; rest = rest.subspan(sizeof words)) {
    std::memcpy(words.data(), rest.data(), sizeof words);
    absorb();
  }
  words = {};
  if (!rest.empty()) std::memcpy(words.data(), rest.data(), rest.size());
  absorb();
  lanes[0] = mix64(lanes[0] ^ piece.size());
  lanes_ = lanes;
}

std::uint64_t BitDigest::value() const {
  std::uint64_t digest = 0;
  for (const std::uint64_t lane : lanes_) digest = mix64(digest ^ lane);
  return digest;
}

}  // namespace metronome
