// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/gemm.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "gpu/engine/gemm_library.h"
#include "gpu/engine/gemm_tuning.h"
#include "gpu/kernels/cuda_check.h"

namespace metronome {
namespace {

constexpr std::array kModes = {GemmMode::Fastest, GemmMode::Invariant};

std::int64_t padded(std::int64_t rows) { return (rows + kGemmRows - 1) / kGemmRows * kGemmRows; }

GemmKey key_of(const GemmShape& shape, GemmMode mode, std::int64_t rows) {
  GemmKey key;
  key.n = shape.n;
  key.k = shape.k;
  key.rows = rows;
  key.adds_output = shape.adds_output;
  key.has_float_output = shape.has_float_output;
  key.is_invariant = mode == GemmMode::Invariant;
  return key;
}

// A shape with an algorithm for every row count.
struct Prepared {
  Prepared(const GemmShape& shape, std::int64_t max_rows)
      : buckets(gemm_buckets(max_rows)), problem(shape, buckets.back()) {}

  std::vector<GemmAlgorithm>& algorithms(GemmMode mode) {
    return algorithms_[static_cast<std::size_t>(mode)];
  }
  const GemmAlgorithm& algorithm(GemmMode mode, std::int64_t rows) {
    const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), rows) - buckets.begin();
    return algorithms(mode)[static_cast<std::size_t>(bucket)];
  }

  std::vector<std::int64_t> buckets;
  GemmProblem problem;
  std::string invariant_fault;

 private:
  std::array<std::vector<GemmAlgorithm>, kModes.size()> algorithms_;  // [mode][bucket]
};

// Takes the store's algorithms of a mode. Returns false if one is missing, or if the mode or this
// library does not allow it.
bool read_stored(const GemmStore& store, const GemmLibrary& library, Prepared& prepared,
                 GemmMode mode) {
  std::vector<GemmAlgorithm> taken;
  std::int32_t id = -1;
  for (std::size_t i = 0; i < prepared.buckets.size(); ++i) {
    const GemmChoice* choice =
        store.find(key_of(prepared.problem.shape(), mode, prepared.buckets[i]));
    if (choice == nullptr ||
        !can_run_bucket(library, prepared.problem, mode, prepared.buckets, i, choice->algorithm)) {
      return false;
    }
    // All must have one id. A choice with another id may come from another set of kernels.
    const std::int32_t choice_id = gemm_traits(choice->algorithm).value().id;
    if (mode == GemmMode::Invariant && i > 0 && choice_id != id) return false;
    id = choice_id;
    taken.push_back(choice->algorithm);
  }
  prepared.algorithms(mode) = std::move(taken);
  return true;
}

void put_choices(GemmStore& store, Prepared& prepared, GemmMode mode,
                 const std::vector<GemmChoice>& choices) {
  prepared.algorithms(mode).clear();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    store.put(key_of(prepared.problem.shape(), mode, prepared.buckets[i]), choices[i]);
    prepared.algorithms(mode).push_back(choices[i].algorithm);
  }
}

// Invariant choices for larger buckets were compared with another set of kernels.
void erase_invariant(GemmStore& store, const GemmShape& shape) {
  std::vector<GemmKey> outdated;
  for (const auto& [key, choice] : store.choices()) {
    if (key == key_of(shape, GemmMode::Invariant, key.rows)) outdated.push_back(key);
  }
  for (const GemmKey& key : outdated) store.erase(key);
}

}  // namespace

GemmShape gemm_shape(const LayerProduct& product) {
  return {.n = product.n,
          .k = product.k,
          .adds_output = product.adds_output,
          .has_float_output = product.has_float_output};
}

struct Gemm::Impl {
  Impl(GemmStore& choices, std::int64_t workspace_bytes)
      : store(choices), library(workspace_bytes) {}

  GemmStore& store;
  GemmLibrary library;
  std::map<GemmShape, std::unique_ptr<Prepared>> prepared;
};

Gemm::Gemm(GemmStore& store, std::int64_t workspace_bytes)
    : impl_(std::make_unique<Impl>(store, workspace_bytes)) {}

Gemm::~Gemm() = default;

void Gemm::prepare(const GemmShape& shape, std::int64_t max_rows) {
  METRONOME_CHECK(max_rows > 0, "a product of no rows");
  std::unique_ptr<Prepared>& slot = impl_->prepared[shape];
  if (slot && slot->problem.max_rows() >= max_rows) return;
  auto prepared = std::make_unique<Prepared>(shape, max_rows);
  const bool has_all = std::all_of(kModes.begin(), kModes.end(), [&](GemmMode mode) {
    return read_stored(impl_->store, impl_->library, *prepared, mode);
  });
  if (!has_all) {
    const GemmChoices choices = choose_gemms(impl_->library, prepared->problem, prepared->buckets);
    erase_invariant(impl_->store, shape);
    put_choices(impl_->store, *prepared, GemmMode::Fastest, choices.fastest);
    put_choices(impl_->store, *prepared, GemmMode::Invariant, choices.invariant);
    prepared->invariant_fault = choices.invariant_fault;
  }
  slot = std::move(prepared);
}

std::string Gemm::invariant_fault() const {
  for (const auto& [shape, prepared] : impl_->prepared) {
    if (prepared && !prepared->invariant_fault.empty()) return prepared->invariant_fault;
  }
  return {};
}

std::string Gemm::describe_invariant(const std::function<void()>& poll) const {
  std::string text;
  for (const auto& [shape, prepared] : impl_->prepared) {
    if (!prepared) continue;
    text += product_name(key_of(shape, GemmMode::Invariant, 0)) + "\n";
    if (!prepared->invariant_fault.empty()) text += "  " + prepared->invariant_fault + "\n";
    try {
      text += describe_invariant_gemms(impl_->library, prepared->problem, prepared->buckets,
                                       prepared->algorithms(GemmMode::Invariant), poll);
    } catch (const CudaError& error) {
      text += std::string("  cannot be compared: ") + error.what() + "\n";
    }
  }
  return text;
}

void Gemm::run(const GemmShape& shape, GemmMode mode, std::int64_t m, const __nv_bfloat16* w,
               const __nv_bfloat16* x, void* y, cudaStream_t stream) const {
  if (m == 0) return;
  const auto found = impl_->prepared.find(shape);
  METRONOME_CHECK(found != impl_->prepared.end() && found->second, "a shape without prepare()");
  Prepared& prepared = *found->second;
  METRONOME_CHECK(mode == GemmMode::Fastest || prepared.invariant_fault.empty(),
                  prepared.invariant_fault);
  const std::int64_t rows = padded(m);
  METRONOME_CHECK(m > 0 && rows <= prepared.problem.max_rows(), "more rows than prepared for");
  prepared.problem.run(impl_->library, mode, rows, prepared.algorithm(mode, rows), w, x, y, stream);
}

std::string gemm_machine_key(std::int64_t workspace_bytes) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties = {};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  int driver = 0;
  check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return std::string(properties.name) + ", " + std::to_string(properties.multiProcessorCount) +
         " SMs, driver " + std::to_string(driver) + ", cuBLASLt " +
         std::to_string(cublasLtGetVersion()) + ", workspace " + std::to_string(workspace_bytes);
}

}  // namespace metronome
