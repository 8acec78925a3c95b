// Tensor maps of the KV cache, for the kernel that reads it through the bulk copy engine.
#pragma once

#include "gpu/device_kv_cache.h"
#include "gpu/kernels/kv_tensors.h"

namespace metronome {

// Of keys and values of one layer. Throws CudaError where the driver has no tensor maps or refuses
// one. Requires can_attend_by_wgmma, and fewer than 2^31 rows.
KvTensors make_kv_tensors(const __nv_bfloat16* keys, const __nv_bfloat16* values,
                          const DeviceKvShape& shape);

}  // namespace metronome
