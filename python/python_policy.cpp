// SPDX-License-Identifier: Apache-2.0
#include "python/python_policy.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/core.h>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/command_errors.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/config/config_reader.h"
#include "core/config/config_writer.h"
#include "core/engine/policies/registry.h"
#include "core/engine/policy.h"
#include "python/policy_view.h"

namespace metronome::python {

namespace nb = nanobind;

namespace {

constexpr std::size_t kMostPolicies = 32;

// A registered policy of Python. It stays where it is until the process ends.
struct Slot {
  PolicyDescription description;
  std::vector<std::string_view> shared_keys;
};

std::array<Slot*, kMostPolicies> slots{};

// The values of a policy's own keys. Their type tells policies apart (PolicySettings).
template <std::size_t N>
struct SlotValues {
  OwnValues values = default_values(slots[N]->description.own_keys);
};

template <std::size_t N>
void visit_slot(FieldVisitor& visitor, PolicySettings& settings) {
  visit_own_keys(visitor, slots[N]->description.own_keys, settings.edit<SlotValues<N>>().values);
}

// The values of all keys that the policy reads, as a dict.
nb::dict values_of(const Slot& slot, const PolicyContext& context, const OwnValues& own) {
  nb::dict values;
  SchedulerConfig config = context.config;
  const Json all =
      fields_to_value([&config](FieldVisitor& visitor) { visit_fields(visitor, config); });
  const nb::object loads = nb::module_::import_("json").attr("loads");
  for (const std::string& key : slot.description.shared_keys) {
    const Json* const value = all.find(key);
    const std::string text = value == nullptr ? "null" : value->dump();
    values[key.c_str()] = text == "\"auto\"" ? nb::none() : loads(text);
  }
  if (values.contains("max_num_batched_tokens")) {
    values["max_num_batched_tokens"] = token_budget(context.config);
  }
  add_own_values(slot.description.own_keys, own, values);
  return values;
}

// Calls the functions of a policy of Python. Each call takes the interpreter's lock.
class PythonPolicy final : public Policy {
 public:
  PythonPolicy(const Slot& slot, const PolicyContext& context, const OwnValues& own) {
    const nb::gil_scoped_acquire lock;
    view_ = std::make_shared<BooksView>();
    books_ = nb::cast(view_);
    policy_ = slot.description.make(values_of(slot, context, own));
    fill_ = policy_.attr("fill");
    has_on_end_ = nb::hasattr(policy_, "on_end");
    has_on_enqueue_ = nb::hasattr(policy_, "on_enqueue");
    has_refusal_ = nb::hasattr(policy_, "refusal");
    const bool has_budget =
        std::count(slot.description.shared_keys.begin(), slot.description.shared_keys.end(),
                   "max_num_batched_tokens") > 0;
    if (has_budget) max_tokens_ = token_budget(context.config);
  }
  ~PythonPolicy() override {
    const nb::gil_scoped_acquire lock;
    view_->close();
    fill_.reset();
    policy_.reset();
    books_.reset();
    view_.reset();
  }

  std::int64_t max_tokens_per_step() const override { return max_tokens_; }

  void fill(Books& books) override {
    const nb::gil_scoped_acquire lock;
    view_->open_plan(books, [this] { fill_(books_); });
    const std::int64_t planned = books.plan().num_tokens();
    if (planned <= max_tokens_) return;
    throw PolicyError(fmt::format(
        "a step exceeds its token budget: it has {} tokens; allowed: {}, as max_num_batched_tokens "
        "says",
        planned, max_tokens_));
  }

  std::string refusal(const Books& books, const RequestSpec& spec) const override {
    std::string reason;
    if (has_refusal_) {
      const nb::gil_scoped_acquire lock;
      // The view is of books that a policy may change, but is open for reading alone.
      view_->open(const_cast<Books&>(books), [&] {
        const nb::object answer =
            policy_.attr("refusal")(books_, spec.num_prompt_tokens, spec.limit_tokens());
        if (!answer.is_none()) reason = nb::cast<std::string>(answer);
      });
    }
    return reason.empty() ? Policy::refusal(books, spec) : reason;
  }

  TimeNs wake_time(const Books& books) const override {
    return view_->has_refused() ? 0 : Policy::wake_time(books);
  }

  void on_enqueue(Books& books, Request& request) override {
    if (!has_on_enqueue_) return;
    const nb::gil_scoped_acquire lock;
    view_->open(books, [&] { policy_.attr("on_enqueue")(books_, view_->handle(request)); });
  }

