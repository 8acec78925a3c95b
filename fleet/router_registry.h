// SPDX-License-Identifier: Apache-2.0
// Every router by name: the program that it reproduces, what it is told, and its factory.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fleet/router.h"

namespace metronome {

struct RouterCaseFormat;  // fleet/decisions

// The evidence for a router's rule.
enum class RouterEvidence : std::uint8_t {
  Own,       // a textbook rule, of no program
  Recorded,  // identical to recorded decisions of the running program
  Read,      // from its source; the program was not run
};

struct RouterInfo {
  std::string_view name;
  std::string_view summary;      // one line
  std::string_view source = {};  // program and version
  RouterEvidence evidence = RouterEvidence::Own;
  // Settings of its own: `visit_settings_of<T>`; nullptr: none.
  void (*visit)(FieldVisitor&, PolicySettings&) = nullptr;
  // It decides by the requests alone, whatever replicas do: so it may decide ahead of time.
  bool is_blind = false;
  // It hears of stored and removed blocks.
  bool hears_blocks = false;
  // The time between reports of the replicas; 0: it asks for none.
  double report_ms = 0;
  // The command of the program with these settings, or the configuration that it reads; nullptr:
  // there is none, or nobody knows.
  std::string (*command)(const PolicySettings&) = nullptr;
  const RouterCaseFormat* cases = nullptr;  // of its recorded decisions; nullptr: it has none
  std::unique_ptr<Router> (*make)(const RouterContext&) = nullptr;
};

constexpr std::size_t kMostRouters = 64;
std::span<const RouterInfo> all_routers();  // at most kMostRouters
// Makes their names and settings known to scenarios. Call it once, at the start.
void register_routers();
// Adds a router to ours. Those that are there stay where they are. Call it while nobody reads a
// scenario or runs one.
void register_router(const RouterInfo& router);
const RouterInfo* find_router(std::string_view name);  // nullptr when unknown

}  // namespace metronome
