// The runs of a sweep, resolved and validated before the first of them starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "study/sweep/source_digest.h"
#include "study/sweep/sweep_points.h"

namespace metronome {

struct SweepRequest {
  std::string scenario;                  // path
  std::vector<std::string> assignments;  // --set
  std::vector<std::string> variants;     // names; empty = all
  std::optional<std::uint64_t> seed;
  std::string backend;
  int num_runs = 1;  // of each point, for backends that measure
  std::string program{kSourceDigest};
};

// One scenario to run once: one variant at one point.
struct SweepRun {
  // 32 hexadecimal digits that stand for everything the result depends on: the resolved
  // configuration, the model and the hardware it names, the content of the trace, the backend, the
  // label, the run number and the program (kSourceDigest), so that a changed one runs anew what an
  // earlier one had done, beside it. The name of its folder.
  std::string id;
  Scenario scenario;
  int run_number = 0;
  std::size_t first_row = 0;  // the first of the plan's rows that shows it
  std::string workload_key;   // equal keys: equal workloads
  std::int64_t cost = 0;      // larger runs longer, as far as can be told without running
};

// One line of the summary. Rows that come out the same (a variant that overrides what varies) share
// a run.
struct SweepRow {
  std::size_t run = 0;             // index into SweepPlan::runs
  std::vector<Assignment> values;  // of the point
};

struct SweepPlan {
  std::vector<std::string> keys;  // that vary
  std::vector<SweepRun> runs;     // in order of their first row
  std::vector<SweepRow> rows;     // by valid point, then by variant, then by run number
  std::size_t num_points = 0;
  // Of the points at which the scenario is no valid one, and which have no rows: "--over KEY: at
  // the point KEY=VALUE: what is wrong; what is allowed".
  std::vector<std::string> invalid;
  // "--over KEY: does not vary VARIANT, ...", of variants that are the same at all its values.
  std::vector<std::string> remarks;
};

// "chunked scheduler.policy=vllm seed=3": the first row of a run of the plan, with the variant's,
// or the scenario's, name. Printable.
std::string run_text(const SweepPlan& plan, const SweepRun& run);

// Throws ConfigError naming the point for a key that there is not, and when the scenario is valid
// at no point. What only a run can tell, such as a model that does not fit into the device, is not
// found out here.
//
// Several threads make the same plan sooner. Points write steps.jsonl, requests.jsonl and
// trace.json only where the scenario or `--set` says so.
SweepPlan plan_sweep(const SweepRequest& request, const SweepSpec& spec, int num_threads);

// 32 hexadecimal digits that stand for all runs of the plan.
std::string plan_id(const SweepPlan& plan);

}  // namespace metronome
