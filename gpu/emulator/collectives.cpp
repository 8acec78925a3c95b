// SPDX-License-Identifier: Apache-2.0
// The operations of a warp's collectives, and asynchronous copies.
#include <array>
#include <cstring>

#include "gpu/emulator/device.h"
#include "gpu/emulator/emulated_ptx.h"
#include "gpu/emulator/fibers.h"

namespace metronome::emulator {

namespace {

// The lane that a lane reads (PTX ISA, shfl.sync). It reads itself if the other lane is outside its
// segment.
unsigned source_of(const ShuffleArgument& argument, unsigned lane) {
  const unsigned operand = argument.operand;
  const unsigned first = lane & ~(argument.width - 1);
  switch (argument.kind) {
    case ShuffleKind::Index: return first | (operand & (argument.width - 1));
    case ShuffleKind::Up: return operand > lane - first ? lane : lane - operand;
    case ShuffleKind::Down: return operand >= first + argument.width - lane ? lane : lane + operand;
    case ShuffleKind::Xor:
      return (lane ^ operand) >= first + argument.width ? lane : lane ^ operand;
  }
  return lane;
}

void run_shuffle(void* const* lanes, Where where) {
  std::array<std::uint64_t, kWarpSize> values{};
  for (std::size_t i = 0; i < kWarpSize; ++i) {
    if (lanes[i] != nullptr) values[i] = static_cast<ShuffleArgument*>(lanes[i])->value;
  }
  for (std::size_t i = 0; i < kWarpSize; ++i) {
    if (lanes[i] == nullptr) continue;
    auto& argument = *static_cast<ShuffleArgument*>(lanes[i]);
    const unsigned source = source_of(argument, static_cast<unsigned>(i));
    if (source >= kWarpSize || lanes[source] == nullptr) {
      this_runner().fail(cudaErrorLaunchFailure, [&] {
        return described("a shuffle", where) + " reads lane " + std::to_string(source) +
               ", which is not in its mask";
      });
    }
    argument.value = values[source];
  }
}

void run_ballot(void* const* lanes, Where) {
  unsigned result = 0;
  for (std::size_t i = 0; i < kWarpSize; ++i) {
    const auto* argument = static_cast<const BallotArgument*>(lanes[i]);
    if (argument != nullptr && argument->predicate) result |= 1u << i;
  }
  for (std::size_t i = 0; i < kWarpSize; ++i) {
    if (lanes[i] != nullptr) static_cast<BallotArgument*>(lanes[i])->result = result;
  }
}

float low_half(std::uint32_t x) { return std::bit_cast<float>(x << 16); }
float high_half(std::uint32_t x) { return std::bit_cast<float>(x & 0xffff0000u); }

// Four columns at once: compilers do not reliably vectorise a loop over them.
using Four = float __attribute__((vector_size(16)));

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type", with group = lane / 4 and
// pair = lane % 4:
// - register i of a: row group + 8 * (i % 2), columns pair * 2 + 8 * (i / 2) and the next;
// - register i of b: rows pair * 2 + 8 * i and the next, column group;
// - element i of d: row group + 8 * (i / 2), column pair * 2 + i % 2.
void run_mma(void* const* lanes, Where) {
  float a[16][16];
  Four b[16][2];
  Four d[16][2];
  for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
    const auto& argument = *static_cast<const MmaArgument*>(lanes[lane]);
    const std::size_t group = lane / 4;
    const std::size_t pair = lane % 4;
    for (std::size_t i = 0; i < 4; ++i) {
      float* const target = &a[group + 8 * (i % 2)][pair * 2 + 8 * (i / 2)];
      target[0] = low_half(argument.a[i]);
      target[1] = high_half(argument.a[i]);
      const std::size_t column = pair * 2 + i % 2;
      d[group + 8 * (i / 2)][column / 4][column % 4] = argument.d[i];
    }
    for (std::size_t i = 0; i < 2; ++i) {
      b[pair * 2 + 8 * i][group / 4][group % 4] = low_half(argument.b[i]);
      b[pair * 2 + 8 * i + 1][group / 4][group % 4] = high_half(argument.b[i]);
    }
  }
  for (std::size_t row = 0; row < 16; ++row) {
    Four sums[2] = {d[row][0], d[row][1]};
    for (std::size_t k = 0; k < 16; ++k) {
      sums[0] += a[row][k] * b[k][0];
      sums[1] += a[row][k] * b[k][1];
    }
    d[row][0] = sums[0];
    d[row][1] = sums[1];
  }
  for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
    const auto& argument = *static_cast<const MmaArgument*>(lanes[lane]);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t column = lane % 4 * 2 + i % 2;
      argument.d[i] = d[lane / 4 + 8 * (i / 2)][column / 4][column % 4];
    }
  }
}

