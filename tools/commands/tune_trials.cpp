// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_trials.h"

#include <utility>

#include "core/base/error.h"

namespace metronome {
namespace {

std::unique_ptr<const TuneQuestion> question_of(const Arguments& arguments) {
  std::optional<TuneQuestion> asked = read_tune_question(arguments);
  METRONOME_CHECK(asked.has_value(), "a process that runs trials asks for no help");
  return std::make_unique<const TuneQuestion>(std::move(*asked));
}

}  // namespace

TuneTrials::TuneTrials(const Arguments& arguments)
    : question_(question_of(arguments)),
      work_({.attainment = question_->options.attainment, .is_quiet = true}, question_->candidates,
            *question_->workloads, ""),
      mutexes_(question_->candidates.names.size()) {
  if (question_->options.goal != kTokenCost) return;
  work_.weigh(hourly_costs(question_->candidates, work_.settings(), question_->options));
}

std::string TuneTrials::line_of(const TrialPlace& place) {
  const std::lock_guard lock(mutexes_.at(place.setting));
  return work_.line_of(place);
}

}  // namespace metronome
