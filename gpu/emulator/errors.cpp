// SPDX-License-Identifier: Apache-2.0
// Names and texts of errors, as in the CUDA runtime.
#include "gpu/emulator/cuda_runtime.h"
#include "gpu/emulator/runtime_types.h"

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

#define ERROR_TEXT(error, text) \
  { error, #error, text }
constexpr ErrorText kTexts[] = {
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInitializationError, "initialization error"),
    ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR_TEXT(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR_TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorNoKernelImageForDevice,
               "no kernel image is available for execution on the device"),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_TEXT(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ERROR_TEXT(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR_TEXT(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR_TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureMerge,
               "operation would result in a merge of separate capture sequences"),
    ERROR_TEXT(cudaErrorStreamCaptureUnmatched,
               "capture was not ended in the same stream as it began"),
    ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_TEXT(cudaErrorStreamCaptureIsolation,
               "dependency created on uncaptured work in another stream"),
    ERROR_TEXT(cudaErrorStreamCaptureImplicit,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR_TEXT(cudaErrorCapturedEvent,
               "operation not permitted on an event last recorded in a capturing stream"),
    ERROR_TEXT(cudaErrorUnknown, "unknown error"),
};
#undef ERROR_TEXT

const ErrorText* find(cudaError_t error) {
  for (const ErrorText& entry : kTexts) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* const entry = find(error);
  return entry == nullptr ? "unrecognized error code" : entry->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* const entry = find(error);
  return entry == nullptr ? "unrecognized error code" : entry->text;
}