bool is_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

template <bool kIsTransposed>
void run_load_matrix(void* const* lanes, Where where) {
  std::uint16_t rows[kWarpSize][8];
  for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
    const void* row = static_cast<const LoadMatrixArgument*>(lanes[lane])->row;
    if (!is_aligned(row)) {
      this_runner().fail(cudaErrorMisalignedAddress, [&] {
        return described("ldmatrix", where) + ": the row of lane " + std::to_string(lane) +
               " is not 16-byte aligned";
      });
    }
    std::memcpy(rows[lane], row, sizeof rows[lane]);
  }
  for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
    const auto& argument = *static_cast<const LoadMatrixArgument*>(lanes[lane]);
    const std::size_t row = lane / 4;
    const std::size_t column = lane % 4 * 2;
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
      const auto* m = &rows[matrix * 8];
      const std::uint32_t low = kIsTransposed ? m[column][row] : m[row][column];
      const std::uint32_t high = kIsTransposed ? m[column + 1][row] : m[row][column + 1];
      argument.registers[matrix] = low | high << 16;
    }
  }
}

void perform(const AsyncCopy& copy) {
  if (copy.from != nullptr) {
    std::memcpy(copy.to, copy.from, 16);
  } else {
    std::memset(copy.to, 0, 16);
  }
}

}  // namespace

const WarpOperation kShuffle = {"a shuffle", false, run_shuffle};
const WarpOperation kBallot = {"a vote", false, run_ballot};
const WarpOperation kSyncWarp = {"__syncwarp", false, nullptr};
const WarpOperation kMma = {"mma", true, run_mma};
const WarpOperation kLoadMatrix = {"ldmatrix", true, run_load_matrix<false>};
const WarpOperation kLoadMatrixTransposed = {"ldmatrix.trans", true, run_load_matrix<true>};

void async_copy(void* shared, const void* global, bool is_valid, Where where) {
  BlockRunner& runner = this_runner();
  // Hardware checks the addresses even if the copy reads nothing.
  if (!is_aligned(shared) || !is_aligned(global)) {
    runner.fail(cudaErrorMisalignedAddress,
                [&] { return described("cp.async", where) + ": not 16-byte aligned"; });
  }
  Fiber& fiber = runner.current();
  const AsyncCopy copy = {shared, is_valid ? global : nullptr, fiber.num_groups};
  if (runner.toss()) {
    perform(copy);
  } else {
    fiber.copies.push_back(copy);
  }
}

void join_launch() {
  // The running launch has exclusive use of the device.
  if (const std::function<void()>& hook = device().settings.join_hook) hook();
  this_runner().current().has_joined = true;
}

void async_commit() { ++this_runner().current().num_groups; }

void async_wait(int num_pending_groups) {
  Fiber& fiber = this_runner().current();
  const std::int64_t end = fiber.num_groups - num_pending_groups;
  auto next = fiber.copies.begin();
  while (next != fiber.copies.end() && next->group < end) perform(*next++);
  fiber.copies.erase(fiber.copies.begin(), next);
}

}  // namespace metronome::emulator
