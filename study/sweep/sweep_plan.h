// SPDX-License-Identifier: Apache-2.0
// The runs of a sweep, resolved and validated before the first run starts.
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
  int num_runs = 1;  // per point, for backends that measure
  std::string program{kSourceDigest};
};

// One scenario to run once: one variant at one point.
struct SweepRun {
  // 32 hexadecimal digits that identify everything the result depends on: the resolved
  // configuration, the model and hardware it names, the content of the trace, the backend, the
  // label, the run number and the program (kSourceDigest). So a changed program repeats the runs of
  // an earlier one and keeps both results. Also the name of the run's folder.
  std::string id;
  Scenario scenario;
  int run_number = 0;
  std::size_t first_row = 0;  // the first of the plan's rows with this run
  std::string workload_key;   // equal keys mean equal workloads
  std::int64_t cost = 0;      // an estimate; larger means a longer run
};

// One line of the summary. Identical rows share a run, for example if a variant overrides the
// varied key.
struct SweepRow {
  std::size_t run = 0;             // index into SweepPlan::runs
  std::vector<Assignment> values;  // at the row's point
};

struct SweepPlan {
  std::vector<std::string> keys;  // that vary
  std::vector<SweepRun> runs;     // in order of their first row
  std::vector<SweepRow> rows;     // by valid point, then by variant, then by run number
  std::size_t num_points = 0;
  // Points with an invalid scenario, which have no rows: "--over KEY: at the point KEY=VALUE: what
  // is wrong; what is allowed".
  std::vector<std::string> invalid;
  // "--over KEY: does not vary VARIANT, ...", for variants on which none of its values has an
  // effect. Then what is unlikely about the workloads (workload_warnings()).
  std::vector<std::string> remarks;
};

// "chunked scheduler.policy=vllm seed=3": the run's first row, with the name of the variant, or of
// the scenario. Printable.
std::string run_text(const SweepPlan& plan, const SweepRun& run);

// Throws ConfigError with the point for an unknown key, and if the scenario is invalid at every
// point. Errors that only a run can detect, such as a model that does not fit the device, are not
// detected here.
//
// More threads make the same plan faster. Points write steps.jsonl, requests.jsonl and trace.json
// only if the scenario or `--set` says so.
SweepPlan plan_sweep(const SweepRequest& request, const SweepSpec& spec, int num_threads);

// 32 hexadecimal digits that identify all runs of the plan.
std::string plan_id(const SweepPlan& plan);

}  // namespace metronome
