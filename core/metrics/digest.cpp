#include "core/metrics/digest.h"

#include <bit>
#include <type_traits>

#include "core/base/rng.h"

namespace metronome {
namespace {

// Odd constants with about half their bits set: the fractions of sqrt(2), sqrt(3).
constexpr std::uint64_t kFirst = 0x6a09e667f3bcc909ull;
constexpr std::uint64_t kSecond = 0xbb67ae8584caa73bull;

// For a fixed pair of words this is a bijection of the state. For a fixed state it is a bijection
// of each word. So a single changed word always changes the state. The rotation moves the
// well-mixed high half of the product down, where the next multiplication spreads it.
constexpr std::uint64_t absorb(std::uint64_t state, std::uint64_t a, std::uint64_t b) {
  state = std::rotl((state ^ a) * kFirst, 32);
  return std::rotl((state ^ b) * kSecond, 32);
}

// Fields are combined by value, so padding bytes and byte order do not matter.
constexpr std::uint64_t pack(std::int32_t low, std::int32_t high) {
  return std::uint64_t{static_cast<std::uint32_t>(low)} |
         std::uint64_t{static_cast<std::uint32_t>(high)} << 32;
}

constexpr std::uint64_t word(std::int64_t value) { return static_cast<std::uint64_t>(value); }

// A chunk is two words without padding. The second word rarely differs between decodes. So its
// multiplication is outside the dependency chain.
static_assert(std::endian::native == std::endian::little, "chunks are read as words");
static_assert(sizeof(ScheduledChunk) == 2 * sizeof(std::uint64_t) &&
              std::has_unique_object_representations_v<ScheduledChunk>);

inline std::uint64_t absorb_chunk(std::uint64_t state, const ScheduledChunk& chunk) {
  const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(chunk);
  return std::rotl((state ^ words[0]) * kFirst + words[1] * kSecond, 32);
}

}  // namespace

EventDigest::EventDigest()
    : lanes_{0x243f6a8885a308d3ull, 0x13198a2e03707344ull, 0xa4093822299f31d0ull,
             0x082efa98ec4e6c89ull} {}

void EventDigest::on_event(const Event& event, const Request&) {
  const std::uint64_t what = std::uint64_t{static_cast<std::uint32_t>(event.request)} |
                             std::uint64_t{static_cast<std::uint8_t>(event.kind)} << 32 |
                             std::uint64_t{static_cast<std::uint8_t>(event.reason)} << 40 |
                             std::uint64_t{1} << 63;  // marks an event, not a step
  lanes_[0] = absorb(lanes_[0], word(event.time), word(event.sequence));
  lanes_[1] = absorb(lanes_[1], what, word(event.sequence));
  num_words_ += 4;
}

void EventDigest::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                          const RequestTable&) {
  std::uint64_t a = absorb(lanes_[0], word(step.sequence), word(step.step_index));
  std::uint64_t b = absorb(lanes_[1], word(step.planned_at), word(step.started_at));
  std::uint64_t c = absorb(lanes_[2], word(step.finished_at),
                           pack(step.num_prefill_tokens, step.num_decode_tokens));
  std::uint64_t d = absorb(lanes_[3], pack(step.num_running, step.num_waiting),
                           pack(step.num_used_blocks, step.num_preempted));
  a = absorb(a, chunks.size(), step.failed ? 1 : 0);
  const std::size_t num_chunks = chunks.size();
  const ScheduledChunk* const chunk = chunks.data();
  std::size_t i = 0;
  for (; i + 4 <= num_chunks; i += 4) {
    a = absorb_chunk(a, chunk[i]);
    b = absorb_chunk(b, chunk[i + 1]);
    c = absorb_chunk(c, chunk[i + 2]);
    d = absorb_chunk(d, chunk[i + 3]);
  }
  if (i < num_chunks) a = absorb_chunk(a, chunk[i]);
  if (i + 1 < num_chunks) b = absorb_chunk(b, chunk[i + 1]);
  if (i + 2 < num_chunks) c = absorb_chunk(c, chunk[i + 2]);
  lanes_ = {a, b, c, d};
  num_words_ += 10 + 2 * num_chunks;
}

std::uint64_t EventDigest::value() const {
  std::uint64_t hash = mix64(num_words_);
  for (const std::uint64_t lane : lanes_) hash = mix64(hash ^ lane);
  return hash;
}

std::string hex_digits(std::uint64_t number) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(kHexDigits, '0');
  for (std::size_t i = text.size(); i-- > 0; number >>= 4) text[i] = kDigits[number & 15];
  return text;
}

}  // namespace metronome
