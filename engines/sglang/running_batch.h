// SPDX-License-Identifier: Apache-2.0
// SGLang's running_batch: the decoding requests in the order in which they joined. The running list
// of the books begins with them, and with those that left the batch with their last token in
// flight. Behind are the requests of the last prefill, which join the batch in the next plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/engine/books.h"
#include "core/engine/request.h"

namespace metronome {

class SglangRunningBatch {
 public:
  // Changes since the last plan.
  struct Change {
    bool has_shrunk = false;  // a request left the batch or the last prefill
    bool has_begun = false;   // the batch was empty and is not
  };
  // Called first in a plan. The requests of the last prefill join, but for an unfinished prompt.
  Change begin_plan(Books& books) {
    books_ = &books;
    std::erase_if(finishing_, [](const Request* request) { return request->has_ended(); });
    end_ -= std::exchange(num_ended_, 0);
    Change change{.has_shrunk = std::exchange(has_shrunk_, false)};
    is_planning_ = true;
    if (!has_last_prefill_) return change;
    // Members of the run among them all decode, so they keep their places.
    const std::span<Request*> last = behind();
    const auto chunk = std::stable_partition(last.begin(), last.end(), [](const Request* request) {
      return request->state == RequestState::Decode;
    });
    change.has_shrunk = change.has_shrunk || chunk != last.end();
    change.has_begun = was_empty_ && chunk != last.begin();
    end_ += chunk - last.begin();
    return change;
  }
  // Called last in a plan.
  void end_plan(bool has_prefilled) {
    has_last_prefill_ = has_prefilled;
    was_empty_ = empty();
    behind_ = ids_behind();
    is_planning_ = false;
  }
  // A request is about to end. Outside of a plan it stays in the running list until the next one.
  void note_end(const Request& request) {
    if (is_planning_) return;
    if (request.state == RequestState::Prefill) has_shrunk_ = has_shrunk_ || has_last_prefill_;
    if (request.state != RequestState::Decode) return;
    if (!std::binary_search(behind_.begin(), behind_.end(), request.id)) ++num_ended_;
    if (!is_finishing(request)) has_shrunk_ = true;
  }

  std::ptrdiff_t size() const { return end_ - std::ssize(finishing_); }
  bool empty() const { return size() == 0; }
  Request& back() const { return *books_->running()[static_cast<std::size_t>(end_ - 1)]; }
  // Calls `visit` with each request from this place of the running list on.
  template <class Visit>
  void visit_from(std::size_t first, const Visit& visit) const {
    for (std::size_t i = first; i < static_cast<std::size_t>(end_); ++i) {
      Request& request = *books_->running()[i];
      if (has(request)) visit(request);
    }
  }
  std::vector<Request*> all() const {
    std::vector<Request*> all;
    visit_from(0, [&](Request& request) { all.push_back(&request); });
    return all;
  }

  // Takes the requests out whose last token is in flight. Returns whether there are any.
  bool drop_finishing() {
    const std::size_t num_before = finishing_.size();
    finishing_.clear();
    const std::vector<RequestId> behind = ids_behind();
    for (const Request* request : books_->finishing()) {
      if (std::binary_search(behind.begin(), behind.end(), request->id)) continue;
      finishing_.push_back(request);
    }
    std::sort(finishing_.begin(), finishing_.end(), is_earlier);
    return finishing_.size() > num_before;
  }
  // A request of the batch is about to leave the running list.
  void pop() { --end_; }
  // Gives the batch another order, behind those that left it.
  void reorder(const std::vector<Request*>& order) {
    std::vector<Request*>& running = books_->running_list();
    const auto end = running.begin() + end_;
    std::stable_partition(running.begin(), end,
                          [this](const Request* request) { return !has(*request); });
    std::copy(order.begin(), order.end(), end - std::ssize(order));
  }
  // All requests leave the batch, to join it anew behind those of this plan's prefill.
  void join_prefill() {
    reorder(all());
    std::vector<Request*>& running = books_->running_list();
    const std::ptrdiff_t begin = std::ssize(finishing_);
    std::rotate(running.begin() + begin, running.begin() + end_, running.end());
    end_ = begin;
  }

 private:
  bool has(const Request& request) const {  // one before end_
    return finishing_.empty() || !request.has_last_token_in_flight() || !is_finishing(request);
  }
  static bool is_earlier(const Request* a, const Request* b) { return a->id < b->id; }
  bool is_finishing(const Request& request) const {
    return std::binary_search(finishing_.begin(), finishing_.end(), &request, is_earlier);
  }
  std::span<Request*> behind() const {
    return books_->running_from(static_cast<std::size_t>(end_));
  }
  std::vector<RequestId> ids_behind() const {
    std::vector<RequestId> ids;
    for (const Request* request : behind()) ids.push_back(request->id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  Books* books_ = nullptr;
  std::ptrdiff_t end_ = 0;  // a place of the running list
  // Before it, but no longer in the batch, in order of arrival. Those that ended since the last
  // plan are among them.
  std::vector<const Request*> finishing_;
  std::vector<RequestId> behind_;  // behind it after the last plan, in order of arrival
  std::ptrdiff_t num_ended_ = 0;   // before it, since the last plan
  bool has_shrunk_ = false;        // since the last plan
  bool has_last_prefill_ = false;  // the last plan prefilled
  bool was_empty_ = true;          // after the last plan
  bool is_planning_ = false;
};

}  // namespace metronome
