// SPDX-License-Identifier: Apache-2.0
#include "python/python_router.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fmt/core.h>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "fleet/router_registry.h"
#include "python/policy_view.h"

namespace metronome::python {

namespace nb = nanobind;

namespace {

constexpr std::size_t kMostOwnRouters = 16;

// A registered router of Python. It stays where it is until the process ends.
std::array<RouterDescription*, kMostOwnRouters> slots{};

// The values of a router's own keys. Their type tells routers apart (PolicySettings).
template <std::size_t N>
struct RouterValues {
  OwnValues values = default_values(slots[N]->own_keys);
};

template <std::size_t N>
void visit_router(FieldVisitor& visitor, PolicySettings& settings) {
  visit_own_keys(visitor, slots[N]->own_keys, settings.edit<RouterValues<N>>().values);
}

// A fleet as a router of Python sees it. It can be read while the router is called.
struct FleetView {
  std::vector<ReplicaId> up;
  std::vector<std::int64_t> in_flight;  // by replica
  std::vector<ReplicaReport> reports;   // by replica; empty: none came yet
  std::int32_t block_size = 0;
  CacheView* caches = nullptr;
  const RoutedRequest* request = nullptr;  // while choose() is called

  std::vector<std::int64_t> cached_tokens() const {
    if (caches == nullptr || request == nullptr) {
      throw PolicyError(
          "cached_tokens: nobody reports blocks; allowed: in choose() of a router with "
          "hears_blocks = True");
    }
    std::vector<std::int64_t> tokens(in_flight.size(), 0);
    caches->count_cached(*request, tokens);
    for (std::int64_t& count : tokens) count *= block_size;
    return tokens;
  }
};

// Copies, as the router may keep them.
struct RoutedView {
  std::int64_t number = 0;
  TimeNs now = 0;
  std::int64_t num_prompt_tokens = 0;
  std::uint64_t session = 0;
};

// Calls the functions of a router of Python. Each call takes the interpreter's lock.
class PythonRouter final : public Router {
 public:
  PythonRouter(const RouterDescription& description, const RouterContext& context,
               const OwnValues& own)
      : Router(context) {
    const nb::gil_scoped_acquire lock;
    view_ = std::make_shared<FleetView>();
    view_->block_size = context.block_size;
    if (description.hears_blocks) view_->caches = context.caches;
    fleet_ = nb::cast(view_);
    nb::dict values;
    values["num_replicas"] = context.num_replicas;
    add_own_values(description.own_keys, own, values);
    router_ = description.make(values);
    choose_ = router_.attr("choose");
    for (const char* name : {"on_sent", "on_first_token", "on_end"}) {
      hooks_.push_back(nb::hasattr(router_, name) ? router_.attr(name) : nb::none());
    }
  }
  ~PythonRouter() override {
    const nb::gil_scoped_acquire lock;
    view_->caches = nullptr;
    hooks_.clear();
    choose_.reset();
    router_.reset();
    fleet_.reset();
    view_.reset();
  }

  void sent(const RoutedRequest& request, ReplicaId replica) override {
    Router::sent(request, replica);
    call(kSent, request.number, replica);
  }
  void answered(std::int64_t request) override { call(kFirstToken, request); }
  void ended(std::int64_t request, ReplicaId replica) override {
    Router::ended(request, replica);
    call(kEnd, request, replica);
  }
  void reported(std::span<const ReplicaReport> reports) override {
    view_->reports.assign(reports.begin(), reports.end());
  }

 private:
  enum Hook : std::uint8_t { kSent, kFirstToken, kEnd };

  template <class... Arguments>
  void call(Hook hook, Arguments... arguments) {
    if (hooks_[hook].is_none()) return;
    const nb::gil_scoped_acquire lock;
    hooks_[hook](arguments...);
  }

  void decide(const RoutedRequest& request) override {
    const nb::gil_scoped_acquire lock;
    view_->up.assign(listed().begin(), listed().end());
    view_->in_flight.assign(num_in_flight().begin(), num_in_flight().end());
    view_->request = &request;
    nb::object answer;
    try {
      answer = choose_(fleet_, RoutedView{request.number, request.now, request.num_prompt_tokens,
                                          request.session});
    } catch (...) {
      view_->request = nullptr;
      throw;
    }
    view_->request = nullptr;
    if (!nb::isinstance<nb::int_>(answer) && nb::isinstance<nb::sequence>(answer)) {
      for (const nb::handle one : answer) add_choice(one);
    } else {
      add_choice(answer);
    }
    if (choices().empty()) {
      throw PolicyError("choose() returned no replica; allowed: one of fleet.up, or several");
    }
  }

