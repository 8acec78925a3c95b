// SPDX-License-Identifier: Apache-2.0
// Scenario sections that backends define; core does not know their keys.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

class FieldVisitor;

// Allowed names in `backends` and --backend.
constexpr std::string_view kBackendNames[] = {"sim", "cpu", "cuda"};

// The settings of a backend. A new section has the default values.
class BackendSection {
 public:
  virtual ~BackendSection() = default;
  virtual std::unique_ptr<BackendSection> clone() const = 0;
  virtual const char* key() const = 0;  // the section's key: "cuda"
  virtual const char* doc() const = 0;  // one line for `metronome list keys`
  virtual void visit(FieldVisitor& visitor) = 0;
};

// Implements clone() for copyable structs.
template <class Section>
class BackendSectionOf : public BackendSection {
 public:
  std::unique_ptr<BackendSection> clone() const override {
    return std::make_unique<Section>(static_cast<const Section&>(*this));
  }
};

// Adds this section to every scenario made afterwards, after those registered before. No effect if
// its key is already registered. Do not call it while other threads make scenarios.
void register_backend_section(std::unique_ptr<BackendSection> section);

// The sections of one scenario.
class BackendSections {
 public:
  BackendSections();  // all registered sections, with default values
  BackendSections(const BackendSections& other);
  BackendSections(BackendSections&&) noexcept = default;
  BackendSections& operator=(BackendSections other) noexcept {
    sections_ = std::move(other.sections_);
    return *this;
  }

  // The settings of a backend; default values if its section is not registered.
  template <class Section>
  const Section& get() const {
    if (const Section* found = find<Section>()) return *found;
    static const Section by_default;
    return by_default;
  }
  template <class Section>
  Section& edit() {
    if (const Section* found = find<Section>()) return const_cast<Section&>(*found);
    sections_.push_back(std::make_unique<Section>());
    return static_cast<Section&>(*sections_.back());
  }

  void visit(FieldVisitor& visitor);

 private:
  template <class Section>
  const Section* find() const {
    for (const std::unique_ptr<BackendSection>& section : sections_) {
      if (const auto* found = dynamic_cast<const Section*>(section.get())) return found;
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<BackendSection>> sections_;
};

}  // namespace metronome
