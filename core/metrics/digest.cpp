// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/digest.h"

#include <bit>
#include <type_traits>

#include "core/base/bits.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/decode_run.h"

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

using ChunkWords = std::array<std::uint64_t, 2>;

ChunkWords words_of(const ScheduledChunk& chunk) { return bits_as<ChunkWords>(chunk); }

inline std::uint64_t absorb_chunk(std::uint64_t state, const ChunkWords& words) {
  return std::rotl((state ^ words[0]) * kFirst + words[1] * kSecond, 32);
}

// Absorbs chunks 0, 1, ... `count` - 1, as get(i) gives them as two words: chunk i into the lane
// behind that of chunk i - 1.
template <class Get>
void absorb_chunks(std::array<std::uint64_t, 4>& lanes, std::size_t count, std::size_t lane,
                   const Get& get) {
  std::size_t i = 0;
  for (; i < count && (lane + i) % 4 != 0; ++i) {
    lanes[(lane + i) % 4] = absorb_chunk(lanes[(lane + i) % 4], get(i));
  }
  auto [a, b, c, d] = lanes;
  for (; i + 4 <= count; i += 4) {
    a = absorb_chunk(a, get(i));
    b = absorb_chunk(b, get(i + 1));
    c = absorb_chunk(c, get(i + 2));
    d = absorb_chunk(d, get(i + 3));
  }
  lanes = {a, b, c, d};
  for (; i < count; ++i) lanes[(lane + i) % 4] = absorb_chunk(lanes[(lane + i) % 4], get(i));
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

void EventDigest::on_fleet_event(const FleetEvent& event) {
  const auto change = static_cast<std::int32_t>(event.change);
  lanes_[0] = absorb(lanes_[0], word(event.time), pack(event.replica, change));
  lanes_[1] = absorb(lanes_[1], word(event.num_retried), word(event.num_lost));
  num_words_ += 4;
}

void EventDigest::on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
                          const RequestTable&) {
  absorb_step(step, 0, chunks);
}

void EventDigest::on_repeats(const StepRecord& last, std::span<const StepTimes> times) {
  StepRecord step = last;
  std::int32_t num_steps = 0;
  for (const StepTimes& time : times) {
    ++step.sequence;
    ++step.step_index;
    step.planned_at = time.planned_at;
    step.started_at = time.started_at;
    step.finished_at = time.finished_at;
    step.num_used_blocks = time.num_used_blocks;
    absorb_step(step, ++num_steps, {});
  }
}

void EventDigest::absorb_step(const StepRecord& step, std::int32_t num_steps,
                              std::span<const ScheduledChunk> chunks) {
  std::uint64_t a = absorb(lanes_[0], word(step.sequence), word(step.step_index));
  std::uint64_t b = absorb(lanes_[1], word(step.planned_at), word(step.started_at));
  std::uint64_t c = absorb(lanes_[2], word(step.finished_at),
                           pack(step.num_prefill_tokens, step.num_decode_tokens));
  std::uint64_t d = absorb(lanes_[3], pack(step.num_running, step.num_waiting),
                           pack(step.num_used_blocks, step.num_preempted));
  const RunMembers* run = step.run.members;
  const std::size_t num_decodes = run != nullptr ? run->all().size() : 0;
  const std::size_t num_chunks = num_decodes + chunks.size();
  a = absorb(a, num_chunks, step.failed ? 1 : 0);
  lanes_ = {a, b, c, d};
  const std::size_t place = run != nullptr ? step.run.place : 0;
  absorb_chunks(lanes_, place, 0, [&](std::size_t i) { return words_of(chunks[i]); });
  if (run != nullptr) {
    // A run's decodes differ in request, position and, where one was preempted, generation.
    ScheduledChunk decode = run->chunk(0);
    decode.num_emitted = 1;
    const std::span<const RunMembers::Member> members = run->all();
    const std::span<const std::uint8_t> generations = run->generations();
    const std::uint64_t steps = pack(0, run->num_steps() + num_steps);
    if (run->has_one_generation()) {
      const std::uint64_t second = words_of(decode)[1];
      absorb_chunks(lanes_, num_decodes, place, [&](std::size_t i) {
        return ChunkWords{bits_as<std::uint64_t>(members[i]) + steps, second};
      });
    } else {
      absorb_chunks(lanes_, num_decodes, place, [&](std::size_t i) {
        decode.generation = generations[i];
        return ChunkWords{bits_as<std::uint64_t>(members[i]) + steps, words_of(decode)[1]};
      });
    }
  }
  absorb_chunks(lanes_, chunks.size() - place, place + num_decodes,
                [&](std::size_t i) { return words_of(chunks[place + i]); });
  num_words_ += 10 + 2 * num_chunks;
}

EventSink* EventDigest::of_replica(const ReplicaScope& scope) {
  METRONOME_CHECK(static_cast<std::size_t>(scope.replica) == replicas_.size(),
                  "replicas come in the order of their numbers");
  scopes_.push_back(scope);
  return replicas_.emplace_back(std::make_unique<EventDigest>()).get();
}

std::uint64_t EventDigest::value() const {
  std::uint64_t hash = mix64(num_words_);
  for (const std::uint64_t lane : lanes_) hash = mix64(hash ^ lane);
  for (std::size_t r = 0; r < replicas_.size(); ++r) {
    hash = mix64(hash ^ replicas_[r]->value());
    for (const std::uint32_t request : *scopes_[r].requests) hash = mix64(hash ^ request);
  }
  return hash;
}

std::string hex_digits(std::uint64_t number) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(kHexDigits, '0');
  for (std::size_t i = text.size(); i-- > 0; number >>= 4) text[i] = kDigits[number & 15];
  return text;
}

}  // namespace metronome
