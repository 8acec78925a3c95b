// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

// Catch2 2.13 brings its main function in a header; 3.x in a library of its own.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif

namespace {
// The output of a test is kept also when it is killed.
[[maybe_unused]] const int kLineBuffered = std::setvbuf(stdout, nullptr, _IOLBF, 0);
}  // namespace
