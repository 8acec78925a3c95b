// SPDX-License-Identifier: Apache-2.0
// The `cpu` section of a scenario.
#pragma once

#include <cstdint>
#include <optional>

#include "core/scenario/backend_sections.h"

namespace metronome {

struct CpuConfig final : BackendSectionOf<CpuConfig> {
  std::optional<std::int64_t> threads;  // auto = the number of CPU cores this process may use
  std::optional<double> kv_cache_gib;   // memory for KV if num_blocks is auto

  const char* key() const override { return "cpu"; }
  const char* doc() const override { return "backend cpu"; }
  void visit(FieldVisitor& visitor) override;
};

}  // namespace metronome
