# SPDX-License-Identifier: Apache-2.0
# A toolchain for 64-bit ARM on Debian, with libraries of the packages :arm64. tools/check_aarch64
# uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
