// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory, boxes of tensors, and products of warpgroups.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>

#include "gpu/emulator/fibers.h"
#include "gpu/kernels/common/hopper_ptx.h"
#include "models/weights/float16.h"

namespace metronome::emulator {

namespace {

constexpr std::uint32_t kBoxColumns = 64;
constexpr std::uint32_t kRowBytes = 128;

// ---- Barriers.

// The contents of a barrier's eight bytes.
struct BarrierState {
  std::int32_t bytes = 0;      // still to come; < 0: came before they were expected
  std::uint16_t pending = 0;   // arrivals still to come
  std::uint16_t arrivals = 0;  // arrivals per phase; the top bit is the phase's parity
};
static_assert(sizeof(BarrierState) == sizeof(std::uint64_t));
constexpr std::uint16_t kParity = 0x8000;
// PTX ISA, mbarrier: the range of tx-count in both directions.
constexpr std::int32_t kMaxBytes = (1 << 20) - 1;

BarrierState state_of(const std::uint64_t* barrier, const char* what, Where where) {
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0) {
    this_runner().fail(cudaErrorMisalignedAddress, [&] { return described(what, where); });
  }
  const auto state = std::bit_cast<BarrierState>(*barrier);
  const int arrivals = state.arrivals & ~kParity;
  if (arrivals == 0 || state.pending > arrivals || std::abs(state.bytes) > kMaxBytes) {
    this_runner().fail(cudaErrorLaunchFailure,
                       [&] { return described(what, where) + ": this is not a barrier"; });
  }
  return state;
}

// Stores the state, and begins the next phase if this one is over.
void update(std::uint64_t* barrier, BarrierState state, const char* what, Where where) {
  if (state.pending == 0 && state.bytes < 0) {
    this_runner().fail(cudaErrorLaunchFailure, [&] {
      return described(what, where) + ": all arrivals of the phase came, and more bytes (" +
             std::to_string(-state.bytes) + ") than expected";
    });
  }
  const bool is_over = state.pending == 0 && state.bytes == 0;
  const std::uint32_t parity = (state.arrivals & kParity) != 0 ? 1 : 0;
  if (is_over) {
    state.pending = static_cast<std::uint16_t>(state.arrivals & ~kParity);
    state.arrivals ^= kParity;
  }
  *barrier = std::bit_cast<std::uint64_t>(state);
  if (is_over) this_runner().wake(barrier, parity);
}

// Adds expected bytes to a barrier of the block, or, below zero, arrived bytes. Bytes may arrive
// before they are expected, because the phase does not end before its arrivals.
void add_bytes(Block& block, std::uint64_t* barrier, std::int64_t bytes, const char* what,
               Where where) {
  BarrierState state = state_of(barrier, what, where);
  const std::int64_t sum = state.bytes + bytes;
  if (std::abs(sum) > kMaxBytes) {
    this_runner().fail(cudaErrorLaunchFailure, [&] {
      return described(what, where) + ": a barrier cannot count " + std::to_string(sum) + " bytes";
    });
  }
  const auto early = [](std::int64_t count) { return std::max(-count, std::int64_t{0}); };
  block.num_early_bytes += early(sum) - early(state.bytes);
  state.bytes = static_cast<std::int32_t>(sum);
  update(barrier, state, what, where);
}

// ---- Clusters.

Block& this_block() { return *this_runner().current().warp->block; }

// The block of the running cluster that has this rank and has not ended.
Block& block_of(std::uint32_t rank, const char* what, Where where) {
  BlockRunner& runner = this_runner();
  const unsigned num_blocks = runner.launch().cluster;
  if (rank >= num_blocks) {
    runner.fail(cudaErrorLaunchFailure, [&] {
      return described(what, where) + ": no rank " + std::to_string(rank) + " in a cluster of " +
             std::to_string(num_blocks);
    });
  }
  Block& block = runner.block(rank);
  if (block.num_alive == 0) {
    runner.fail(cudaErrorLaunchFailure, [&] {
      return described(what, where) + ": the block of rank " + std::to_string(rank) + " has ended";
    });
  }
  return block;
}

// The address in `block`'s dynamic shared memory that corresponds to `pointer` in this block's.
template <class T>
T* counterpart(T* pointer, const Block& block, const char* what, Where where) {
  const Block& own = this_block();
  if (&block == &own) return pointer;
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto begin = reinterpret_cast<std::uintptr_t>(own.shared());
  if (address < begin || address - begin >= this_runner().launch().shared_bytes) {
    this_runner().fail(cudaErrorLaunchFailure, [&] {
      return described(what, where) + ": not in the dynamic shared memory of the block";
    });
  }
  return reinterpret_cast<T*>(block.shared() + (address - begin));
}

// ---- Tensors.

struct Tensor {
  unsigned char* address;
  std::uint64_t columns;
  std::uint64_t rows;
  std::uint64_t row_bytes;
  std::uint32_t box_rows;
};
static_assert(sizeof(Tensor) <= sizeof(CUtensorMap));

Tensor decoded(const CUtensorMap& map) {
  Tensor tensor;
  std::memcpy(&tensor, &map, sizeof tensor);
  return tensor;
}

bool has_element(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return 0 <= row && row < static_cast<std::int64_t>(tensor.rows) && 0 <= column &&
         column < static_cast<std::int64_t>(tensor.columns);
}

unsigned char* element_of(const Tensor& tensor, std::int64_t row, std::int64_t column) {
  return tensor.address + static_cast<std::uint64_t>(row) * tensor.row_bytes + column * 2;
}

// The swizzled position of the byte at `address`.
std::uint32_t swizzled(std::uint32_t address) { return address ^ (address >> 7 & 7u) << 4; }

// ---- Products. A warp's products happen while one of its lanes runs, in its block's memory.

float bf16_at(std::uint32_t address) {
  std::uint16_t bits;
  std::memcpy(&bits, dynamic_shared + swizzled(address), sizeof bits);
  return float_of_bf16(bits);
}

// The fields of a descriptor (PTX ISA, "Matrix descriptor format" of wgmma).
struct Matrix {
  std::uint32_t address;
  std::uint32_t leading_bytes;
  std::uint32_t stride_bytes;

