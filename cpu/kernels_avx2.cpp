// SPDX-License-Identifier: Apache-2.0
#define METRONOME_KERNELS kernels_avx2
#define METRONOME_KERNELS_NAME "avx2"
#include "cpu/kernels_impl.h"

namespace metronome {
extern const Kernels kAvx2Kernels;
const Kernels kAvx2Kernels = kernels_avx2::kKernels;
}  // namespace metronome
