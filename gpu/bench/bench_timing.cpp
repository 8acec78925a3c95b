// SPDX-License-Identifier: Apache-2.0
#include "gpu/bench/bench_timing.h"

#include <algorithm>

#include "gpu/engine/gemm_tuning.h"
#include "gpu/kernels/draw.h"

namespace metronome {
namespace {

// Half of the bytes are read, half written. The size is many times that of the L2 cache.
double copy_rate(const GpuInfo& gpu, std::int32_t repeats) {
  const auto size = static_cast<std::size_t>(std::min<std::int64_t>(
      gpu.free_bytes / 4, std::max<std::int64_t>(64 * gpu.l2_bytes, 1 << 20)));
  const DeviceArray<std::byte> from(size);
  const DeviceArray<std::byte> to(size);
  const Stream stream = make_stream();
  const Timings times = time_on(stream.get(), repeats, [&] {
    check_cuda(
        cudaMemcpyAsync(to.data(), from.data(), size, cudaMemcpyDeviceToDevice, stream.get()),
        "cudaMemcpyAsync");
  });
  return 2 * static_cast<double>(size) / (median(times.device) * 1e-6);
}

double matrix_rate(std::int64_t size, std::int32_t repeats) {
  const auto elements = static_cast<std::size_t>(size * size);
  const DeviceArray<__nv_bfloat16> w(elements);
  const DeviceArray<__nv_bfloat16> x(elements);
  const DeviceArray<__nv_bfloat16> y(elements);
  const GemmLibrary library(kGemmWorkspaceBytes);
  GemmProblem problem({.n = size, .k = size}, size);
  const GemmAlgorithm algorithm = fastest_gemm(library, problem, size).algorithm;
  const Stream stream = make_stream();
  fill_with_noise(w, 1, stream.get());
  fill_with_noise(x, 2, stream.get());
  const Timings times = time_on(stream.get(), repeats, [&] {
    problem.run(library, GemmMode::Fastest, size, algorithm, w.data(), x.data(), y.data(),
                stream.get());
  });
  const auto side = static_cast<double>(size);
  return 2 * side * side * side / (median(times.device) * 1e-6);
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void fill_with_noise(const DeviceArray<__nv_bfloat16>& array, std::uint64_t key,
                     cudaStream_t stream) {
  launch_draw_weights(key, 0, static_cast<std::int64_t>(array.size()), 1.0f, array.data(), stream);
}

MachineRates measure_rates(const GpuInfo& gpu, std::int32_t repeats,
                           const std::function<void()>& poll) {
  // A real GPU has at least this many SMs. The product keeps all of them busy.
  const std::int64_t matrix_size = gpu.num_processors >= 16 ? 8192 : 64;
  MachineRates rates;
  rates.copy_bytes_per_s = copy_rate(gpu, repeats);
  poll();
  rates.matrix_flops_per_s = matrix_rate(matrix_size, repeats);
  poll();
  return rates;
}

}  // namespace metronome
