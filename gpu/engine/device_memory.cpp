// SPDX-License-Identifier: Apache-2.0
#include "gpu/engine/device_memory.h"

namespace metronome {

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return Stream(stream);
}

CudaEvent make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  return CudaEvent(event);
}

double elapsed_ms(const CudaEvent& from, const CudaEvent& to) {
  float ms = 0;
  check_cuda(cudaEventElapsedTime(&ms, from.get(), to.get()), "cudaEventElapsedTime");
  return static_cast<double>(ms);
}

}  // namespace metronome
