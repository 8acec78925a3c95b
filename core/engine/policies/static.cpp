// SPDX-License-Identifier: Apache-2.0
// Static batching: a batch forms once and prefills whole. New requests wait until all have ended.
#include <algorithm>

#include "core/engine/policies/policies.h"
#include "core/engine/policy.h"

namespace metronome {
namespace {

class StaticPolicy final : public Policy {
 public:
  explicit StaticPolicy(const PolicyContext& context)
      : batch_wait_(static_cast<TimeNs>(context.config.batch_wait_ms * double{kNsPerMs})) {}

  TimeNs wake_time(const Books& books) const override {
    return books.nothing_runs() && !books.waiting().empty() ? batch_deadline(books) : kNever;
  }

  void fill(Books& books) override {
    if (!books.nothing_runs()) {
      books.plan_decodes();
      return;
    }
    if (books.waiting().empty()) return;
    const bool is_full = books.waiting().size() >= static_cast<std::size_t>(books.max_num_seqs());
    if (!is_full && books.now() < batch_deadline(books)) return;
    while (Request* request = books.next_waiting()) {
      if (!books.admit(*request, books.num_uncomputed_tokens(*request))) break;
    }
  }

 private:
  // A partial batch waits this long for more requests, counted from its oldest request.
  TimeNs batch_deadline(const Books& books) const {
    return books.waiting().front()->arrival + batch_wait_;
  }

  TimeNs batch_wait_;
};

}  // namespace

std::unique_ptr<Policy> make_static(const PolicyContext& context) {
  return std::make_unique<StaticPolicy>(context);
}

}  // namespace metronome