  void on_end(Books& books, const Request& request, EndReason) override {
    const nb::gil_scoped_acquire lock;
    if (has_on_end_) {
      Request& ended = books.requests()[request.id];
      view_->open(books, [&] { policy_.attr("on_end")(books_, view_->handle(ended)); });
    }
    view_->drop(request);
  }

 private:
  std::shared_ptr<BooksView> view_;
  nb::object books_;
  nb::object policy_;
  nb::object fill_;
  bool has_on_end_ = false;
  bool has_on_enqueue_ = false;
  bool has_refusal_ = false;
  std::int64_t max_tokens_ = INT64_MAX;
};

template <std::size_t N>
std::unique_ptr<Policy> make_slot(const PolicyContext& context) {
  return std::make_unique<PythonPolicy>(*slots[N], context,
                                        context.config.settings<SlotValues<N>>().values);
}

struct SlotFunctions {
  void (*visit)(FieldVisitor&, PolicySettings&);
  std::unique_ptr<Policy> (*make)(const PolicyContext&);
};

template <std::size_t... kSlots>
constexpr std::array<SlotFunctions, sizeof...(kSlots)> functions_of(
    std::index_sequence<kSlots...>) {
  return {SlotFunctions{visit_slot<kSlots>, make_slot<kSlots>}...};
}
constexpr std::array kFunctions = functions_of(std::make_index_sequence<kMostPolicies>());

// The keys of registered policies that a policy of Python may read, too.
std::vector<std::string_view> sharable_keys() {
  std::vector<std::string_view> keys;
  for (const PolicyInfo& policy : all_policies()) {
    for (const std::string_view key : policy.keys) {
      if (key != "order" && std::find(keys.begin(), keys.end(), key) == keys.end()) {
        keys.push_back(key);
      }
    }
  }
  return keys;
}

// A policy of Python of that name; null: none.
Slot* find_slot(const std::string& name) {
  for (Slot* slot : slots) {
    if (slot != nullptr && slot->description.name == name) return slot;
  }
  return nullptr;
}

void check_keys(const PolicyDescription& description) {
  const std::vector<std::string_view> known = sharable_keys();
  for (const std::string& key : description.shared_keys) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    throw UsageError(fmt::format("keys: '{}' is no key of our own policies{}; allowed: {}", key,
                                 did_you_mean(key, known), join_names(known)));
  }
  for (const OwnKey& key : description.own_keys) {
    for (const PolicyInfo& policy : all_policies()) {
      if (!reads_key(policy, key.name)) continue;
      throw UsageError(
          fmt::format("{}: is a key of policy {}; allowed: another name, or in `keys` one of {}",
                      key.name, policy.name, join_names(known)));
    }
  }
}

}  // namespace

void register_python_policy(PolicyDescription description) {
  if (Slot* const known = find_slot(description.name)) {
    if (known->description.shared_keys != description.shared_keys ||
        known->description.own_keys != description.own_keys) {
      throw UsageError(fmt::format(
          "policy {}: was registered with other keys; allowed: another name, or the same keys",
          description.name));
    }
    known->description.make = std::move(description.make);
    return;
  }
  if (find_policy(description.name) != nullptr) {
    throw UsageError(
        fmt::format("policy {}: there is one; allowed: another name", description.name));
  }
  check_keys(description);
  const auto place = std::find(slots.begin(), slots.end(), nullptr);
  if (place == slots.end()) {
    throw UsageError(fmt::format("policy {}: is one too many; allowed: {} in a process",
                                 description.name, kMostPolicies));
  }
  auto* const slot = new Slot{std::move(description), {}};
  slot->shared_keys.assign(slot->description.shared_keys.begin(),
                           slot->description.shared_keys.end());
  *place = slot;
  const SlotFunctions& functions = kFunctions[static_cast<std::size_t>(place - slots.begin())];
  const auto reads = [&](std::string_view key) {
    return std::count(slot->shared_keys.begin(), slot->shared_keys.end(), key) > 0;
  };
  register_policy({.name = slot->description.name,
                   .summary = slot->description.summary,
                   .source = "a class of Python",
                   .visit = slot->description.own_keys.empty() ? nullptr : functions.visit,
                   .keys = slot->shared_keys,
                   .allows_allocation = true,
                   .allows_watermark = true,
                   .budget_key = reads("max_num_batched_tokens") ? "max_num_batched_tokens" : "",
                   .chunk_key = reads("prefill_chunk_size") ? "prefill_chunk_size" : "",
                   .prefix_caching = PrefixCaching::OptionalOff,
                   .make = functions.make});
}

}  // namespace metronome::python
