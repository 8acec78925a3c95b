// SPDX-License-Identifier: Apache-2.0
#include "core/engine/kv/prefix_hash.h"

#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "core/base/rng.h"

namespace metronome {

namespace {

// The key for token ids: the fraction of pi. No content has this key: key_of would need a content
// of kind 0xf8.
constexpr std::uint64_t kTokenIdKey = 0x243f6a8885a308d3ull;

constexpr std::uint64_t key_of(std::uint64_t content) { return mix64(content); }

}  // namespace

BlockHash in_further_group(BlockHash hash, std::uint64_t group) {
  return BlockHash{mix64(static_cast<std::uint64_t>(hash) + group) | 1};
}

// Appends block hashes to a chain as tokens come in. A block consists of pieces: a run of tokens of
// one content, or a single token id. Each piece is mixed separately, with its start offset in the
// block. So the sum of the pieces depends on their order and lengths, and the processor can mix
// several at a time. Only the sums are chained.
class ChainWriter {
 public:
  // Writes block hashes from `begin` on; `previous` is the preceding hash, kNoHash at the start.
  // The first one covers `num_first` tokens.
  ChainWriter(BlockHash previous, std::int32_t block_size, std::int32_t num_first, BlockHash* begin)
      : block_size_(static_cast<std::uint64_t>(block_size)),
        num_wanted_(static_cast<std::uint64_t>(num_first)),
        next_(begin),
        hash_(static_cast<std::uint64_t>(previous)) {}

  // Tokens [offset, offset + count) of the content with this key.
  void add_run(std::uint64_t key, std::int64_t offset, std::int64_t count) {
    auto at = static_cast<std::uint64_t>(offset);
    const std::uint64_t end = at + static_cast<std::uint64_t>(count);
    while (at < end) {
      if (num_filled_ == 0 && end - at >= num_wanted_) {
        at = add_blocks(key, at, end);
        continue;
      }
      const std::uint64_t taken = std::min(end - at, num_wanted_ - num_filled_);
      add_piece(key, at, taken);
      at += taken;
    }
  }

  void add_ids(std::span<const TokenId> ids) {
    for (const TokenId id : ids) add_piece(kTokenIdKey, static_cast<std::uint32_t>(value(id)), 1);
  }

  // Marks the next token with a content that it belongs to, `offset` tokens behind the content's
  // first.
  void add_mark(std::uint64_t key, std::int64_t offset) {
    sum_ += mix64(key + (num_filled_ << 32 | static_cast<std::uint64_t>(offset)));
  }

 private:
  // As add_piece(), for every block that the run fills; the first one must be. Returns where the
  // rest of the run begins.
  std::uint64_t add_blocks(std::uint64_t key, std::uint64_t at, std::uint64_t end) {
    std::uint64_t hash = hash_;
    BlockHash* next = next_;
    std::uint64_t num_tokens = num_wanted_;
    do {
      hash = mix64(hash ^ mix64(key + at));
      if (hash == 0) hash = 1;  // 0 is kNoHash
      *next++ = BlockHash{hash};
      at += num_tokens;
      num_tokens = block_size_;
    } while (end - at >= num_tokens);
    num_wanted_ = block_size_;
    hash_ = hash;
    next_ = next;
    return at;
  }

  void add_piece(std::uint64_t key, std::uint64_t at, std::uint64_t num_tokens) {
    sum_ += mix64(key + (num_filled_ << 32 | at));
    num_filled_ += num_tokens;
    if (num_filled_ < num_wanted_) return;
    hash_ = mix64(hash_ ^ sum_);
    if (hash_ == 0) hash_ = 1;  // 0 is kNoHash
    *next_++ = BlockHash{hash_};
    sum_ = 0;
    num_filled_ = 0;
    num_wanted_ = block_size_;
  }

