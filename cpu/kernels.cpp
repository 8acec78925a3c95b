// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels.h"

#include "core/model/attention_mask.h"

namespace metronome {

extern const Kernels kBaselineKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

std::int32_t first_attended_position(std::int32_t position, std::int32_t window);
std::int32_t first_attended_position(std::int32_t position, std::int32_t window) {
  return first_attended(position, window);
}

std::int64_t attention_scratch_floats(const AttentionTask& task) {
  return 2 * std::int64_t{task.num_rows} + kAttentionRows * (kAttentionScores + task.head_dim);
}

namespace {

struct KernelList {
  const Kernels* sets[3] = {};
  int count = 0;

  KernelList() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      sets[count++] = &kAvx512Kernels;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      sets[count++] = &kAvx2Kernels;
#endif
    sets[count++] = &kBaselineKernels;
  }
};

const KernelList& kernel_list() {
  static const KernelList list;
  return list;
}

}  // namespace

const Kernels& kernels() { return *kernel_list().sets[0]; }

const Kernels* const* all_kernels(int& count) {
  count = kernel_list().count;
  return kernel_list().sets;
}

}  // namespace metronome
