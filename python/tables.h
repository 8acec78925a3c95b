// SPDX-License-Identifier: Apache-2.0
// The record of a run as columns: a dict of names and NumPy arrays. A column of words is a pair of
// codes and words (coded_column()).
#pragma once

#include <nanobind/nanobind.h>

#include "core/metrics/run_record.h"

namespace metronome::python {

// One row a request, by its number, with the names of requests.jsonl. A time that never came is -1;
// a latency that does not exist is NaN.
nanobind::dict requests_table(const RunRecord& record);
// One row a step, with the names of steps.jsonl.
nanobind::dict steps_table(const RunRecord& record);
// One row a prefill chunk, in order of the steps.
nanobind::dict prefills_table(const RunRecord& record);
// One row a preemption, in order of time.
nanobind::dict preemptions_table(const RunRecord& record);
// One row a gap between two tokens of a request, by request, then by time: its parts, and the
// prefill chunk that delayed it most. Tokens that came together have the gap before them once.
nanobind::dict gaps_table(const RunRecord& record);

}  // namespace metronome::python
