// SPDX-License-Identifier: Apache-2.0
// Symbols for a module of Python that contains Debian's static libraries.
//
// libpng, libjpeg, yaml-cpp and Boost are compiled there for programs, which reach variables of the
// C library without a table of addresses. A module cannot. So it has these variables itself, seen
// by nobody else.
#include <dlfcn.h>

struct _IO_FILE;

namespace {

template <class Value>
Value value_of(const char* name) {
  return *static_cast<Value*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
__attribute__((visibility("hidden"))) _IO_FILE* own_stderr __asm__("stderr") = nullptr;
__attribute__((visibility("hidden"))) char** own_environ __asm__("environ") = nullptr;
// False: the interpreter may have threads from the start.
__attribute__((visibility("hidden"))) char own_threading __asm__("__libc_single_threaded") = 0;
}

namespace {

// Before all others, which may print.
[[gnu::constructor(101)]] void take_variables() {
  own_stderr = value_of<_IO_FILE*>("stderr");
  own_environ = value_of<char**>("environ");
}

}  // namespace