  explicit Matrix(std::uint64_t descriptor)
      : address(field(descriptor)),
        leading_bytes(field(descriptor >> 16)),
        stride_bytes(field(descriptor >> 32)) {}

  // Address of element k of a row of A or a column of B.
  std::uint32_t at(std::size_t index, std::size_t k, bool is_k_major) const {
    const auto i = static_cast<std::uint32_t>(index);
    const auto j = static_cast<std::uint32_t>(k);
    if (is_k_major) return address + i / 8 * stride_bytes + i % 8 * kRowBytes + j * 2;
    return address + i / kBoxColumns * leading_bytes + i % kBoxColumns * 2 + j / 8 * stride_bytes +
           j % 8 * kRowBytes;
  }

 private:
  static std::uint32_t field(std::uint64_t bits) {
    return static_cast<std::uint32_t>(bits & 0x3fffu) << 4;
  }
};

constexpr std::size_t kSteps = 16;  // of k per product
constexpr std::size_t kRows = 16;   // per warp

// Fragments are those of mma.m16n8k16, repeated for every eight columns.
void perform(const AsyncProduct& product, std::size_t warp_of_group) {
  static thread_local std::array<std::array<float, 256>, kSteps> b;
  std::array<std::array<float, kSteps>, kRows> a;
  const Matrix b_matrix(product.b_matrix);
  for (std::size_t k = 0; k < kSteps; ++k) {
    for (std::size_t n = 0; n < product.columns; ++n) {
      b[k][n] = bf16_at(b_matrix.at(n, k, product.is_b_k_major));
    }
  }
  const Matrix a_matrix(product.a_matrix);
  for (std::size_t lane = 0; lane < kWarpSize; ++lane) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t row = lane / 4 + 8 * (i % 2);
      const std::size_t k = lane % 4 * 2 + 8 * (i / 2);
      for (std::size_t half = 0; half < 2; ++half) {
        a[row][k + half] =
            product.a[lane] != nullptr
                ? float_of_bf16(static_cast<std::uint16_t>(product.a[lane][i] >> (16 * half)))
                : bf16_at(a_matrix.at(warp_of_group * kRows + row, k + half, true));
      }
    }
  }
  std::array<float, 256> sums;
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::size_t half = row / 8 * 2;
    const auto element = [&](std::size_t n) -> float& {
      return product.d[row % 8 * 4 + n % 8 / 2][n / 8 * 4 + half + n % 2];
    };
    for (std::size_t n = 0; n < product.columns; ++n) {
      sums[n] = product.accumulates ? element(n) : 0;
    }
    for (std::size_t k = 0; k < kSteps; ++k) {
      for (std::size_t n = 0; n < product.columns; ++n) sums[n] += a[row][k] * b[k][n];
    }
    for (std::size_t n = 0; n < product.columns; ++n) element(n) = sums[n];
  }
}

void perform_until(Warp& warp, std::int64_t end_group) {
  std::size_t count = 0;
  for (; count < warp.products.size() && warp.products[count].group < end_group; ++count) {
    perform(warp.products[count], warp.index % 4);
  }
  warp.products.erase(warp.products.begin(),
                      warp.products.begin() + static_cast<std::ptrdiff_t>(count));
}

