// SPDX-License-Identifier: Apache-2.0
// Hash tables for insertion and lookup only; nothing depends on their order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/base/types.h"

namespace metronome {

// Ids by token bytes. One string holds all bytes.
class TokenTable {
 public:
  // Reserves room for `num_tokens`.
  explicit TokenTable(std::size_t num_tokens = 0)
      : slots_(std::bit_ceil(2 * num_tokens + 2)), mask_(slots_.size() - 1) {}

  // Returns false when the token exists already. Do not add more than the reserved number.
  bool add(std::string_view token, TokenId id) {
    Slot* slot = &slots_[hash(token) & mask_];
    while (slot->is_used) {
      if (bytes_of(*slot) == token) return false;
      slot = &slots_[(static_cast<std::size_t>(slot - slots_.data()) + 1) & mask_];
    }
    *slot = {bytes_.size(), static_cast<std::uint32_t>(token.size()), id, true};
    bytes_ += token;
    if (token.size() > max_bytes_) max_bytes_ = token.size();
    return true;
  }

  std::optional<TokenId> find(std::string_view token) const {
    if (token.size() > max_bytes_) return std::nullopt;
    for (std::size_t i = hash(token) & mask_; slots_[i].is_used; i = (i + 1) & mask_) {
      if (bytes_of(slots_[i]) == token) return slots_[i].id;
    }
    return std::nullopt;
  }

 private:
  struct Slot {
    std::size_t begin = 0;
    std::uint32_t num_bytes = 0;
    TokenId id{};
    bool is_used = false;
  };

  std::string_view bytes_of(const Slot& slot) const {
    return {bytes_.data() + slot.begin, slot.num_bytes};
  }

  static std::size_t hash(std::string_view token) {
    std::uint64_t h = token.size();
    while (!token.empty()) {
      std::uint64_t word = 0;
      const std::size_t n = token.size() < sizeof word ? token.size() : sizeof word;
      std::memcpy(&word, token.data(), n);
      h = mix64(h ^ word);
      token.remove_prefix(n);
    }
    return static_cast<std::size_t>(h);
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
  std::string bytes_;
  std::size_t max_bytes_ = 0;
};

// The merge of two adjacent tokens.
struct Merged {
  std::uint32_t rank = UINT32_MAX;  // lower ranks merge first; UINT32_MAX: no merge
  TokenId id{};
};

class MergeTable {
 public:
  explicit MergeTable(std::size_t num_merges = 0)
      : slots_(std::bit_ceil(2 * num_merges + 2)), mask_(slots_.size() - 1) {}

  // A later merge of the same pair wins. Do not set more than the reserved number.
  void set(TokenId left, TokenId right, Merged merged) {
    Slot& slot = slots_[index_of(key_of(left, right))];
    slot.key = key_of(left, right);
    slot.merged = merged;
  }

  Merged find(TokenId left, TokenId right) const {
    return slots_[index_of(key_of(left, right))].merged;
  }

 private:
  static constexpr std::uint64_t kNoKey = ~std::uint64_t{0};  // ids are not negative
  struct Slot {
    std::uint64_t key = kNoKey;
    Merged merged;
  };

  static std::uint64_t key_of(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(value(left)) << 32 | static_cast<std::uint32_t>(value(right));
  }

  // The slot of the pair, or the free slot for it.
  std::size_t index_of(std::uint64_t key) const {
    std::size_t i = mix64(key) & mask_;
    while (slots_[i].key != key && slots_[i].key != kNoKey) i = (i + 1) & mask_;
    return i;
  }

  std::vector<Slot> slots_;
  std::size_t mask_;
};

}  // namespace metronome