  std::uint64_t block_size_;
  std::uint64_t num_wanted_;  // tokens of the current block
  BlockHash* next_;
  std::uint64_t hash_;
  std::uint64_t sum_ = 0;         // of the pieces of the current block
  std::uint64_t num_filled_ = 0;  // tokens of the current block so far
};

namespace {

// Adds prompt positions [begin, end) as pieces of their segments.
void add_segments(std::span<const PromptSegment> segments, std::int64_t begin, std::int64_t end,
                  ChainWriter& writer) {
  std::int64_t segment_begin = 0;
  for (const PromptSegment& segment : segments) {
    const std::int64_t segment_end = segment_begin + segment.num_tokens;
    if (begin < segment_end) {
      const std::int64_t stop = std::min(end, segment_end);
      writer.add_run(key_of(segment.content), begin - segment_begin, stop - begin);
      begin = stop;
      if (begin == end) return;
    }
    segment_begin = segment_end;
  }
  METRONOME_CHECK(begin == end, "the segments of a prompt are shorter than it");
}

// Adds prompt positions [begin, begin + ids.size()). The tokens of all images have the same id,
// so each of them is marked with its image and its place in it. Equal hashes then mean equal
// images at equal places, as vLLM has it (hash and offset of an image in the hash of a block).
void add_ids_of_items(std::span<const EncoderItem> items, std::int64_t begin,
                      std::span<const TokenId> ids, ChainWriter& writer) {
  const std::int64_t end = begin + static_cast<std::int64_t>(ids.size());
  std::int64_t at = begin;
  const auto add_up_to = [&](std::int64_t stop) {
    writer.add_ids(
        ids.subspan(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(stop - at)));
    at = stop;
  };
  for (const EncoderItem& item : items) {
    if (item.end() <= at) continue;
    if (item.begin >= end) break;
    add_up_to(std::max<std::int64_t>(item.begin, at));
    const std::uint64_t key = key_of(item.content);
    const std::int64_t item_end = std::min<std::int64_t>(item.end(), end);
    while (at < item_end) {
      writer.add_mark(key, at - item.begin);
      add_up_to(at + 1);
    }
  }
  add_up_to(end);
}

// Adds output positions [begin, end), counted from the end of the prompt.
void add_output(const Request& request, std::uint64_t number, std::int64_t begin, std::int64_t end,
                ChainWriter& writer) {
  const std::span<const TokenId> ids(request.output_token_ids);
  const std::int64_t ids_end = std::min(end, static_cast<std::int64_t>(ids.size()));
  if (begin < ids_end) {
    writer.add_ids(
        ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(ids_end - begin)));
    begin = ids_end;
  }
  writer.add_run(key_of(content_id(ContentKind::Output, number)), begin, end - begin);
}

}  // namespace

void PrefixHasher::add_prompt(const Request& request, std::int64_t begin, std::int64_t end,
                              ChainWriter& writer) const {
  if (prompts_ != nullptr) {
    const std::span<const TokenId> ids = prompts_->prompt_ids(request.id);
    if (!ids.empty()) {
      METRONOME_CHECK(static_cast<std::size_t>(end) <= ids.size(),
                      "a prompt has too few token ids");
      const auto own =
          ids.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
      const std::span<const EncoderItem> items = prompts_->encoder_items(request.id);
      if (!items.empty()) return add_ids_of_items(items, begin, own, writer);
      return writer.add_ids(own);
    }
    const std::span<const PromptSegment> segments = prompts_->prompt_segments(request.id);
    if (!segments.empty()) return add_segments(segments, begin, end, writer);
  }
  const std::uint64_t content = content_id(ContentKind::Request, number_of(request));
  writer.add_run(key_of(content), begin, end - begin);
}

void PrefixHasher::extend(const Request& request, std::int32_t block_size, std::int64_t num_blocks,
                          HashChain& chain, std::int32_t num_lookahead) const {
  const std::size_t num_known = chain.size();
  if (static_cast<std::int64_t>(num_known) >= num_blocks) return;
  // The first hash covers the tokens behind its block. So each later one is shifted by as many, and
  // the chain as a whole covers them.
  const bool is_new = num_known == 0;
  const std::int64_t begin =
      is_new ? 0 : static_cast<std::int64_t>(num_known) * block_size + num_lookahead;
  const std::int64_t end = num_blocks * block_size + num_lookahead;
  METRONOME_CHECK(end <= request.num_tokens(), "blocks are hashed when their tokens are known");
  chain.resize(static_cast<std::size_t>(num_blocks));  // grows geometrically, unlike reserve
  ChainWriter writer(is_new ? kNoHash : chain[num_known - 1], block_size,
                     is_new ? block_size + num_lookahead : block_size, chain.data() + num_known);
  const std::int64_t prompt_end = request.num_prompt_tokens;
  if (begin < prompt_end) {
    add_prompt(request, begin, std::min(end, prompt_end), writer);
  }
  if (prompt_end < end) {
    add_output(request, number_of(request), std::max<std::int64_t>(0, begin - prompt_end),
               end - prompt_end, writer);
  }
}

}  // namespace metronome