Warp& this_warp() { return *this_runner().current().warp; }

void run_product(void* const* lanes, Where where) {
  Warp& warp = this_warp();
  if (!warp.is_product_fenced) {
    this_runner().fail(cudaErrorLaunchFailure, [&] {
      return described("wgmma", where) +
             " without a wgmma_fence() after the last use of the warp's registers";
    });
  }
  AsyncProduct product;
  for (std::size_t i = 0; i < kWarpSize; ++i) {
    const auto& argument = *static_cast<const ProductArgument*>(lanes[i]);
    product.d[i] = argument.d;
    product.a[i] = argument.a;
    product.a_matrix = argument.a_matrix;
    product.b_matrix = argument.b_matrix;
    product.columns = static_cast<std::size_t>(argument.columns);
    product.is_b_k_major = argument.is_b_k_major;
    product.accumulates = argument.accumulates;
  }
  product.group = warp.num_product_groups;
  warp.products.push_back(product);
  if (warp.is_product_eager) perform_until(warp, product.group + 1);
}

void run_fence(void* const*, Where) { this_warp().is_product_fenced = true; }
void run_commit(void* const*, Where) { ++this_warp().num_product_groups; }

void arrive(std::uint64_t* barrier, const char* what, Where where) {
  BarrierState state = state_of(barrier, what, where);
  if (state.pending == 0) {
    this_runner().fail(cudaErrorLaunchFailure, [&] {
      return described(what, where) + ": all arrivals of the phase came before";
    });
  }
  --state.pending;
  update(barrier, state, what, where);
  this_runner().let_others();
}

void send_box(Block& block, const BoxCopy& own, const char* what) {
  BlockRunner& runner = this_runner();
  if (shared_address(own.to) % kRowBytes != 0) {
    runner.fail(cudaErrorMisalignedAddress,
                [&] { return described(what, own.where) + ": not 128-byte aligned"; });
  }
  BoxCopy box = own;
  box.block = &block;
  box.to = counterpart(own.to, block, what, own.where);
  box.barrier = counterpart(own.barrier, block, what, own.where);
  state_of(box.barrier, what, box.where);
  runner.add_box(box);
  if (runner.toss()) runner.finish_a_box();
}

void run_wait(void* const* lanes, Where) {
  Warp& warp = this_warp();
  perform_until(warp, warp.num_product_groups - *static_cast<const int*>(lanes[0]));
  warp.is_product_fenced = false;
  warp.is_product_eager = this_runner().toss();
}

}  // namespace

const WarpOperation kProduct = {"wgmma", true, run_product};
const WarpOperation kProductFence = {"wgmma_fence", false, run_fence};
const WarpOperation kProductCommit = {"wgmma_commit", false, run_commit};
const WarpOperation kProductWait = {"wgmma_wait", false, run_wait};
const WarpOperation kRegisters = {"setmaxnreg", true, nullptr};
const WarpOperation kClusterSync = {"cluster_sync", true, nullptr};

void init_barrier(std::uint64_t* barrier, std::uint32_t arrivals, Where where) {
  if (arrivals == 0 || arrivals >= kParity) {
    this_runner().fail(cudaErrorLaunchFailure, [&] { return described("barrier_init", where); });
  }
  const auto count = static_cast<std::uint16_t>(arrivals);
  *barrier = std::bit_cast<std::uint64_t>(BarrierState{0, count, count});
}

void arrive_at(std::uint64_t* barrier, Where where) { arrive(barrier, "barrier_arrive", where); }

void arrive_at_block(std::uint64_t* barrier, std::uint32_t rank, Where where) {
  const char* const what = "barrier_arrive_at";
  arrive(counterpart(barrier, block_of(rank, what, where), what, where), what, where);
}

void expect_bytes(std::uint64_t* barrier, std::uint32_t bytes, Where where) {
  add_bytes(this_block(), barrier, bytes, "barrier_expect", where);
}

void wait_for_phase(std::uint64_t* barrier, std::uint32_t parity, Where where) {
  BlockRunner& runner = this_runner();
  while (runner.toss() && runner.finish_a_box()) {
  }
  const BarrierState state = state_of(barrier, "barrier_wait", where);
  const std::uint32_t current = (state.arrivals & kParity) != 0 ? 1 : 0;
  if (current == parity) runner.block_on(barrier, parity, where);
}

void start_box(void* shared, const CUtensorMap& map, std::int32_t column, std::int32_t row,
               std::uint64_t* barrier, Where where) {
  send_box(this_block(), {nullptr, shared, map, column, row, barrier, where}, "copy_box");
}

