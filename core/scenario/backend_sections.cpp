// SPDX-License-Identifier: Apache-2.0
#include "core/scenario/backend_sections.h"

#include "core/config/config_reader.h"

namespace metronome {
namespace {

std::vector<std::unique_ptr<BackendSection>>& registered() {
  static std::vector<std::unique_ptr<BackendSection>> sections;
  return sections;
}

std::vector<std::unique_ptr<BackendSection>> clones_of(
    const std::vector<std::unique_ptr<BackendSection>>& sections) {
  std::vector<std::unique_ptr<BackendSection>> clones;
  for (const std::unique_ptr<BackendSection>& section : sections) {
    clones.push_back(section->clone());
  }
  return clones;
}

}  // namespace

void register_backend_section(std::unique_ptr<BackendSection> section) {
  const std::string_view key = section->key();
  for (const std::unique_ptr<BackendSection>& known : registered()) {
    if (known->key() == key) return;
  }
  registered().push_back(std::move(section));
}

BackendSections::BackendSections() : sections_(clones_of(registered())) {}

BackendSections::BackendSections(const BackendSections& other)
    : sections_(clones_of(other.sections_)) {}

void BackendSections::visit(FieldVisitor& visitor) {
  for (const std::unique_ptr<BackendSection>& section : sections_) {
    if (!visitor.open_section(section->key(), section->doc())) continue;
    section->visit(visitor);
    visitor.close_section();
  }
}

}  // namespace metronome
