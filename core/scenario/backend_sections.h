// Sections of a scenario that backends define: core knows none of their keys.
#pragma once

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace metronome {

class FieldVisitor;

// The settings of a backend. One that is made by default has the default of each.
class BackendSection {
 public:
  virtual ~BackendSection() = default;
  virtual std::unique_ptr<BackendSection> clone() const = 0;
  virtual const char* key() const = 0;  // of the section: "cuda"
  virtual const char* doc() const = 0;  // one line for `metronome list keys`
  virtual void visit(FieldVisitor& visitor) = 0;
};

// What clone() is for a struct that can be copied.
template <class Section>
class BackendSectionOf : public BackendSection {
 public:
  std::unique_ptr<BackendSection> clone() const override {
    return std::make_unique<Section>(static_cast<const Section&>(*this));
  }
};

// From now on every scenario has this section, behind those that were registered before. Nothing
// where its key was registered already. Not while scenarios are made on other threads.
void register_backend_section(std::unique_ptr<BackendSection> section);

// The sections of one scenario.
class BackendSections {
 public:
  BackendSections();  // all that are registered, each by default
  BackendSections(const BackendSections& other);
  BackendSections(BackendSections&&) noexcept = default;
  BackendSections& operator=(BackendSections other) noexcept {
    sections_ = std::move(other.sections_);
    return *this;
  }

  // The settings of a backend; those by default where its section is not registered.
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
