// SPDX-License-Identifier: Apache-2.0
#define METRONOME_KERNELS kernels_avx512
#define METRONOME_KERNELS_NAME "avx512"
#include "cpu/kernels_impl.h"

namespace metronome {
extern const Kernels kAvx512Kernels;
const Kernels kAvx512Kernels = kernels_avx512::kKernels;
}  // namespace metronome
