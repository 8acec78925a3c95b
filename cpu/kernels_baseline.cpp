// SPDX-License-Identifier: Apache-2.0
#define METRONOME_KERNELS kernels_baseline
#define METRONOME_KERNELS_NAME "baseline"
#include "cpu/kernels_impl.h"

namespace metronome {
extern const Kernels kBaselineKernels;
const Kernels kBaselineKernels = kernels_baseline::kKernels;
}  // namespace metronome