void start_boxes(std::uint32_t ranks, void* shared, const CUtensorMap& map, std::int32_t column,
                 std::int32_t row, std::uint64_t* barrier, Where where) {
  const char* const what = "copy_box_to";
  const BoxCopy box = {nullptr, shared, map, column, row, barrier, where};
  for (std::uint32_t rest = ranks; rest != 0; rest &= rest - 1) {
    send_box(block_of(static_cast<std::uint32_t>(std::countr_zero(rest)), what, where), box, what);
  }
}

namespace {

void perform(const BoxStore& store) {
  const Tensor tensor = decoded(store.tensor);
  const unsigned char* const shared = store.block->shared();
  const auto from =
      static_cast<std::uint32_t>(static_cast<const unsigned char*>(store.from) - shared);
  for (std::uint32_t row = 0; row < tensor.box_rows; ++row) {
    for (std::uint32_t i = 0; i < kBoxColumns; ++i) {
      const std::int64_t to_row = std::int64_t{store.row} + row;
      const std::int64_t to_column = std::int64_t{store.column} + i;
      if (!has_element(tensor, to_row, to_column)) continue;
      std::memcpy(element_of(tensor, to_row, to_column),
                  shared + swizzled(from + row * kRowBytes + i * 2), 2);
    }
  }
}

}  // namespace

void start_store(const void* shared, const CUtensorMap& map, std::int32_t column, std::int32_t row,
                 Where where) {
  BlockRunner& runner = this_runner();
  if (shared_address(shared) % kRowBytes != 0) {
    runner.fail(cudaErrorMisalignedAddress,
                [&] { return described("store_box", where) + ": not 128-byte aligned"; });
  }
  const BoxStore store = {&this_block(), shared, map, column, row, false};
  if (runner.toss()) return perform(store);
  runner.current().stores.push_back(store);
}

void commit_stores() {
  for (BoxStore& store : this_runner().current().stores) store.is_committed = true;
}

void finish_stores() {
  std::vector<BoxStore>& stores = this_runner().current().stores;
  std::erase_if(stores, [](const BoxStore& store) {
    if (store.is_committed) perform(store);
    return store.is_committed;
  });
}

std::uint32_t rank_in_cluster() { return this_block().rank; }

void sync_cluster(Where where) {
  BlockRunner& runner = this_runner();
  runner.warp_rendezvous(kClusterSync, this_warp().members, nullptr, where);
  runner.cluster_rendezvous(where);
}

void perform(const BoxCopy& box) {
  const Tensor tensor = decoded(box.tensor);
  unsigned char* const shared = box.block->shared();
  const auto to = static_cast<std::uint32_t>(static_cast<unsigned char*>(box.to) - shared);
  for (std::uint32_t row = 0; row < tensor.box_rows; ++row) {
    const std::int64_t from_row = std::int64_t{box.row} + row;
    for (std::uint32_t i = 0; i < kBoxColumns; ++i) {
      const std::int64_t from_column = std::int64_t{box.column} + i;
      std::uint16_t element = 0;
      if (has_element(tensor, from_row, from_column)) {
        std::memcpy(&element, element_of(tensor, from_row, from_column), sizeof element);
      }
      std::memcpy(shared + swizzled(to + row * kRowBytes + i * 2), &element, sizeof element);
    }
  }
  const std::int64_t num_bytes = std::int64_t{tensor.box_rows} * kRowBytes;
  add_bytes(*box.block, box.barrier, -num_bytes, "a box that lands, sent by copy_box", box.where);
}

}  // namespace metronome::emulator

void __trap() {
  metronome::emulator::this_runner().fail(cudaErrorLaunchFailure,
                                          [] { return std::string("__trap()"); });
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dimensions,
                                const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill fill) {
  using namespace metronome::emulator;
  constexpr cuuint64_t kMaxDimension = cuuint64_t{1} << 32;
  const bool is_known = type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 && rank == 2 &&
                        interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
                        swizzle == CU_TENSOR_MAP_SWIZZLE_128B &&
                        fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  if (!is_known || box[0] != kBoxColumns || box[1] == 0 || box[1] > 256 ||
      element_strides[0] != 1 || element_strides[1] != 1 ||
      reinterpret_cast<std::uintptr_t>(map) % 64 != 0 ||
      reinterpret_cast<std::uintptr_t>(address) % 16 != 0 || strides[0] % 16 != 0 ||
      std::max(dimensions[0], dimensions[1]) > kMaxDimension ||
      std::min(dimensions[0], dimensions[1]) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Tensor tensor{static_cast<unsigned char*>(address), dimensions[0], dimensions[1],
                      strides[0], box[1]};
  *map = {};
  std::memcpy(map, &tensor, sizeof tensor);
  return CUDA_SUCCESS;
}
