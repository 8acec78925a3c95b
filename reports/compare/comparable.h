// SPDX-License-Identifier: Apache-2.0
// Whether the figures of two runs can be compared: the same model and the same requests.
#pragma once

#include <string>
#include <vector>

#include "reports/compare/observed_run.h"
#include "reports/files/named_model.h"

namespace metronome {

// The model of a run, as its file says.
NamedModel model_of(const ObservedRun& run);

struct ModelComparison {
  bool differs = false;  // the shapes differ
  // A sentence without an end: "the model is a, not b"; where it does not differ but the shapes
  // are not both known and the names are not the same, why it was not compared. Else empty.
  std::string text;
};
ModelComparison compare_models(const NamedModel& measured, const NamedModel& simulated);

struct RunDifferences {
  std::vector<std::string> found;    // "3 requests, not 2"
  std::vector<std::string> remarks;  // what may differ
};

// Differences in the model, the number of requests and their lengths. Requests that did not
// complete have unknown lengths. Requests in another order are the same. Remarks on a model that is
// not known, and on requests that arrive more than twice as fast in one of the runs.
RunDifferences differences_of(const ObservedRun& measured, const ObservedRun& simulated);

// "a; b".
std::string joined_differences(const std::vector<std::string>& found);

}  // namespace metronome
