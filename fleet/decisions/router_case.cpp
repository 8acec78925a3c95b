// SPDX-License-Identifier: Apache-2.0
#include "fleet/decisions/router_case.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/rng.h"
#include "core/config/config_node.h"
#include "core/config/config_reader.h"
#include "fleet/decisions/router_case_format.h"

namespace metronome {

namespace {

constexpr std::int64_t kMaxReplicas = 100'000;
constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;

std::vector<ReplicaId> order_at(const JsonPlace& place, std::int32_t num_replicas) {
  std::vector<ReplicaId> order;
  place.for_each([&](const JsonPlace& replica) {
    order.push_back(static_cast<ReplicaId>(replica.integer(0, num_replicas - 1)));
  });
  std::vector<ReplicaId> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  const bool has_twice = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();
  if (has_twice || order.size() != static_cast<std::size_t>(num_replicas)) {
    place.fail("must name each worker once");
  }
  return order;
}

PolicySettings settings_of(const RouterInfo& router, const Json& given, const JsonPlace& place) {
  const auto file = std::make_shared<const std::string>(place.where());
  const ConfigNode node = config_node(given, {file, 0});
  ConfigReader reader(node, "config");
  PolicySettings settings;
  router.visit(reader, settings);
  reader.finish();
  return settings;
}

// A hash for each full block, of all tokens up to its end.
std::vector<std::uint64_t> blocks_of(std::span<const ContentRun> tokens, std::int32_t block_size) {
  std::vector<std::uint64_t> blocks;
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    hash = mix64(hash ^ mix64(tokens[i].source));
    if ((i + 1) % static_cast<std::size_t>(block_size) == 0) blocks.push_back(hash);
  }
  return blocks;
}

}  // namespace

// A byte that continues a character of UTF-8, which JSON is, has 10 as its highest bits.
std::vector<std::uint64_t> read_characters(const JsonPlace& event) {
  std::vector<std::uint64_t> characters;
  for (const char each : event.at("text").text()) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte >> 6 == 2 && !characters.empty()) {
      characters.back() = characters.back() << 8 | byte;
    } else {
      characters.push_back(byte);
    }
  }
  return characters;
}

RouterCase::RouterCase(const RouterInfo& info, const JsonPlace& place)
    : format_(*info.cases), place_(place) {
  num_replicas_ = static_cast<std::int32_t>(
      place.at(std::string(format_.replicas_key)).integer(1, kMaxReplicas));
  RouterContext context{.num_replicas = num_replicas_,
                        .settings = settings_of(info, format_.settings(place), place)};
  if (place.has("order")) context.order = order_at(place.at("order"), num_replicas_);
  if (place.has("block_size")) {
    context.block_size = static_cast<std::int32_t>(place.at("block_size").integer(1, 65536));
  }
  block_size_ = context.block_size;
  router_ = info.make(context);
  place.at("events").for_each([](const JsonPlace& event) { event.at("op"); });
}

std::string RouterCase::name() const {
  return place_.has("case") ? place_.at("case").text() : std::string();
}

std::string_view RouterCase::choice_key() const { return format_.choice_key; }

JsonPlace RouterCase::event_at(std::size_t event) const { return place_.at("events").item(event); }

ReplicaId RouterCase::replica_at(const JsonPlace& place) const {
  return static_cast<ReplicaId>(place.integer(0, num_replicas_ - 1));
}

ReplicaId RouterCase::recorded_choice(std::size_t event) const {
  return replica_at(event_at(event).at(std::string(format_.choice_key)));
}

std::map<std::string, RouterCase::Sent>::iterator RouterCase::find(const JsonPlace& event) {
  const JsonPlace id = event.at("id");
  const auto found = sent_.find(id.json().dump());
  if (found == sent_.end()) id.fail("no such request is there; allowed: one that has arrived");
  return found;
}

std::vector<ReplicaReport> RouterCase::reports_at(const JsonPlace& counts) const {
  std::vector<ReplicaReport> reports;
  counts.for_each([&reports](const JsonPlace& row) {
    reports.push_back({.num_waiting = row.item(0).integer(0, kMaxCount),
                       .num_running = row.item(1).integer(0, kMaxCount),
                       .kv_usage = row.item(2).number(0, 1)});
  });
  if (reports.size() != static_cast<std::size_t>(num_replicas_)) {
    counts.fail(fmt::format("must have an entry for each of {} ranks", num_replicas_));
  }
  return reports;
}

RoutedRequest RouterCase::request_at(const JsonPlace& event) {
  prompt_.clear();
  if (format_.read_prompt != nullptr) {
    for (const std::uint64_t token : format_.read_prompt(event)) prompt_.push_back({token, 0, 1});
  }
  blocks_ = blocks_of(prompt_, block_size_);
  return {.number = num_arrived_,
          .prompt = prompt_,
          .num_prompt_tokens = static_cast<std::int64_t>(prompt_.size()),
          .blocks = blocks_};
}

std::optional<RouterAnswer> RouterCase::apply(std::size_t number) {
  const JsonPlace event = event_at(number);
  const std::string op = event.at("op").text();
  if (op == "arrive") {
    arrived_id_ = event.at("id").json().dump();
    if (sent_.contains(arrived_id_)) event.at("id").fail("a request with this id is there");
    arrived_ = request_at(event);
    RouterAnswer answer;
    if (format_.known != nullptr) answer.known = format_.known(*router_, arrived_, place_);
    const auto choices = router_->choose(arrived_);
    answer.choices.assign(choices.begin(), choices.end());
    return answer;
  }
  if (op == "finish" || op == "free") {
    const auto found = find(event);
    router_->ended(found->second.number, found->second.replica);
    sent_.erase(found);
  } else if (op == "prefill_done") {
    router_->answered(find(event)->second.number);
  } else if (op == "snapshot") {
    router_->reported(reports_at(event.at("counts")));
  } else if (op == "stored" || op == "removed") {
    const RoutedRequest holder = request_at(event);
    const auto last = static_cast<std::int64_t>(holder.blocks.size());
    const auto first = event.has("from_block") ? event.at("from_block").integer(0, last) : 0;
    const ReplicaId replica = replica_at(event.at("worker"));
    if (op == "stored") {
      router_->stored(replica, holder.blocks, static_cast<std::size_t>(first));
    } else if (first < last) {
      router_->removed(replica, holder.blocks[static_cast<std::size_t>(first)]);
    }
  } else {
    event.at("op").fail("unknown event '" + op +
                        "'; allowed: arrive, finish, free, prefill_done, removed, snapshot, "
                        "stored");
  }
  return std::nullopt;
}

void RouterCase::send(ReplicaId replica) {
  sent_[arrived_id_] = {arrived_.number, replica};
  ++num_arrived_;
  router_->sent(arrived_, replica);
}

std::vector<std::string_view> recorded_routers() {
  std::vector<std::string_view> names;
  for (const RouterInfo& router : all_routers()) {
    if (router.cases != nullptr) names.push_back(router.name);
  }
  return names;
}

void for_each_router_case(std::string_view router, const std::string& path,
                          const std::function<void(RouterCase&, std::size_t line)>& visit) {
  const RouterInfo& info = *find_router(router);
  for_each_json_line(path, "cases in JSON, one per line",
                     [&](const JsonPlace& place, std::size_t line) {
                       RouterCase c(info, place);
                       visit(c, line + 1);
                     });
}

}  // namespace metronome
