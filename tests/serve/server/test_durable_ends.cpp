// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "serve/server/answer_ticket.h"
#include "serve/server/durable_ends.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;
namespace {

LiveEvent event_of(std::uint64_t number, LiveEventKind kind) {
  LiveEvent event;
  event.ticket = ticket_of(number, 3);
  event.kind = kind;
  return event;
}
LiveEvent token(std::uint64_t number) { return event_of(number, LiveEventKind::Token); }
LiveEvent end(std::uint64_t number) { return event_of(number, LiveEventKind::Ended); }

// The events that a client may see, such as "t7 e8": a token of 7, the end of 8.
std::string seen(DurableEnds& ends, std::vector<LiveEvent> events) {
  std::string text;
  ends.pass(events, [&](const LiveEvent& event) {
    text += (text.empty() ? "" : " ") +
            std::string(event.kind == LiveEventKind::Ended ? "e" : "t") +
            std::to_string(number_of(event.ticket));
  });
  return text;
}

}  // namespace

TEST_CASE("a ticket is a request's number and a choice", "[serve]") {
  const Ticket ticket = ticket_of(0x1234567890, 0xffff);
  CHECK(number_of(ticket) == 0x1234567890);
  CHECK(choice_of(ticket) == 0xffff);
}

TEST_CASE("ends wait until they are recorded, and tokens do not wait for them", "[serve]") {
  std::int64_t num_recorded = 1;
  DurableEnds ends([&] { return num_recorded; });
  CHECK(ends.records());
  CHECK(seen(ends, {token(1), end(1), token(2), end(2), end(3), token(4), end(2)}) ==
        "t1 e1 t2 t4");
  CHECK_FALSE(ends.holds(1));
  CHECK(ends.holds(2));
  CHECK(seen(ends, {}).empty());
  num_recorded = 3;
  CHECK(seen(ends, {token(4)}) == "e2 e3 t4");
  CHECK(ends.holds(2));  // its other end
  CHECK_FALSE(ends.holds(3));
  num_recorded = 9;
  CHECK(seen(ends, {end(5)}) == "e2 e5");
  CHECK_FALSE(ends.holds(2));
}

TEST_CASE("without a record no end waits", "[serve]") {
  DurableEnds ends({});
  CHECK_FALSE(ends.records());
  CHECK(seen(ends, {end(1), token(2), end(2)}) == "e1 t2 e2");
}

}  // namespace TEST_FILE