  void add_choice(nb::handle answer) {
    std::int64_t replica = -1;
    const bool is_up = nb::try_cast(answer, replica) &&
                       std::find(listed().begin(), listed().end(),
                                 static_cast<ReplicaId>(replica)) != listed().end();
    if (!is_up) {
      throw PolicyError(
          fmt::format("choose() returned {}; allowed: a number of fleet.up, or "
                      "several, among which a lot is drawn",
                      nb::cast<std::string>(nb::repr(answer))));
    }
    choices().push_back(static_cast<ReplicaId>(replica));
  }

  std::shared_ptr<FleetView> view_;
  nb::object fleet_;
  nb::object router_;
  nb::object choose_;
  std::vector<nb::object> hooks_;  // by Hook; None: it has none
};

template <std::size_t N>
std::unique_ptr<Router> make_router(const RouterContext& context) {
  return std::make_unique<PythonRouter>(*slots[N], context,
                                        context.settings.get<RouterValues<N>>().values);
}

struct SlotFunctions {
  void (*visit)(FieldVisitor&, PolicySettings&);
  std::unique_ptr<Router> (*make)(const RouterContext&);
};

template <std::size_t... kSlots>
constexpr std::array<SlotFunctions, sizeof...(kSlots)> router_functions(
    std::index_sequence<kSlots...>) {
  return {SlotFunctions{visit_router<kSlots>, make_router<kSlots>}...};
}
constexpr std::array kRouterFunctions =
    router_functions(std::make_index_sequence<kMostOwnRouters>());

}  // namespace

void register_python_router(RouterDescription description) {
  for (RouterDescription* const known : slots) {
    if (known == nullptr || known->name != description.name) continue;
    if (known->own_keys != description.own_keys ||
        known->hears_blocks != description.hears_blocks ||
        known->report_ms != description.report_ms) {
      throw UsageError(fmt::format(
          "router {}: was registered with other keys; allowed: another name, or the same keys",
          description.name));
    }
    known->make = std::move(description.make);
    return;
  }
  if (find_router(description.name) != nullptr) {
    throw UsageError(
        fmt::format("router {}: there is one; allowed: another name", description.name));
  }
  const auto place = std::find(slots.begin(), slots.end(), nullptr);
  if (place == slots.end()) {
    throw UsageError(fmt::format("router {}: is one too many; allowed: {} in a process",
                                 description.name, kMostOwnRouters));
  }
  *place = new RouterDescription(std::move(description));
  const RouterDescription& slot = **place;
  const SlotFunctions& functions =
      kRouterFunctions[static_cast<std::size_t>(place - slots.begin())];
  register_router({.name = slot.name,
                   .summary = slot.summary,
                   .source = "a class of Python",
                   .visit = slot.own_keys.empty() ? nullptr : functions.visit,
                   .hears_blocks = slot.hears_blocks,
                   .report_ms = slot.report_ms,
                   .make = functions.make});
}

void define_router_view(nb::module_& module) {
  nb::class_<RoutedView>(module, "RoutedRequest", "A request, when a router decides.")
      .def_ro("number", &RoutedView::number, "No other request of the fleet has it.")
      .def_ro("now_ns", &RoutedView::now, "Nanoseconds since the start of the clock.")
      .def_ro("prompt_tokens", &RoutedView::num_prompt_tokens, "Tokens of its prompt.")
      .def_ro("session", &RoutedView::session,
              "Requests with the same one belong together; 0: it has none.");
  nb::class_<ReplicaReport>(module, "ReplicaReport", "A replica's report of itself.")
      .def_ro("waiting", &ReplicaReport::num_waiting, "Requests in its queue.")
      .def_ro("running", &ReplicaReport::num_running, "Requests that run.")
      .def_ro("kv_usage", &ReplicaReport::kv_usage, "Share of its KV blocks, 0 to 1.");
  nb::class_<FleetView>(module, "Fleet", "What a router knows of its replicas.")
      .def_ro("up", &FleetView::up, "The replicas that take requests, by number.")
      .def_ro("in_flight", &FleetView::in_flight,
              "By replica: requests that were sent and have not ended.")
      .def_ro("reports", &FleetView::reports,
              "By replica: the last reports, every report_ms; empty before the first.")
      .def_prop_ro("cached_tokens", &FleetView::cached_tokens,
                   "By replica: the first tokens of this prompt that its KV cache has, in whole "
                   "blocks. For routers with hears_blocks.");
}

}  // namespace metronome::python
