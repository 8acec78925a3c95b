// SPDX-License-Identifier: Apache-2.0
// A place to sweep in, and what a sweep there leaves behind.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "study/sweep/sweep_plan.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing {

struct SweepPlace {
  ScratchFolder folder;
  std::string scenario = folder.write("small.yaml", kSmallScenario);
  std::string out = folder.path() + "/out";
  std::string log = folder.path() + "/log";

  CommandResult sweep(const std::string& options, const std::string& prefix = "") const {
    return run_metronome(
        "sweep '" + scenario + "' --out '" + out + "' --log '" + log + "' " + options, prefix);
  }
  // The files that a sweep leaves behind.
  std::map<std::string, std::string> content() const { return folder_content(out); }
  Json summary() const { return Json::parse(read_text_file(out + "/summary.json")); }
  // Ids in the log behind `what`, in order.
  std::vector<std::string> logged(const std::string& what) const {
    std::vector<std::string> ids;
    std::istringstream lines(read_text_file(log));
    std::string word, id, process;
    while (lines >> word >> id >> process) {
      if (word == what) ids.push_back(id);
    }
    return ids;
  }
  std::vector<std::string> run_folders() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(out)) {
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
};

inline void require_done(const CommandResult& result) {
  INFO("stderr: " << result.err);
  REQUIRE(result.exit_code == 0);
}

inline SweepPlan plan_of(const SweepPlace& place, const std::vector<std::string>& over,
                         const SweepRequest& base = {}) {
  SweepRequest request = base;
  request.scenario = place.scenario;
  if (request.backend.empty()) request.backend = "sim";
  const ScenarioFile file = load_scenario(place.scenario, request.assignments, request.seed);
  return plan_sweep(request, read_sweep(file, over), 2);
}

}  // namespace metronome::testing
