// SPDX-License-Identifier: Apache-2.0
// Bounds on templates and renderings. Templates and conversations come from others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace metronome {

struct JinjaLimits {
  // An evaluated expression or statement is a step, and so are 64 bytes that an operation makes.
  std::int64_t max_steps = 20'000'000;
  std::size_t max_output_bytes = std::size_t{64} << 20;
  std::size_t max_live_bytes = std::size_t{128} << 20;  // of all values at one time, about
};

constexpr std::size_t kMaxTemplateBytes = std::size_t{1} << 20;
// Of expressions and blocks in each other.
constexpr int kMaxSyntaxDepth = 100;
// Of lists and dictionaries in each other.
constexpr int kMaxValueDepth = 100;
// Of evaluations in each other, calls of macros included.
constexpr int kMaxCallDepth = 600;
// The most numbers of a range, as in jinja2's sandbox.
constexpr std::int64_t kMaxRange = 100'000;

}  // namespace metronome
