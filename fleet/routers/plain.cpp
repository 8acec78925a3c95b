// SPDX-License-Identifier: Apache-2.0
// Rules of no program: in turn, by lot, by load, by session.
#include "core/base/rng.h"
#include "fleet/routers/routers.h"

namespace metronome {
namespace {

class RoundRobin final : public Router {
 public:
  using Router::Router;

 private:
  void decide(const RoutedRequest&) override {
    choices().push_back(listed()[next_++ % listed().size()]);
  }

  std::size_t next_ = 0;
};

class RandomRouter final : public Router {
 public:
  using Router::Router;

 private:
  void decide(const RoutedRequest&) override { choices().assign(listed().begin(), listed().end()); }
};

class LeastLoaded final : public Router {
 public:
  using Router::Router;

 private:
  void decide(const RoutedRequest&) override {
    choices().push_back(first_lowest([this](ReplicaId each) { return in_flight(each); }));
  }
};

// Draws two replicas and takes the one with fewer requests, the first drawn of equal ones.
class PowerOfTwo final : public Router {
 public:
  explicit PowerOfTwo(const RouterContext& context)
      : Router(context), rng_(context.seed, "power_of_two") {}

 private:
  void decide(const RoutedRequest&) override {
    const auto last = static_cast<std::int64_t>(listed().size()) - 1;
    std::int64_t first = rng_.uniform_int(0, last);
    if (last == 0) return choices().push_back(listed().front());
    std::int64_t second = rng_.uniform_int(0, last - 1);
    if (second >= first) ++second;
    const ReplicaId a = listed()[static_cast<std::size_t>(first)];
    const ReplicaId b = listed()[static_cast<std::size_t>(second)];
    choices().push_back(in_flight(a) <= in_flight(b) ? a : b);
  }

  Rng rng_;
};

// Rendezvous hashing: a session stays where it is unless its replica goes. A request without a
// session is one by itself.
class SessionRouter final : public Router {
 public:
  using Router::Router;

 private:
  void decide(const RoutedRequest& request) override {
    const std::uint64_t key = request.session != 0
                                  ? mix64(request.session)
                                  : ~mix64(static_cast<std::uint64_t>(request.number));
    choices().push_back(first_lowest(
        [key](ReplicaId each) { return mix64(key ^ mix64(static_cast<std::uint64_t>(each))); }));
  }
};

template <class T>
std::unique_ptr<Router> make(const RouterContext& context) {
  return std::make_unique<T>(context);
}

}  // namespace

const RouterInfo kRoundRobin = {
    .name = "round_robin",
    .summary = "one replica after the other",
    .is_blind = true,
    .make = make<RoundRobin>};
const RouterInfo kRandomRouter = {
    .name = "random",
    .summary = "any replica, by lot",
    .is_blind = true,
    .make = make<RandomRouter>};
const RouterInfo kLeastLoaded = {.name = "least_loaded",
                                 .summary = "the replica with the fewest requests in flight",
                                 .make = make<LeastLoaded>};
const RouterInfo kPowerOfTwo = {.name = "power_of_two",
                                .summary =
                                    "of two replicas drawn by lot, the one with fewer "
                                    "requests in flight",
                                .make = make<PowerOfTwo>};
const RouterInfo kSessionRouter = {.name = "session",
                                   .summary = "all requests of a session to one replica, by hash",
                                   .is_blind = true,
                                   .make = make<SessionRouter>};

}  // namespace metronome
