// SPDX-License-Identifier: Apache-2.0
// Orca, as in Sarathi-Serve: all decodes and the whole prompts of all fitting requests in one
// batch. Admission reserves the blocks of max_model_len tokens, so no request is ever preempted.
#include "engines/sarathi/base.h"
#include "engines/sarathi/product.h"

namespace metronome {
namespace {

class OrcaScheduler final : public SarathiBase {
 public:
  explicit OrcaScheduler(const SchedulerContext& context)
      : SarathiBase(context, context.max_model_len) {}

 private:
  std::int64_t num_reserved(std::int64_t) const override { return max_model_len(); }

  void plan_step() override {
    for (std::size_t i = plan_run(); i < running().size(); ++i) {
      if (running()[i]->is_decodable()) add_chunk(*running()[i], 1);
    }
    while (Request* request = admissible()) admit_chunk(*request, request->num_tokens());
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_orca(const SchedulerContext& context) {
  return std::make_unique<OrcaScheduler>(context);
}

}  // namespace metronome
