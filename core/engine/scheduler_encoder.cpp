// SPDX-License-Identifier: Apache-2.0
// The scheduler's part for models with images.
#include "core/base/error.h"
#include "core/engine/scheduler.h"

namespace metronome {

// The items that a chunk needs are encoded in its step. A policy that calls fit_to_encoder() has
// cut the chunk before.
void Scheduler::plan_encodings(const Request& request, std::int32_t num_tokens) {
  if (!encoder_->is_fitted(request.id)) {
    if (request.state == RequestState::Decode) return;  // items are in prompts
    const std::int32_t num_fitting =
        encoder_->fit(request.id, request.num_computed_tokens(), num_tokens, 0);
    METRONOME_CHECK(num_fitting == num_tokens,
                    "policies without encoder limits compute every chunk that they plan");
  }
  encoder_->take(request.id, plan_->encodings);
}

// Called before the chunk's tokens are appended. With a step in flight vLLM compares with the
// computed tokens less the tokens that are still to come, so an item at a prompt's end is held for
// one step more.
void Scheduler::release_computed_items(const Request& request) {
  const bool counts_known = encoder_->setup().plans_ahead && request.state == RequestState::Decode;
  encoder_->release_computed(
      request.id, counts_known ? request.num_tokens() - 1 : request.num_computed_tokens());
}

void Scheduler::check_encoder() const {
  if (!encoder_) return;
  encoder_->check_integrity();
  encoder_->visit_holders([this](RequestId id) {
    METRONOME_CHECK(!requests_[id].has_ended(), "an ended request holds no encoder entry");
  });
}

}  // namespace metronome
