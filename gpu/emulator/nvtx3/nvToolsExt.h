// SPDX-License-Identifier: Apache-2.0
// Ranges for profilers. They do nothing here.
#pragma once

inline int nvtxRangePushA(const char*) { return 0; }
inline int nvtxRangePop() { return 0; }
