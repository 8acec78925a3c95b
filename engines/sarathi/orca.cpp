// SPDX-License-Identifier: Apache-2.0
// Orca, as in Sarathi-Serve: all decodes and the whole prompts of all fitting requests in one
// batch. Admission reserves the blocks of max_model_len tokens, so no request is ever preempted.
#include "engines/sarathi/base.h"
#include "engines/sarathi/product.h"

namespace metronome {
namespace {

class OrcaPolicy final : public SarathiBase {
 public:
  explicit OrcaPolicy(const PolicyContext& context)
      : SarathiBase(context.max_model_len), max_model_len_(context.max_model_len) {}

 private:
  std::int64_t num_reserved(std::int64_t) const override { return max_model_len_; }

  void plan_step() override {
    for (std::size_t i = books().plan_run(); i < books().running().size(); ++i) {
      if (books().running()[i]->is_decodable()) books().add_chunk(*books().running()[i], 1);
    }
    while (Request* request = admissible()) admit_chunk(*request, request->num_tokens());
  }

  std::int32_t max_model_len_;
};

}  // namespace

std::unique_ptr<Policy> make_orca(const PolicyContext& context) {
  return std::make_unique<OrcaPolicy>(context);
}

}  // namespace metronome
