// SPDX-License-Identifier: Apache-2.0
// Tells sanitizers about switches between stacks. Does nothing without sanitizers.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define EMULATOR_HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATOR_HAS_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define EMULATOR_HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EMULATOR_HAS_TSAN 1
#endif
#endif

#ifdef EMULATOR_HAS_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef EMULATOR_HAS_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Functions that change stacks are not instrumented. Their entry and exit may belong to two
// different fibers, and the last frames of a fiber never return.
#define EMULATOR_NOT_SANITIZED __attribute__((no_sanitize("address", "thread")))

namespace metronome::emulator {

// AddressSanitizer: called before leaving a stack, and after arriving on another.
#ifdef EMULATOR_HAS_ASAN
EMULATOR_NOT_SANITIZED inline void start_switch(void** fake_stack, const void* bottom,
                                                std::size_t size) {
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
}
EMULATOR_NOT_SANITIZED inline void finish_switch(void* fake_stack, const void*& previous_bottom,
                                                 std::size_t& previous_size) {
  __sanitizer_finish_switch_fiber(fake_stack, &previous_bottom, &previous_size);
}
inline void unpoison(const void* memory, std::size_t size) {
  __asan_unpoison_memory_region(memory, size);
}
inline void poison(const void* memory, std::size_t size) {
  __asan_poison_memory_region(memory, size);
}
#else
EMULATOR_NOT_SANITIZED inline void start_switch(void**, const void*, std::size_t) {}
EMULATOR_NOT_SANITIZED inline void finish_switch(void*, const void*&, std::size_t&) {}
inline void unpoison(const void*, std::size_t) {}
inline void poison(const void*, std::size_t) {}
#endif

// ThreadSanitizer: a shadow of every fiber.
#ifdef EMULATOR_HAS_TSAN
inline void* current_shadow() { return __tsan_get_current_fiber(); }
inline void* create_shadow() { return __tsan_create_fiber(0); }
inline void destroy_shadow(void* shadow) { __tsan_destroy_fiber(shadow); }
EMULATOR_NOT_SANITIZED inline void switch_shadow(void* shadow) {
  __tsan_switch_to_fiber(shadow, 0);
}
#else
inline void* current_shadow() { return nullptr; }
inline void* create_shadow() { return nullptr; }
inline void destroy_shadow(void*) {}
EMULATOR_NOT_SANITIZED inline void switch_shadow(void*) {}
#endif

}  // namespace metronome::emulator
